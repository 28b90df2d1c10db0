"""Tables that may be right to as many digits as their positions allow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from coursework.compare import Difference, compare
from coursework.exercise import Call


def near_table(
    reference: Callable[..., np.ndarray], largest: Callable[[Call], float]
) -> Callable[[Call, Any], Difference | None]:
    """Compares with a table of angles, or of their sines: float32 ones are near enough.

    A float32 holds seven digits of an angle, and the angle grows with the position.
    """

    def near(call: Call, value: Any) -> Difference | None:
        expected = reference(*call.args, **call.kwargs)
        difference = compare(call, expected, value, names=("the table",))
        if difference is None or difference.kind != "value":
            return difference
        close = np.abs(value - expected) <= 1e-7 * max(1.0, largest(call))
        return compare(call, expected, np.where(close, expected, value), names=("the table",))

    return near
