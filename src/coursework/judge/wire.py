"""What goes over the pipe between judge and worker: frames of plain values.

A frame is its length, a JSON text and the bytes of the arrays that the text refers to. There is no
pickle, no `eval`, no header to be parsed: the worst that a forged frame can be is a refused one.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from typing import Any, BinaryIO

import numpy as np

from coursework import plain, tensors
from coursework.exercise import Seed
from coursework.stubs import Handle

MAX_FRAME = 64 * 2**20  #: bytes
_LENGTHS = struct.Struct("<QQ")
_AS_THEY_ARE = frozenset({bool, int, float, str, type(None)})
_DTYPES = frozenset(
    f"{order}{code}"
    for order in "<|"
    for code in (
        "b1",
        "i1",
        "i2",
        "i4",
        "i8",
        "u1",
        "u2",
        "u4",
        "u8",
        "f2",
        "f4",
        "f8",
        "f16",
        "c8",
        "c16",
    )
)
_TORCH_DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "bool")


class BadFrame(Exception):
    """Bytes that are no frame: cut off, too long, or not made by `encode`."""


def encode(value: Any) -> bytes:
    """A frame that holds `value`: plain values, PyTorch's dtypes, `Seed` and `Handle`."""
    blobs: list[bytes] = []
    size = 0

    torch = tensors.loaded()

    def tree(part: Any) -> Any:
        nonlocal size
        if type(part) in _AS_THEY_ARE:
            return part
        if tensors.is_tensor(part):
            return {"tensor": tree(part.detach().numpy())["array"]}
        if torch is not None and isinstance(part, torch.dtype):
            return {"dtype": str(part).removeprefix("torch.")}
        if isinstance(part, np.ndarray):
            part = part.astype(part.dtype.newbyteorder("<"))
            order = "F" if part.flags.f_contiguous and not part.flags.c_contiguous else "C"
            data = part.tobytes(order)
            blobs.append(data)
            size += len(data)
            return {"array": [part.dtype.str, list(part.shape), size - len(data), len(data), order]}
        if isinstance(part, list):
            return [tree(item) for item in part]
        if isinstance(part, tuple):
            return {"tuple": [tree(item) for item in part]}
        if isinstance(part, dict):
            return {"dict": [[tree(key), tree(item)] for key, item in part.items()]}
        if isinstance(part, Seed):
            return {"seed": [part.number, part.of_torch]}
        if isinstance(part, Handle):
            fields = (part.number, part.methods, part.attributes, part.differentiable)
            return {"handle": [tree(field) for field in fields]}
        if isinstance(part, complex):
            return {"complex": [part.real, part.imag]}
        if isinstance(part, bytes):
            return {"bytes": base64.b64encode(part).decode()}
        return part

    text = json.dumps(tree(value)).encode()
    return _LENGTHS.pack(len(text), size) + text + b"".join(blobs)


def write(stream: BinaryIO, value: Any) -> None:
    """Send one frame."""
    stream.write(encode(value))
    stream.flush()


def read(stream: BinaryIO) -> Any:
    """Receive one frame.

    Raises:
        EOFError: there is no more.
        BadFrame: what came is not a frame.
    """
    lengths = stream.read(_LENGTHS.size)
    if not lengths:
        raise EOFError
    if len(lengths) < _LENGTHS.size:
        raise BadFrame("cut off")
    text_length, blob_length = _LENGTHS.unpack(lengths)
    if text_length + blob_length > MAX_FRAME:
        raise BadFrame(f"longer than {MAX_FRAME // 2**20} MB")
    text, blob = stream.read(text_length), stream.read(blob_length)
    if len(text) < text_length or len(blob) < blob_length:
        raise BadFrame("cut off")
    try:
        return _decode(json.loads(text), blob, 0)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise BadFrame("not made of plain values") from error


def _decode(part: Any, blob: bytes, depth: int) -> Any:
    # Requests wrap values a few levels deeper than plain values themselves may go.
    if depth > plain.MAX_DEPTH + 6:
        raise ValueError("too deep")
    if isinstance(part, list):
        return [_decode(item, blob, depth + 1) for item in part]
    if not isinstance(part, dict):
        return part
    ((tag, content),) = part.items()
    if tag == "array":
        return _array(content, blob)
    if tag in ("tensor", "dtype"):
        return _of_torch(tag, content, blob)
    if tag == "tuple":
        return tuple(_decode(item, blob, depth + 1) for item in content)
    if tag == "dict":
        return {
            _decode(key, blob, depth + 1): _decode(item, blob, depth + 1) for key, item in content
        }
    if tag == "seed":
        number, of_torch = content
        return Seed(int(number), bool(of_torch))
    if tag == "handle":
        number, methods, attributes, differentiable = (
            _decode(field, blob, depth + 1) for field in content
        )
        return Handle(int(number), tuple(methods), dict(attributes), bool(differentiable))
    if tag == "complex":
        return complex(*content)
    if tag == "bytes":
        return base64.b64decode(content)
    raise ValueError(f"unknown tag {tag!r}")


def _array(content: Any, blob: bytes) -> np.ndarray:
    dtype, shape, start, length, order = content
    if (
        dtype not in _DTYPES
        or order not in ("C", "F")
        or any(type(n) is not int or n < 0 for n in (*shape, start, length))
    ):
        raise ValueError("not an array")
    if math.prod(shape) * np.dtype(dtype).itemsize != length or start + length > len(blob):
        raise ValueError("not an array")
    data = np.frombuffer(blob, dtype=np.uint8, count=length, offset=start)
    return data.copy().view(dtype).reshape(shape, order=order) if length else np.empty(shape, dtype)


def _of_torch(tag: str, content: Any, blob: bytes) -> Any:
    import torch

    if tag == "tensor":
        return torch.from_numpy(_array(content, blob))
    if content not in _TORCH_DTYPES:
        raise ValueError("not a dtype")
    return getattr(torch, content)
