"""The Linux system calls by which a worker gets walls of its own (see `warm`).

Python 3.11 has none of them. Each function says no with an OSError.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWPID = 0x00020000, 0x08000000, 0x20000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 1 << 18
_PR_SET_PDEATHSIG = 1
_CAPABILITY_VERSION_3 = 0x20080522


@cache
def _libc() -> ctypes.CDLL:
    """Loaded when it is needed: this module is imported on systems that have none of it."""
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Leave the namespaces named by `flags` for new ones."""
    _checked(_libc().unshare(flags), "unshare")


def keep_mounts_private() -> None:
    """Let no mount made from here on be seen outside of this namespace."""
    _checked(_libc().mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "mount /")


def mount_tmpfs(path: str, megabytes: int, mode: str = "1777") -> None:
    """An empty folder in memory, of limited size."""
    options = f"size={megabytes}m,mode={mode}".encode()
    flags = _MS_NOSUID | _MS_NODEV
    _checked(_libc().mount(b"tmpfs", path.encode(), b"tmpfs", flags, options), f"mount {path}")


def mount_private(path: str, megabytes: int, kept: Sequence[str]) -> None:
    """An empty folder in place of `path`, in which what `kept` names stays where it is."""
    inside = [k for k in kept if k.startswith(f"{path}/")]
    held = [(k, os.open(k, os.O_PATH)) for k in inside]
    mount_tmpfs(path, megabytes)
    for folder, descriptor in held:
        os.makedirs(folder, exist_ok=True)
        source = f"/proc/self/fd/{descriptor}".encode()
        flags = _MS_BIND | _MS_REC
        _checked(_libc().mount(source, folder.encode(), None, flags, None), f"mount {folder}")
        os.close(descriptor)


def mount_proc() -> None:
    """A view of this process namespace; an empty one where the system forbids that."""
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    try:
        _checked(_libc().mount(b"proc", b"/proc", b"proc", flags, None), "mount /proc")
    except PermissionError:
        # In a user namespace a partly covered /proc cannot be mounted anew. The old one shows
        # processes outside of this worker's walls, so it has to go.
        mount_tmpfs("/proc", 1, "0555")


def die_with_parent() -> None:
    """End this process when its parent ends."""
    _checked(_libc().prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0), "prctl")


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def drop_capabilities() -> None:
    """Give up all privileges, for good: bubblewrap has seen to it that none can be gained."""
    header, nothing = _Header(_CAPABILITY_VERSION_3, 0), (_Data * 2)()
    _checked(_libc().capset(ctypes.byref(header), ctypes.byref(nothing)), "capset")
