"""Warnings that come up while a file is restored, gathered to be told with its result."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from slir.errors import SlirWarning

_NUMBER = re.compile(r"\d[\d.,]*(?:e[+-]?\d+)?")


@contextmanager
def caught() -> Iterator[Callable[[], tuple[str, ...]]]:
    """Gather warnings in place of showing them: give what tells their texts so far, each once.

    What differs from plane to plane of a stack in its numbers alone is told once, of the first of these planes.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SlirWarning)
        yield lambda: tuple(_summed_up([each.message for each in caught]))


@contextmanager
def about_plane(plane: int, planes: int) -> Iterator[None]:
    """Let warnings of the block name the plane that they are about, where there are several."""
    if planes == 1:
        yield
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SlirWarning)
        yield
    for each in caught:
        if isinstance(each.message, SlirWarning):
            each.message.plane = plane
        warnings.warn(each.message, stacklevel=3)


def _summed_up(told: Sequence[Warning | str]) -> list[str]:
    """The texts of warnings, those that differ in numbers alone summed up over planes."""
    groups: dict[str, list[tuple[str, int | None]]] = {}
    for each in told:
        text, plane = " ".join(str(each).split()), getattr(each, "plane", None)
        key = text if plane is None else _NUMBER.sub("#", text)
        if all(plane != other for _, other in groups.get(key, [])):
            groups.setdefault(key, []).append((text, plane))
    texts = []
    for members in groups.values():
        text, planes = members[0][0], [plane for _, plane in members if plane is not None]
        if not planes:
            texts.append(text)
            continue
        others = f" The same holds for {_plane_numbers(planes[1:])}." if planes[1:] else ""
        texts.append(f"Plane {planes[0]}: {text}{others}")
    return list(dict.fromkeys(texts))


def _plane_numbers(planes: Sequence[int]) -> str:
    """[1] -> "plane 1", [1, 2, 3, 7] -> "planes 1 to 3 and 7", in which numbers lie as they came: upwards."""
    runs: list[list[int]] = []
    for plane in planes:
        if runs and plane == runs[-1][-1] + 1:
            runs[-1].append(plane)
        else:
            runs.append([plane])
    parts = [f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
    listed = " and ".join((", ".join(parts[:-1]), parts[-1])) if len(parts) > 1 else parts[0]
    return f"plane{'s' if len(planes) > 1 else ''} {listed}"
