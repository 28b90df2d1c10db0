"""What crosses the pipe arrives as it was sent, and what was not sent by us is refused."""

from __future__ import annotations

import contextlib
import io
import json
import struct
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from coursework.exercise import Seed
from coursework.judge import wire
from coursework.stubs import Handle

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
KEYS = st.integers() | st.text() | st.tuples(st.integers(), st.integers())
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
    ),
    max_leaves=12,
)
ARRAYS = npst.arrays(
    st.sampled_from([np.float64, np.float32, np.float16, np.int64, np.uint8, np.bool_]),
    npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
)


def sent(value: object) -> Any:
    return wire.read(io.BytesIO(wire.encode(value)))


def frame(text: object, blob: bytes = b"") -> io.BytesIO:
    data = json.dumps(text).encode()
    return io.BytesIO(struct.pack("<QQ", len(data), len(blob)) + data + blob)


@given(VALUES)
def test_plain_values_arrive_as_they_were_sent(value: object) -> None:
    arrived = sent(value)
    assert arrived == value
    assert type(arrived) is type(value)


@given(ARRAYS)
def test_arrays_arrive_with_shape_dtype_and_every_bit(array: np.ndarray) -> None:
    arrived = sent(array)
    assert isinstance(arrived, np.ndarray)
    assert (arrived.shape, arrived.dtype) == (array.shape, array.dtype)
    assert arrived.tobytes() == array.tobytes()


def test_a_transposed_array_and_one_of_the_other_byte_order_arrive_right() -> None:
    array = np.arange(6.0).reshape(2, 3)
    for stored_by_columns in (array.T, np.asfortranarray(np.ones((2, 3, 4), dtype=np.float32))):
        arrived = sent(stored_by_columns)
        np.testing.assert_array_equal(arrived, stored_by_columns)
        assert arrived.strides == stored_by_columns.strides
    np.testing.assert_array_equal(sent(array[:, ::2]), array[:, ::2])
    np.testing.assert_array_equal(sent(array.astype(">f8")), array)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "bool"])
def test_tensors_arrive_as_tensors(dtype: str) -> None:
    tensor = (torch.arange(6).reshape(2, 3) % 4).to(getattr(torch, dtype))
    for one in (tensor, tensor.T, tensor[:, ::2], tensor[0, 0], tensor[:0]):
        arrived = sent([one])[0]
        assert type(arrived) is torch.Tensor
        assert arrived.dtype == one.dtype
        assert arrived.shape == one.shape
        assert torch.equal(arrived, one)
    assert sent((torch.float64, torch.bfloat16)) == (torch.float64, torch.bfloat16)


def test_a_generator_crosses_as_its_seed_and_an_object_as_its_handle() -> None:
    handle = Handle(7, ("append", "__len__"), {"size": 3}, differentiable=True)
    plain = [Seed(7), Seed(7, of_torch=True), {"cache": handle}]
    assert sent(plain) == plain


@pytest.mark.parametrize(
    ("name", "text", "blob"),
    [
        ("an unknown tag", {"pickle": "gASVAAAA"}, b""),
        ("two tags", {"tuple": [], "dict": []}, b""),
        ("an object dtype", {"array": ["|O", [1], 0, 8, "C"]}, b"12345678"),
        ("a shape larger than its bytes", {"array": ["<f8", [2**40], 0, 8, "C"]}, b"12345678"),
        ("a negative shape", {"array": ["<f8", [-1], 0, 8, "C"]}, b"12345678"),
        ("bytes beyond the end", {"array": ["<f8", [2], 8, 16, "C"]}, b"12345678" * 2),
        ("a negative start", {"array": ["<f8", [1], -8, 8, "C"]}, b"12345678"),
        ("an order of its own", {"array": ["<f8", [1], 0, 8, "K"]}, b"12345678"),
        ("a list as a key", {"dict": [[[1], 2]]}, b""),
        ("a dtype of its own", {"dtype": "_dynamo"}, b""),
        ("a handle without its fields", {"handle": [1]}, b""),
        ("a seed that is no number", {"seed": "x"}, b""),
        ("too deep", json.loads("[" * 40 + "]" * 40), b""),
    ],
)
def test_a_forged_frame_is_refused(name: str, text: object, blob: bytes) -> None:
    with pytest.raises(wire.BadFrame):
        wire.read(frame(text, blob))


@given(st.binary(max_size=200))
def test_bytes_from_anywhere_are_refused_or_read_but_never_more(data: bytes) -> None:
    with contextlib.suppress(EOFError, wire.BadFrame):
        wire.read(io.BytesIO(data))


def test_a_frame_that_claims_too_much_is_refused_before_it_is_read() -> None:
    with pytest.raises(wire.BadFrame, match="longer than"):
        wire.read(io.BytesIO(struct.pack("<QQ", 2**50, 0)))


def test_a_frame_that_is_cut_off_is_refused() -> None:
    whole = wire.encode([np.arange(4.0), "text"])
    for end in range(1, len(whole)):
        with pytest.raises(wire.BadFrame):
            wire.read(io.BytesIO(whole[:end]))
