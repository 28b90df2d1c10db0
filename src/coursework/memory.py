"""How much memory a call needs at its peak.

In one process two accounts are kept and the larger one counts: Python's own (`tracemalloc`), which
knows every array of NumPy's to the byte, and the operating system's, which knows PyTorch's as well
(`peak_of`). Code that wants to can cheat both. The judge therefore looks at the sizes of another
process, which has no say in them (`sizes_of`, `used_by_fork`).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import re
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MIB = 2**20
INTERPRETER = 4 * MIB  #: of old memory, Python itself writes to less than this in any call

# Parameters of glibc's `mallopt`.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def peak_of(function: Callable[[], Any]) -> tuple[Any, int]:
    """What `function` returns, and the bytes that it needed at its peak beyond those in use before.

    Code that loads a library or fills a cache on its way is charged with that, too.
    """
    _trim()
    keep_exact_accounts()
    resident = _restart_peak()
    was_tracing = tracemalloc.is_tracing()
    if not was_tracing:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        traced = tracemalloc.get_traced_memory()[0]
        value = function()
        peaks = [tracemalloc.get_traced_memory()[1] - traced, 0]
    finally:
        if not was_tracing:
            tracemalloc.stop()
        keep_fast_accounts()
    if resident is not None:
        peaks.append(_status("self", "VmHWM") - resident)
    return value, max(peaks)


def give_back_free_memory() -> None:
    """Let pages that nothing uses go back to the system: using them again shows as new."""
    gc.collect()
    _trim()


def _trim() -> None:
    with contextlib.suppress(OSError, TypeError, AttributeError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)


def keep_exact_accounts() -> None:
    """Take each larger block from the system and give it back when it is freed.

    Otherwise the allocator keeps freed blocks in reserve, in pieces that the next ones may not fit.
    """
    _mallopt(_MMAP_THRESHOLD, MIB // 8)


def keep_fast_accounts() -> None:
    """Keep freed blocks in reserve again, up to the sizes that glibc comes to by itself."""
    _mallopt(_MMAP_THRESHOLD, 32 * MIB)
    _mallopt(_TRIM_THRESHOLD, 64 * MIB)


def _mallopt(parameter: int, value: int) -> None:
    with contextlib.suppress(OSError, TypeError, AttributeError):  # glibc only
        ctypes.CDLL(None).mallopt(parameter, value)


def _restart_peak() -> int | None:
    """Let the system's account of the peak begin anew; the bytes in use now.

    None: the system keeps no such account.
    """
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return _status("self", "VmRSS")
    except (OSError, ValueError):
        return None


def _status(pid: int | str, name: str) -> int:
    return _field(Path(f"/proc/{pid}/status").read_text(), name)


def _field(text: str, name: str) -> int:
    """The bytes that a file of /proc gives under a name, in kB."""
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"the system does not say {name}")
    return 1024 * int(found[1])


@dataclass(frozen=True)
class Sizes:
    """What the operating system says of a process, in bytes."""

    resident: int  #: in memory now
    peak: int  #: in memory at the highest
    anonymous: int  #: in memory now and from no file
    own: int  #: in memory now, written by this process and shared with no other


def sizes_of(pid: int) -> Sizes | None:
    """The sizes of a process; None where the system does not tell."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return Sizes(
            resident=_field(status, "VmRSS"),
            peak=_field(status, "VmHWM"),
            anonymous=_field(rollup, "Anonymous"),
            own=_field(rollup, "Private_Dirty"),
        )
    except (OSError, ValueError):
        return None


def children_of(pid: int) -> list[int]:
    """The processes that a process has started and that still run, the youngest last."""
    with contextlib.suppress(OSError):
        return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def numbers_of(pid: int) -> list[int]:
    """The numbers of a process, in each namespace of processes that it is in, ours first."""
    with contextlib.suppress(OSError):
        found = re.search(r"^NSpid:(.*)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        return [int(n) for n in found[1].split()] if found else []
    return []


def used_by_fork(before: Sizes, after: Sizes) -> int:
    """The bytes that a fork needed at its peak.

    Args:
        before: its parent, at rest.
        after: the fork, when it has done its work.

    Memory can be new, and then it was freed or is still there. It can also be a buffer from before
    the fork, which is shared until somebody writes to it: then it is the fork's own, or missing
    since. The largest of these counts, so that nothing is won by going from one to the other.
    """
    files = after.resident - after.anonymous
    new = after.peak - files - before.anonymous
    return max(new, after.own - INTERPRETER, before.anonymous - after.anonymous)
