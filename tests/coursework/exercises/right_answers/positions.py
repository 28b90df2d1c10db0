"""Right answers to the exercises of chapter 02."""

import cmath
import math

import numpy as np
import torch

# is_order_blind ------------------------------------------------------------------------------


def blind_by_indexing(f, x, order):
    return bool(np.allclose(f(x[..., order, :]), f(x)[..., order, :]))


def blind_by_take(f, x, order):
    gap = f(np.take(x, order, axis=-2)) - np.take(f(x), order, axis=-2)
    return np.abs(gap).max() < 1e-5  # a NumPy bool


def blind_by_a_matrix(f, x, order):
    P = np.eye(len(order))[order]
    return np.linalg.norm(f(P @ x) - P @ f(x)) < 1e-6


def blind_by_the_inverse(f, x, order):
    back = np.argsort(order)
    return np.allclose(f(x[..., order, :])[..., back, :], f(x), rtol=0, atol=1e-8)


def blind_token_by_token(f, x, order):
    before, after = f(x), f(np.stack([x[..., t, :] for t in order], axis=-2))
    return all(
        np.allclose(after[..., place, :], before[..., token, :])
        for place, token in enumerate(order.tolist())
    )


def blind_by_filling_in(f, x, order):
    before = f(x)
    expected = np.empty_like(before)
    for place in range(len(order)):
        expected[..., place, :] = before[..., order[place], :]
    return not (np.abs(f(x.take(order, -2)) - expected) > 1e-4).any()


# sinusoidal_positions ------------------------------------------------------------------------


def sinusoids_by_slices(n, d_model, base=10000.0):
    angles = np.arange(n)[:, None] / base ** (np.arange(0, d_model, 2) / d_model)
    table = np.zeros((n, d_model))
    table[:, 0::2] = np.sin(angles)
    table[:, 1::2] = np.cos(angles)
    return table


def sinusoids_by_exponentials(n, d_model, base=10000.0):
    speeds = np.exp(np.arange(0, d_model, 2) * -(math.log(base) / d_model))
    angles = np.outer(np.arange(n), speeds)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(n, -1)


def sinusoids_in_loops(n, d_model, base=10000.0):
    rows = []
    for p in range(n):
        row = []
        for i in range(d_model // 2):
            angle = p / base ** (2 * i / d_model)
            row += [math.sin(angle), math.cos(angle)]
        rows.append(row)
    return np.array(rows)


def sinusoids_of_a_complex_exponential(n, d_model, base=10000.0):
    i = np.arange(d_model // 2)
    z = np.exp(1j * np.arange(n)[:, None] * base ** (-2.0 * i / d_model))
    return np.stack([z.imag, z.real], axis=-1).reshape(n, d_model)


def sinusoids_by_a_shifted_sine(n, d_model, base=10000.0):
    column = np.arange(d_model)
    angles = np.arange(n)[:, None] / np.power(base, (column - column % 2) / d_model)
    return np.sin(angles + np.pi / 2 * (column % 2))


def sinusoids_in_float32(n, d_model, base=10000.0):
    speeds = (base ** (-np.arange(0, d_model, 2) / d_model)).astype(np.float32)
    angles = np.arange(n, dtype=np.float32)[:, None] * speeds
    return np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(n, d_model)


# rope_angles ---------------------------------------------------------------------------------


def angles_by_broadcasting(positions, d_head, base=10000.0):
    return positions[:, None] / base ** (np.arange(0, d_head, 2) / d_head)


def angles_by_outer(positions, d_head, base=10000.0):
    return np.outer(positions, 1 / base ** (2 * np.arange(d_head // 2) / d_head))


def angles_by_einsum(positions, d_head, base=10000.0):
    speeds = np.exp(-math.log(base) * np.arange(0, d_head, 2) / d_head)
    return np.einsum("t,i->ti", positions.astype(float), speeds)


def angles_in_loops(positions, d_head, base=10000.0):
    return np.array(
        [[p / base ** (2 * i / d_head) for i in range(d_head // 2)] for p in positions.tolist()]
    )


def angles_by_geometric_spacing(positions, d_head, base=10000.0):
    ratio = base ** (-2 / d_head)
    speeds = np.cumprod(np.full(d_head // 2, ratio)) / ratio
    return np.multiply.outer(positions, speeds)


def angles_in_float32(positions, d_head, base=10000.0):
    speeds = 1.0 / (base ** (np.arange(0, d_head, 2).astype(np.float32) / d_head))
    return np.outer(positions.astype(np.float32), speeds.astype(np.float32))


def angles_with_torch_inside(positions, d_head, base=10000.0):
    speeds = 1.0 / (base ** (torch.arange(0, d_head, 2, dtype=torch.float64) / d_head))
    return torch.outer(torch.tensor(positions, dtype=torch.float64), speeds).numpy()


# apply_rope ----------------------------------------------------------------------------------


def rope_by_halves(x, angles):
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    c, s = np.cos(angles), np.sin(angles)
    return np.concatenate([a * c - b * s, a * s + b * c], axis=-1)


def rope_by_rotate_half(x, angles):
    """As in Hugging Face's Llama."""
    a, b = np.split(x, 2, axis=-1)
    rotated = np.concatenate([-b, a], axis=-1)
    wide = np.concatenate([angles, angles], axis=-1)
    return x * np.cos(wide) + rotated * np.sin(wide)


def rope_by_complex_numbers(x, angles):
    half = x.shape[-1] // 2
    z = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)
    return np.concatenate([z.real, z.imag], axis=-1)


def rope_by_matrices(x, angles):
    T, half = angles.shape
    i = np.arange(half)
    R = np.zeros((T, 2 * half, 2 * half))  # x' = R x for each token
    R[:, i, i] = R[:, i + half, i + half] = np.cos(angles)
    R[:, i, i + half] = -np.sin(angles)
    R[:, i + half, i] = np.sin(angles)
    return np.einsum("tij,...tj->...ti", R, x)


def rope_in_loops(x, angles):
    y = np.zeros(x.shape)
    half = x.shape[-1] // 2
    for at in np.ndindex(x.shape[:-1]):
        for i in range(half):
            z = complex(x[at][i], x[at][i + half]) * cmath.exp(1j * angles[at[-1], i])
            y[at][i], y[at][i + half] = z.real, z.imag
    return y


def rope_by_way_of_the_other_layout(x, angles):
    K = x.shape[-1]
    to_half = np.r_[0:K:2, 1:K:2]
    to_interleaved = np.argsort(to_half)
    y = x[..., to_interleaved]
    a, b = y[..., 0::2], y[..., 1::2]
    turned = np.stack(
        [a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)], axis=-1
    )
    return turned.reshape(x.shape)[..., to_half]


# rope_permutation ----------------------------------------------------------------------------


def permutation_by_slices(d_head):
    return np.r_[0:d_head:2, 1:d_head:2]


def permutation_by_transpose(d_head):
    return np.arange(d_head).reshape(d_head // 2, 2).T.ravel()


def permutation_by_formula(d_head):
    half = d_head // 2
    return np.array([2 * j if j < half else 2 * (j - half) + 1 for j in range(d_head)])


def permutation_by_sorting(d_head):
    return np.array(sorted(range(d_head), key=lambda place: (place % 2, place)), dtype=np.int32)


def permutation_as_an_inverse(d_head):
    return np.argsort(np.arange(d_head).reshape(2, -1).T.ravel())


RIGHT_ANSWERS = {
    "02.is_order_blind": [
        blind_by_indexing,
        blind_by_take,
        blind_by_a_matrix,
        blind_by_the_inverse,
        blind_token_by_token,
        blind_by_filling_in,
    ],
    "02.sinusoidal_positions": [
        sinusoids_by_slices,
        sinusoids_by_exponentials,
        sinusoids_in_loops,
        sinusoids_of_a_complex_exponential,
        sinusoids_by_a_shifted_sine,
        sinusoids_in_float32,
    ],
    "02.rope_angles": [
        angles_by_broadcasting,
        angles_by_outer,
        angles_by_einsum,
        angles_in_loops,
        angles_by_geometric_spacing,
        angles_in_float32,
        angles_with_torch_inside,
    ],
    "02.apply_rope": [
        rope_by_halves,
        rope_by_rotate_half,
        rope_by_complex_numbers,
        rope_by_matrices,
        rope_in_loops,
        rope_by_way_of_the_other_layout,
    ],
    "02.rope_permutation": [
        permutation_by_slices,
        permutation_by_transpose,
        permutation_by_formula,
        permutation_by_sorting,
        permutation_as_an_inverse,
    ],
}
