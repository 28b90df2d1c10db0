"""PyTorch's tensors among plain values. Nothing here loads PyTorch: where it is not, none are."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


def loaded() -> Any:
    """The module `torch`, or None where nobody has imported it."""
    return sys.modules.get("torch")


def is_tensor(value: Any) -> bool:
    """Whether a value is exactly a tensor or a parameter of PyTorch, asked by identity."""
    kind, torch = type(value), sys.modules.get("torch")
    return torch is not None and (kind is torch.Tensor or kind is torch.nn.Parameter)


def is_array(value: Any) -> bool:
    """Whether a value is an array of NumPy or a tensor."""
    return type(value) is np.ndarray or is_tensor(value)


def numbers(value: Any) -> np.ndarray:
    """The numbers of an array or of a plain tensor, as an array."""
    return value.detach().numpy() if is_tensor(value) else np.asarray(value)


def has_floats(value: Any) -> bool:
    """Whether a value is a tensor by which can be differentiated."""
    return is_tensor(value) and value.is_floating_point()


def can_pass(value: Any) -> bool:
    """Whether a tensor is an ordinary one: dense, in this machine's memory, of a NumPy dtype."""
    torch = loaded()
    return (
        value.layout is torch.strided
        and value.device.type == "cpu"
        and not value.is_quantized
        and value.dtype is not torch.bfloat16
    )


def copy(value: Any) -> Any:
    """A tensor of its own with the same numbers, outside of any graph."""
    return value.detach().resolve_conj().resolve_neg().clone().contiguous()


@contextmanager
def kept_gradient_mode() -> Iterator[None]:
    """Whether gradients are recorded is afterwards as it was."""
    torch = loaded()
    before = torch is not None and torch.is_grad_enabled()
    try:
        yield
    finally:
        if torch is not None:
            torch.set_grad_enabled(before)


def global_state() -> tuple[bytes, ...]:
    """The state of the global random generators and of gradients, to compare with a later one."""
    torch = loaded()
    theirs: tuple[bytes, ...] = ()
    if torch is not None:
        mode = repr(torch.is_grad_enabled()).encode()
        theirs = (torch.random.get_rng_state().numpy().tobytes(), mode)
    return (_state_of_numpy(), *theirs)


def _state_of_numpy() -> bytes:
    """The state of NumPy's global generator, read where it lies: asked for, it takes 50 µs."""
    bits = np.random.get_bit_generator()
    if type(bits) is np.random.MT19937:
        return ctypes.string_at(bits.ctypes.state_address, _SIZE_OF_MT19937)
    return repr(bits).encode()  # one that somebody has put there


#: Bytes: 624 words and the place of the next one.
_SIZE_OF_MT19937 = 625 * 4
