"""One layer restored: what is asked for, done plane by plane."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from slir.result import Result

Index = tuple[int, ...]
Report = Callable[[int, int], None]


@dataclass(frozen=True)
class Request:
    """What to do, as the functions of slir take it.

    own: what this task alone takes: `psf` and `border`, `factor` and `antialias`. missing: for inpainting, true where
    a pixel is missing, (H, W) for all planes or one plane each; None for NaN.
    """

    task: str
    sigma: float | str = "auto"
    data_range: float | tuple[float, float] | None = None
    model: Path | None = None
    device: str = "cpu"
    own: dict[str, Any] = field(default_factory=dict)
    missing: np.ndarray | None = None

    @property
    def factor(self) -> int:
        return self.own.get("factor", 1)

    def record(self) -> dict[str, Any]:
        """The settings in plain words and numbers, for the metadata of a layer."""
        own = {name: np.asarray(value).tolist() if name == "psf" else value for name, value in self.own.items()}
        model = None if self.model is None else str(self.model)
        told = {"task": self.task, "sigma": self.sigma, "data_range": self.data_range, "model": model}
        return told | {"device": self.device} | own


@dataclass(frozen=True)
class Planes:
    """What is to be restored: pixels (…, H, W), with `rgb` (…, H, W, 3 or 4), in memory or lazy.

    chosen: which planes, along the axes before the last two; by default all.
    """

    pixels: Any
    rgb: bool = False
    chosen: tuple[range, ...] | None = None

    @property
    def sides(self) -> tuple[int, int]:
        height, width = self.pixels.shape[-3:-1] if self.rgb else self.pixels.shape[-2:]
        return height, width

    @property
    def lead(self) -> tuple[range, ...]:
        if self.chosen is not None:
            return self.chosen
        return tuple(range(length) for length in self.pixels.shape[: -3 if self.rgb else -2])

    def __getitem__(self, at: Index) -> np.ndarray:
        return np.asarray(self.pixels[at])


@dataclass(frozen=True, eq=False)
class Restored:
    """image: as the pixels that came, of the planes that were chosen. error: (…, H, W), the root mean square error to
    expect, of colours over the channels; None where it was not asked for or the model does not know it. results: by
    the place of their planes in `image`, for questions about pixels."""

    image: np.ndarray
    error: np.ndarray | None
    results: dict[Index, Result]
    request: Request

    @property
    def seconds(self) -> float:
        return sum(result.stats["seconds"] for result in self.results.values())

    @property
    def sigma(self) -> float:
        """The noise that was found or told, over planes and channels."""
        found = [np.square(result.stats["sigma"]).mean() for result in self.results.values()]
        return float(np.sqrt(np.mean(found)))


def restore(planes: Planes, request: Request, report: Report, *, errors: bool = False) -> Restored:
    """Restore the chosen planes one by one. report(done, total) is called before each stage; what it raises ends it."""
    lead = planes.lead
    places = list(product(*(range(len(axis)) for axis in lead)))
    image: np.ndarray | None = None
    maps: list[np.ndarray | None] = []
    results: dict[Index, Result] = {}
    for number, place in enumerate(places):
        at = tuple(axis[own] for axis, own in zip(lead, place))

        def tell(done: int, total: int, what: str, number: int = number) -> None:
            report(number * total + done, len(places) * total)

        plane = planes[at]
        result = _restored(plane, request, at, tell, rgb=planes.rgb)
        whole = np.asarray(result.image)
        whole = _with_alpha(whole, plane, request.factor) if planes.rgb else whole
        if image is None:
            image = np.empty((*(len(axis) for axis in lead), *whole.shape), whole.dtype)
        image[place] = whole
        results[place] = _kept(result, image[place][..., :3] if planes.rgb else image[place])
        maps.append(_grey(result.error_map) if errors else None)
    assert image is not None  # napari's layers have a plane at least
    known = [own for own in maps if own is not None]
    error = None
    if len(known) == len(places):
        error = np.stack(known).reshape(*(len(axis) for axis in lead), *known[0].shape)
    return Restored(image, error, results, request)


def _kept(result: Result, image: np.ndarray) -> Result:
    """A result for questions to come: its pixels are those of the layer, and nothing of it stays on a GPU."""
    outlook = result.outlook
    if outlook is not None:
        outlook = replace(outlook, errors=[error.cpu() for error in outlook.errors])
    return replace(result, image=image, outlook=outlook)


def _restored(plane: np.ndarray, request: Request, at: Index, tell: Callable, *, rgb: bool) -> Result:
    """One plane, (H, W) or (H, W, C)."""
    import slir

    colours = plane[..., :3] if rgb else plane
    told: dict[str, Any] = {
        "sigma": request.sigma,
        "data_range": request.data_range,
        "model": request.model,
        "device": request.device,
        "channel_axis": -1 if rgb else None,
        "progress": tell,
        "return_info": True,
    }
    if request.task == "inpaint":
        return slir.inpaint(colours, _missing(colours, request, at, rgb=rgb), **told)
    return getattr(slir, request.task)(colours, **request.own, **told)


def _missing(plane: np.ndarray, request: Request, at: Index, *, rgb: bool) -> np.ndarray:
    if request.missing is None:
        unknown = ~np.isfinite(plane)
        return unknown.any(-1) if rgb else unknown
    return request.missing if request.missing.ndim == 2 else request.missing[at]


def _with_alpha(colours: np.ndarray, plane: np.ndarray, factor: int) -> np.ndarray:
    """The restored colours with the transparency that came; it is no picture, so it is at most enlarged."""
    if plane.shape[-1] == 3:
        return colours
    alpha = plane[..., 3]
    if factor > 1:
        from scipy.ndimage import zoom

        alpha = zoom(alpha, factor, order=1, mode="nearest", grid_mode=True)
    return np.concatenate([colours, alpha[..., None].astype(colours.dtype)], axis=-1)


def _grey(error: Any) -> np.ndarray | None:
    """An error map as one plane: of colours the root mean square."""
    if error is None or error.ndim == 2:
        return error
    return np.sqrt(np.square(error).mean(-1))
