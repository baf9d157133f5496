"""Options that several commands share, as the fields of a dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_type_hints


def spell_out(function: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function one of whose parameters is a dataclass: its fields become options in its place.

    What has no default comes first.
    """
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters
    (group,) = (name for name in parameters if is_dataclass(hints[name]))
    kind: Any = hints[group]
    options: list[inspect.Parameter] = []
    for name, parameter in parameters.items():
        options += _fields_of(kind) if name == group else [_option(name, parameter.default, hints[name])]
    options.sort(key=lambda option: option.default is not inspect.Parameter.empty)

    def command(**given: Any) -> None:
        function(**{group: kind(**{field.name: given.pop(field.name) for field in fields(kind)})}, **given)

    command.__name__, command.__doc__, command.__module__ = function.__name__, function.__doc__, function.__module__
    command.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    command.__annotations__ = {option.name: option.annotation for option in options}
    return command


def _fields_of(kind: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        _option(field.name, inspect.Parameter.empty if field.default is MISSING else field.default, hints[field.name])
        for field in fields(kind)
    ]


def _option(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
