"""What every peer has in common: a name, settings, the kinds of case it takes, and a fit that is kept between runs."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from slir.errors import SlirError
from slir_bench.protocols import Case, Group
from slir_bench.results import fingerprint, write_whole

Arrays = dict[str, np.ndarray]


class MissingPackageError(SlirError, ImportError):
    """A peer's package is not installed."""


def require(module: str) -> ModuleType:
    """Import a package that only the benchmark needs."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingPackageError(f"{module} cannot be imported. Run: pip install 'slir-bench[peers]'") from error


class Peer:
    """A method to compare with. Subclasses give `name`, `kinds`, `restore`, and `fit` where there is something to fit.

    Everything that changes the outcome stands in `settings`, whose fingerprint tells results apart. `cache` is a folder
    for what was fitted; without one, each run fits anew.
    """

    name = ""
    kinds: frozenset[str] = frozenset()
    revision = 1
    """Raised when the code, not a setting, changes the outcome: part of the settings, so old results are told apart."""
    images = 0
    """How many training images `fit` is given; 0 where there is nothing to fit."""

    def __init__(self, settings: dict[str, Any] | None = None, *, device: str = "cpu", cache: Path | None = None):
        self.settings = (settings or {}) | {"revision": self.revision}
        self.device = device
        self.cache = cache
        self.model: Arrays = {}

    def handles(self, case: Case) -> bool:
        """Peers stay out of the composition table, which is about the bank of the paper's method."""
        return case.kind in self.kinds and case.table not in ("composition", "colour")

    def fit(self, images: Sequence[np.ndarray], case: Case) -> Arrays:
        """What `restore` needs, from clean images and one case that shows the degradation; never from its `clean`."""
        return {}

    def fit_key(self, case: Case) -> dict[str, Any]:
        """What the fit depends on beside the training images: the settings, unless a subclass knows better."""
        return self.settings

    def prepare(self, group: Group) -> None:
        """Fit for this group, or read the fit of an earlier run."""
        if not self.images or not group.cases:
            return
        case = group.cases[0]
        key = {"revision": self.revision, "key": self.fit_key(case), "files": [path.name for path in group.train]}
        path = self.cache / f"{self.name.lower()}-{fingerprint(key)}.safetensors" if self.cache else None
        if path is not None and path.exists():
            try:
                self.model = load_file(path)
                return
            except SafetensorError:
                pass  # a broken file is fitted anew and replaced
        self.model = self.fit(group.train_images(self.images), case)
        if path is not None:
            write_whole(path, save({name: np.ascontiguousarray(array) for name, array in self.model.items()}))

    def restore(self, case: Case) -> np.ndarray:
        """The restored image, of the shape of `case.clean` or of `case.target`."""
        raise NotImplementedError
