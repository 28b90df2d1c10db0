"""One spelling for NumPy arrays and PyTorch tensors.

The chapters compute with NumPy, the models run in PyTorch, and the mathematics is the same. It is
written once, against the names of the Python array API standard (https://data-apis.org/array-api),
which `array_api_compat` gives to both libraries.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_array_api_obj

Array = Any  #: a NumPy array or a PyTorch tensor; a function returns the kind that it was given


def namespace(*arrays: Array) -> ModuleType:
    """The array library that `arrays` belong to; NumPy where none of them belongs to one.

    Raises:
        TypeError: the arrays come from different libraries.
    """
    known = [array for array in arrays if is_array_api_obj(array)]
    return array_namespace(*known) if known else array_namespace(np.empty(0))


def as_floating(x: Array) -> Array:
    """`x` itself if it holds floats; otherwise the same numbers as the library's default floats.

    Softmax of the integers [1, 2] is [0.27, 0.73]: kept as integers it would be [0, 0].
    """
    xp = namespace(x)
    x = x if is_array_api_obj(x) else xp.asarray(x)
    return x if xp.isdtype(x.dtype, "real floating") else xp.astype(x, xp.asarray(1.0).dtype)
