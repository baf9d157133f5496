"""Names that are on their way out: they work as before, and say what to write instead.

    @renamed_argument("width", "size", since="0.3", until="0.5")
    def gaussian(sigma, size=None): ...

The policy is in docs/releases.md. A test fails once a version has come that should no longer have them.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from slir.errors import InputError, SlirWarning

P = ParamSpec("P")
T = TypeVar("T")
PENDING: dict[str, str] = {}
"""What is deprecated, by `module.function(argument)` or `module.name`, and the version that no longer has it."""


class SlirDeprecationWarning(SlirWarning, FutureWarning):
    """Something that works now and will not in a later version. The message names the version and the remedy."""


def deprecated(name: str, instead: str, *, since: str, until: str, stacklevel: int = 2) -> None:
    """Warn the caller of the caller that `name` goes away with version `until`."""
    message = f"{name} is deprecated since slir {since} and will be gone in {until}. Use {instead}."
    warnings.warn(message, SlirDeprecationWarning, stacklevel=stacklevel + 1)


def renamed_argument(old: str, new: str, *, since: str, until: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let a function take a keyword by its old name too. Type checkers and signatures show the new one only."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        called = function.__qualname__
        PENDING[f"{function.__module__}.{called}({old})"] = until

        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
            if old in kwargs:
                if new in kwargs:
                    raise InputError(
                        old, f"not be passed beside {new}, its new name", "passed too", f"Pass {new} only."
                    )
                deprecated(f"the argument {old} of {called}", new, since=since, until=until)
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return wrapper

    return decorate


def renamed(function: Callable[P, T], old: str, *, since: str, until: str) -> Callable[P, T]:
    """The function under its old name: `smooth = renamed(denoise, "smooth", since="0.3", until="0.5")`."""
    PENDING[f"{function.__module__}.{old}"] = until

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        deprecated(old, function.__qualname__, since=since, until=until)
        return function(*args, **kwargs)

    wrapper.__name__ = wrapper.__qualname__ = old
    return wrapper
