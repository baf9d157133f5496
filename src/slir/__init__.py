"""slir: structured and localized image restoration.

    restored = slir.denoise(image, sigma=25)
    restored = slir.deblur(image, psf, sigma=2.5)
    restored = slir.upsample(image, 2)
    restored = slir.inpaint(image, mask)

Arrays in, arrays out: NumPy or torch, grey or colour, same dtype and range. `slir.fit` learns a model from pictures of
your own. The names below are imported when they are first used, so `import slir` itself is quick.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

_WAITING = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY"}
"""What OpenMP takes from the environment, when torch is imported, about threads that wait for each other."""

if not _WAITING & os.environ.keys():
    # They sleep. By default they spin for milliseconds, which beside other work multiplies the time by up to 25.
    # Processes that this one starts inherit it.
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"

_HOMES = {
    "denoise": "slir.tasks",
    "deblur": "slir.tasks",
    "upsample": "slir.tasks",
    "inpaint": "slir.tasks",
    "fit": "slir.fitting",
    "paper_model": "slir.fitting",
    "calibrate": "slir.trust.calibrate",
    "load": "slir.io.models",
    "restore": "slir.inverse",
    "develop": "slir.development",
    "Model": "slir.model",
    "InputError": "slir.errors",
    "FileError": "slir.errors",
    "SlirError": "slir.errors",
    "SlirWarning": "slir.errors",
}
_MODULES = ("operators", "weights", "losses", "solvers", "theory", "noise", "psf", "patches", "bank", "descriptors")

__all__ = [*_HOMES, *_MODULES, "__version__"]

if TYPE_CHECKING:
    from slir import bank as bank
    from slir import descriptors as descriptors
    from slir import losses as losses
    from slir import noise as noise
    from slir import operators as operators
    from slir import patches as patches
    from slir import psf as psf
    from slir import solvers as solvers
    from slir import theory as theory
    from slir import weights as weights
    from slir.development import develop as develop
    from slir.errors import FileError as FileError
    from slir.errors import InputError as InputError
    from slir.errors import SlirError as SlirError
    from slir.errors import SlirWarning as SlirWarning
    from slir.fitting import fit as fit
    from slir.fitting import paper_model as paper_model
    from slir.inverse import restore as restore
    from slir.io.models import load as load
    from slir.model import Model as Model
    from slir.tasks import deblur as deblur
    from slir.tasks import denoise as denoise
    from slir.tasks import inpaint as inpaint
    from slir.tasks import upsample as upsample
    from slir.trust.calibrate import calibrate as calibrate

    __version__: str
else:  # type checkers would take it for any name at all

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            value = getattr(import_module(_HOMES[name]), name)
        elif name in _MODULES:
            value = import_module(f"slir.{name}")
        elif name == "__version__":
            value = _installed_version()
        else:
            raise AttributeError(f"module 'slir' has no attribute {name!r}")
        globals()[name] = value
        return value


def _installed_version() -> str:
    """The version of the tag that was installed, so there is one place that says it: the package's own metadata."""
    from importlib.metadata import PackageNotFoundError, version  # 20 ms that `import slir` need not take

    try:
        return version("slir")
    except PackageNotFoundError:
        return "0+unknown"  # the source tree is on the path, but nothing was installed


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
