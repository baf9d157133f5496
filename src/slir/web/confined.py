"""Processes that give up their right to write."""

from __future__ import annotations

import contextlib
import ctypes
import struct
import sys

_CREATE_RULESET, _RESTRICT_SELF, _VERSION = 444, 446, 1
_NO_NEW_PRIVILEGES = 38
_RIGHTS = {1: 0b1_1111_1111_0010, 2: 1 << 13, 3: 1 << 14}
"""By the version of Landlock: writing, removing and making anything; then moving between folders; then truncating."""


def write_nothing() -> None:
    """From here on this thread, and those that it starts, cannot make, change, move or remove files.

    Linux has Landlock for that. Where it is missing, a limit on the size of files keeps them from growing.
    """
    with contextlib.suppress(ImportError, ValueError, OSError):  # Windows
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if sys.platform == "linux":
        _landlock()


def _landlock() -> None:
    system = ctypes.CDLL(None, use_errno=True)
    version = system.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)
    denied = sum(rights for since, rights in _RIGHTS.items() if since <= version)
    if not denied:
        return
    ruleset = system.syscall(_CREATE_RULESET, struct.pack("=Q", denied), ctypes.c_size_t(8), 0)
    if ruleset >= 0 and system.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0:
        system.syscall(_RESTRICT_SELF, ruleset, 0)
