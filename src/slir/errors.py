"""What slir raises on bad input, and the one sentence that every such message is built from."""

from __future__ import annotations

import math
from typing import Any


def is_finite(value: Any) -> bool:
    """Whether this is a number, and neither NaN nor infinite nor too large for a float."""
    try:
        return math.isfinite(value)
    except (TypeError, ValueError, OverflowError):
        return False


class SlirError(Exception):
    """Base of everything that slir raises on purpose."""

    #: What the error was made from, where that is not its message: to be made again in another process.
    parts: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.parts, self.args)


class SlirWarning(UserWarning):
    """Something that will be done as asked, but that may not be what was meant.

    plane : the one that it is about, of a stack; None elsewhere. `slir.files.warning_log` says it beside the words.
    """

    plane: int | None = None


class InputError(SlirError, ValueError):
    """An argument that breaks a rule. The message names the argument, the rule, the value and the remedy."""

    def __init__(self, argument: str, rule: str, value: object, remedy: str):
        super().__init__(f"{argument} must {rule}, but it is {value}. {remedy}")
        self.argument, self.remedy = argument, remedy
        self.parts = (argument, rule, str(value), remedy)


class FileError(SlirError, OSError):
    """A file that cannot be read or written as asked. The message names the file, the reason and the remedy."""

    def __init__(self, path: object, reason: str, remedy: str):
        super().__init__(f"{path}: {reason}. {remedy}")
        self.path, self.remedy = str(path), remedy
        self.parts = (self.path, reason, remedy)


class FullError(SlirError, MemoryError):
    """Memory ran out even with the smallest chunks and tiles."""

    def __init__(self, device: str, reason: str):
        remedy = "Close what else uses it, or pass device='cpu'." if device != "cpu" else "Close what else uses it."
        super().__init__(f"the memory of {device} is full, even for the smallest pieces ({reason}). {remedy}")
        self.parts = (device, reason)


def _again(kind: type[SlirError], parts: tuple[str, ...], args: tuple[Any, ...]) -> SlirError:
    error = kind(*(parts or args))
    error.args = args  # the message may have been reworded since
    return error
