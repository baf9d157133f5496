"""Cutting work over patches into chunks, so that nothing of size m × P is ever held."""

from __future__ import annotations

from collections.abc import Iterator


def chunks(total: int, rows: int) -> Iterator[slice]:
    """0 … total in slices of at most `rows`, as even as they can be."""
    pieces = max(1, -(-total // rows))
    for piece in range(pieces):
        yield slice(total * piece // pieces, total * (piece + 1) // pieces)
