"""A problem y = Bx + ε: which task it is, what B is made of, and how strong the noise is.

All that depends on the task is asked of its description, a `Task`. `slir.tasks` holds the four that slir has.

    problem = Problem("deblur", sigma=2.5, psf=psf)
    problem.operator((480, 640))                        # B
    problem.replace(sigma="auto")                       # another one
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from slir.errors import InputError
from slir.preprocessing.amount import ALL, Amount

if TYPE_CHECKING:
    from slir.kernel.degradations import Family
    from slir.operators import Operator

Size = tuple[int, int]
Options = Mapping[str, Any]
POISSON_GAUSSIAN = "poisson-gaussian"
POISSON = "poisson"
"""In the place of σ, for volumes: values count photons."""

NAN = "nan"
"""In the place of a mask: pixels that are NaN are missing."""

REQUIRED: Any = object()
"""In the place of a default: the option has to be given."""


class Task(ABC):
    """What is to be undone. A new task is a subclass that `register` has seen.

    name: of the task, its function and its command. done: the past participle of it, for messages and names of files.
    sigma: the noise that is assumed by default. usual_sigma: noise that is common, for studies of the theory.
    grows: whether noise may grow with brightness ("poisson-gaussian").
    masked: whether missing pixels are what is restored. Every window of an image then has a mask of its own.
    options: what B is made of, with defaults. particular: the option that turns "any B of the task" into one.
    """

    name: str
    done: str
    sigma: float | str = "auto"
    usual_sigma: str = "0"
    grows: bool = False
    masked: bool = False
    options: ClassVar[Options] = {}
    particular: str | None = None

    @abstractmethod
    def operator(self, options: Options, size: Size | None) -> Operator:
        """B for a y of this size; None: for any. Where the task is masked, the options hold the mask, or None."""

    @abstractmethod
    def degradations(self, options: Options, sigma: tuple[float, float] | None) -> Family:
        """What a model for the whole task learns from. sigma: lowest and highest, range 1; None for all that is likely.
        options: those that even such a model is bound to."""

    def scale(self, options: Options) -> float:
        """How many times as high and as wide as y the result is."""
        return 1

    def at_size(self, options: Options, size: Size) -> Options:
        """The options for a y of this size, where they depend on it."""
        return options

    def at_whole_scale(self, options: Options) -> Options:
        """The options with the next whole scale."""
        return options

    def amount(self, options: Options) -> Amount:
        """How much of the noise is removed."""
        return ALL

    def volumetric(self, options: Options) -> bool:
        """Whether stacks are restored as volumes (`slir.volumes`), not plane by plane."""
        return False

    def as_planes(self, options: Options) -> Options:
        """The options for each plane of a volume whose planes have nothing to do with each other."""
        return options

    def check(self, options: Options) -> None:  # noqa: B027  (not every task has a rule)
        """Raise InputError for options that are wrong whatever the image."""


_TASKS: dict[str, Task] = {}


def register(kind: type[Task]) -> type[Task]:
    """Make a task known, under its name; for use as a decorator."""
    _TASKS[kind.name] = kind()
    return kind


def tasks() -> dict[str, Task]:
    """All tasks by their names."""
    import slir.tasks  # noqa: F401  (registers those of slir)

    return _TASKS


def task_named(name: str) -> Task:
    known = tasks()
    if name not in known:
        raise InputError("task", f"be one of {', '.join(known)}", repr(name), "Pick one of these.")
    return known[name]


class Problem:
    """A task with its settings.

    sigma: noise in pixel values, as "10%" of their range, "auto", or "poisson-gaussian"; by default the task's.
    mask: where pixels are missing, for the tasks that fill them in: (H, W) array, path of an image, or "nan".
    options: what B is made of, as the task names it. Those that are None take their defaults.
    """

    def __init__(self, task: str, *, mask: Any = None, **options: Any):
        self.task, self.mask = task_named(task), mask
        self.sigma = options.pop("sigma", self.task.sigma)
        unknown = options.keys() - self.task.options.keys()
        if unknown:
            raise TypeError(f"{task} takes no {', '.join(sorted(unknown))}")
        given = {name: value for name, value in options.items() if value is not None}
        self.options: dict[str, Any] = {**self.task.options, **given}
        for name, value in self.options.items():
            if value is REQUIRED:
                raise InputError(name, f"be given to {task}", "missing", f"slir.{name} makes one.")
        if self.task.masked and mask is None:
            raise InputError("mask", f"be given to {task}", "missing", f"Pass an image, or {NAN!r}.")
        told = str(self.sigma).strip().lower()
        if told == POISSON and not self.volumetric:
            remedy = f"{POISSON_GAUSSIAN!r} finds how the noise of planes grows with brightness."
            raise InputError("sigma", "be auto, a number or a percentage but for volumes", repr(self.sigma), remedy)
        if told == POISSON_GAUSSIAN and not (self.task.grows or self.volumetric):
            remedy = "Denoise first with it, then restore the result with a third of the sigma that denoising prints."
            raise InputError("sigma", f"be auto, a number or a percentage to {task}", repr(self.sigma), remedy)
        self.task.check(self.options)

    @classmethod
    def of(cls, task: str, *, sigma: float | str | None = None, mask: Any = None, **options: Any) -> Problem:
        """A problem from the options of all tasks, of which it takes its own."""
        kind = task_named(task)
        own = {name: value for name, value in options.items() if name in kind.options}
        own |= {} if sigma is None else {"sigma": sigma}
        return cls(task, mask=mask if kind.masked else None, **own)

    def replace(self, **changes: Any) -> Problem:
        """The same with other settings."""
        return Problem(self.task.name, **{"sigma": self.sigma, "mask": self.mask, **self.options, **changes})

    def operator(self, size: Size | None = None) -> Operator:
        """B for a y of this size. That of a mask in a file stands for those of the windows."""
        if not self.task.masked:
            return self.task.operator(self.options, size)
        mask = None if isinstance(self.mask, str | Path) else self.mask
        return self.task.operator({**self.options, "mask": mask}, size)

    @property
    def scale(self) -> float:
        """How many times as high and as wide as y the result is."""
        return self.task.scale(self.options)

    @property
    def volumetric(self) -> bool:
        """Whether stacks are restored as volumes."""
        return self.task.volumetric(self.options)

    def as_planes(self) -> Problem:
        """The problem of each plane of a volume whose planes have nothing to do with each other."""
        return self.replace(**self.task.as_planes(self.options))

    @property
    def amount(self) -> Amount:
        """How much of the noise is removed."""
        return self.task.amount(self.options)

    @property
    def factor(self) -> int:
        """How many times as high and as wide as y x is: the next whole number."""
        return math.ceil(self.scale)

    @property
    def centred(self) -> bool:
        """Whether a pixel of y lies in the middle of the pixels of x that it stands for, not on the first of them."""
        return isinstance(self.options.get("antialias", ""), str)

    def at_size(self, size: Size) -> Problem:
        """The problem for a y of this size, where settings depend on it."""
        return self.replace(**self.task.at_size(self.options, size))

    def at_whole_scale(self) -> Problem:
        """The problem whose result has x's pixels."""
        return self.replace(**self.task.at_whole_scale(self.options))


def parse_sigma(sigma: float | str) -> tuple[str, float | str]:
    """("name", "auto"), ("value", 25.0) or ("percent", 10.0)."""
    remedy = "Pass 25 (pixel values), 10% (of their range), or auto."
    if isinstance(sigma, str):
        text = sigma.strip().lower()
        if text in ("auto", POISSON, POISSON_GAUSSIAN):
            return "name", text
        kind, body = ("percent", text.removesuffix("%")) if text.endswith("%") else ("value", text)
        try:
            value = float(body)
        except ValueError:
            raise InputError("sigma", "be a number or a percentage", repr(sigma), remedy) from None
    else:
        kind, value = "value", float(sigma)
    if not (math.isfinite(value) and value >= 0):
        raise InputError("sigma", "be finite and not negative", repr(sigma), remedy)
    return kind, value
