"""Codecs that are left out where files are not trusted: rarely used, decoded by libraries that few people attack.

They are left out where the environment has SLIR_UNTRUSTED=1, as it has in the processes of `slir serve`.
"""

from __future__ import annotations

import os

_SWITCH = "SLIR_UNTRUSTED"


def leave_out_rare_codecs() -> None:
    """From here on, unless the environment says otherwise."""
    os.environ.setdefault(_SWITCH, "1")


def check_rare(codec: str) -> None:
    """Raise ValueError where this codec, which is a rare one, is left out."""
    if os.environ.get(_SWITCH, "0") not in ("", "0"):
        raise ValueError(f"is compressed by {codec}, which is left out where files are not trusted ({_SWITCH}=1)")
