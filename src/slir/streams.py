"""Files restored: the planes of a source into a sink, each whole or, where it is large, window by window.

A stack is restored plane by plane. A plane of more than LARGE pixels is never held: what is decided once (noise,
colours) is told from a sample of it, and windows are read with their halo, restored, and written, band after band.

Pixels that are NaN are missing. They are filled in before anything else is restored, and are NaN again in the end;
inpainting is what fills them for good.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from slir import tasks
from slir.arrays import DataRange, canvas
from slir.cascade import expected_error, least_noise
from slir.compute import pick_device, sparing
from slir.errors import InputError, SlirWarning
from slir.io import Picture, Sink, Source
from slir.model import Model
from slir.operators import Downsample, Identity, Mask, Operator
from slir.restoration import Restoration, restore
from slir.tiles import Piece, cut, scaled, tile_side
from slir.treatment import Restored, Treatment, decide, sample

if TYPE_CHECKING:
    from slir.trust.explain import Explanation

LARGE = 2**24
"""Pixels of a plane, in and out, beyond which it is restored by windows."""

NO_ERRORS = f"planes of more than {LARGE // 10**6} megapixels are restored by windows, without one"

Window = tuple[slice, slice]
Progress = Callable[[int, int, str], None]
Numbers = float | tuple[float, ...] | None
Missing = Callable[[slice, slice], np.ndarray]


@dataclass(frozen=True, eq=False)
class Work:
    """What to do to each plane.

    whole: (picture, settings) -> `slir.tasks.Result`, for planes that fit into memory.
    task: "denoise", "deblur", "upsample" or "inpaint". own: that task's arguments, as `slir.tasks` names them, but for
    the mask. missing: (rows, cols) -> where pixels of a window are missing; None where NaN says it.
    sigma, data_range, model, device, seed: as for every task.
    observe: called as observe(plane, image) after each stage. keep: called as keep(plane, result) with the `Result` of
    each. Both are for planes that fit into memory.
    errors: called as errors(plane, error map, reason) for each plane; the map is None where there is none, the reason
    says why, or why it is not calibrated.
    """

    whole: Callable[[Picture, dict[str, Any]], Any]
    task: str
    own: dict[str, Any]
    sigma: float | str
    data_range: DataRange
    missing: Missing | None = None
    model: Model | None = None
    device: str | None = None
    seed: int = 0
    observe: Callable[[int, np.ndarray], None] | None = None
    keep: Callable[[int, tasks.Result], None] | None = None
    errors: Callable[[int, np.ndarray | None, str], None] | None = None

    @property
    def factor(self) -> int:
        return self.own["factor"] if self.task == "upsample" else 1

    def operator(self, size: tuple[int, int]) -> Operator:
        """B, but for inpainting, where every window has its own."""
        if self.task == "deblur":
            return tasks.blur(self.own["psf"], self.own["border"], size)
        return Downsample(**self.own, border="reflect") if self.task == "upsample" else Identity()

    def blank(self, pixels: np.ndarray, rows: slice, cols: slice) -> np.ndarray:
        """(h, w) true where pixels of a window are missing."""
        if self.missing is not None:
            return self.missing(rows, cols)
        if pixels.dtype.kind != "f":
            return np.zeros(pixels.shape[:2], bool)
        missing = ~np.isfinite(pixels)
        return missing.any(axis=-1) if pixels.ndim == 3 else missing


@dataclass(frozen=True)
class Found:
    """σ and the residual in pixel values: one number, or one a channel; of a stack, root mean squares of its planes."""

    sigma: Numbers
    residual: Numbers


def restore_file(source: Source, sink: Sink, work: Work, progress: Progress | None = None) -> Found:
    """Every plane of `source`, restored, into `sink`."""
    found = []
    for plane in range(source.planes):
        tell = None if progress is None else partial(_tell, progress, plane, source.planes)
        large = source.size[0] * source.size[1] * work.factor**2 > LARGE
        by = _by_windows if large and not _tied(work) else _whole
        if by is _by_windows and work.errors is not None:
            work.errors(plane, None, NO_ERRORS)
        found.append(by(source, plane, sink, work, tell))
    sigmas, residuals = zip(*found)
    return Found(_overall(sigmas), _overall(residuals))


def explain(source: Source, plane: int, work: Work, at: tuple[int, int], *, k: int) -> Explanation:
    """What the pixel `at` (row, col) of a restored plane would be made from. Nothing else of it is restored."""
    picture = source.read(plane)
    missing = work.blank(picture.pixels, slice(None), slice(None))
    settings: dict[str, Any] = {"data_range": work.data_range, "channel_axis": picture.channel_axis}
    if work.task == "inpaint":
        pixels: Any = tasks.blanked(picture.pixels, missing, picture.channel_axis)
        return tasks.explain_pixel(
            pixels, lambda shape: Mask(missing), work.sigma, at, k=k, model=work.model, **settings
        )
    pixels = _filled(picture.pixels, missing, settings)
    return tasks.explain_pixel(pixels, work.operator, work.sigma, at, k=k, model=work.model, **settings)


def _tied(work: Work) -> bool:
    """Whether far pixels depend on each other, so that no window can be restored alone."""
    circular = work.own.get("border") == "circular"
    return circular or (work.model is not None and work.model.splitting == "admm")


def _whole(source: Source, plane: int, sink: Sink, work: Work, progress: Progress | None) -> tuple[Any, Any]:
    """A plane that fits into memory."""
    picture = source.read(plane)
    missing = work.blank(picture.pixels, slice(None), slice(None))
    settings: dict[str, Any] = {
        "data_range": work.data_range,
        "channel_axis": picture.channel_axis,
        "device": work.device,
        "rng": work.seed,
    }
    filled = picture
    if work.task != "inpaint":
        filled = replace(picture, pixels=_filled(picture.pixels, missing, settings))
    asked = {"sigma": work.sigma, "model": work.model, "progress": progress or False, "return_info": True}
    look = None if work.observe is None else partial(work.observe, plane)
    result = work.whole(filled, {**settings, **asked, "observe": look})
    if work.keep is not None:
        work.keep(plane, result)
    gone = np.zeros_like(missing) if work.task == "inpaint" else missing
    if work.errors is not None:
        error = result.error_map
        error = None if error is None else _emptied(error, gone, work.factor)
        work.errors(plane, error, result.calibrated)
    pixels = _emptied(result.image, gone, work.factor)
    sink.write(picture.with_pixels(pixels, alpha=_alpha(picture, work)), plane=plane)
    return result.stats.get("sigma"), result.stats.get("residual")


def _by_windows(source: Source, plane: int, sink: Sink, work: Work, progress: Progress | None) -> tuple[Any, Any]:
    """A plane that need not fit into memory."""
    windows = _Windows(source, plane, work)
    treatment, operator = windows.treatment, windows.operator
    squares: list[np.ndarray] = []
    lead = treatment.model_for(operator, windows.device)
    # A mask differs from window to window, and reaches nowhere.
    shape_of = Identity() if isinstance(operator, Mask) else operator
    pieces = list(cut(source.size, shape_of, lead, tile_side(lead, windows.device)))
    for number, piece in enumerate(pieces):
        if progress is not None:
            progress(number, len(pieces), "restoring")
        picture, found = windows.restored(piece)
        rows, cols = scaled(piece.own, work.factor)
        sink.write(picture, plane=plane, rows=rows, cols=cols)
        squares.append(np.square(found) * np.prod(_sides(piece.own)))
    if progress is not None:
        progress(len(pieces), len(pieces), "restoring")
    sigmas, residuals = np.sqrt(np.sum(squares, axis=0) / (source.size[0] * source.size[1]))
    restored = Restored([], list(sigmas / windows.span), list(residuals / windows.span), [])
    for text in treatment.doubts(restored, operator, windows.span):
        warnings.warn(text, SlirWarning, stacklevel=4)
    return (sigmas, residuals) if source.colour else (sigmas[0], residuals[0])


class _Windows:
    """A plane that is read, restored and told about by windows.

    treatment: decided from a sample. operator: B of the whole; for inpainting, that of the sample.
    """

    def __init__(self, source: Source, plane: int, work: Work):
        self.source, self.plane, self.work = source, plane, work
        self.device = pick_device(work.device)
        self.axis = -1 if source.colour else None
        self.generator = torch.Generator().manual_seed(work.seed)
        blocks, holes = zip(*(self._block(window) for window in sample(source.size)))
        frame, array = canvas(np.concatenate(blocks), data_range=work.data_range, channel_axis=self.axis)
        self.span = frame.span
        self.operator = work.operator(source.size)
        if work.task == "inpaint" and not np.concatenate(holes).all():
            self.operator = Mask(np.concatenate(holes))
        planes = frame.planes(array, self.device)
        self.treatment: Treatment = decide(planes, self.operator, work.sigma, frame.span, work.model)
        self.units = [self._unit(noise) for noise in self.treatment.noises()]

    def _block(self, window: Window) -> tuple[np.ndarray, np.ndarray]:
        """Pixels of a window, an inconspicuous value where they are missing; and where that is."""
        pixels = self.source.read(self.plane, *window).pixels
        missing = self.work.blank(pixels, *window)
        return _covered(pixels, missing), missing

    def _unit(self, noise: float) -> float | None:
        """Of the loop, the same for all windows."""
        if not self.treatment.model_for(self.operator, self.device).learnt:
            return None
        missing = isinstance(self.operator, Mask)
        shape = tuple(self.operator.missing.shape) if isinstance(self.operator, Mask) else self.source.size
        size = (shape[0], shape[1])
        return expected_error(self.operator, least_noise(noise), size if missing else self.operator.x_shape(size))

    def restored(self, piece: Piece) -> tuple[Picture, np.ndarray]:
        """What a piece answers for, and (2, C): σ and the residual of each channel, in pixel values."""
        picture = self.source.read(self.plane, *piece.seen)
        missing = self.work.blank(picture.pixels, *piece.seen)
        own = replace(
            picture,
            pixels=picture.pixels[piece.within],
            alpha=None if picture.alpha is None else picture.alpha[piece.within],
        )
        nothing = np.zeros((2, 3 if self.source.colour else 1))
        if self._is_done(missing[piece.within]):
            return own, nothing
        factor = self.work.factor
        within = scaled(piece.within, factor)
        alpha = _alpha(picture, self.work)
        alpha = None if alpha is None else alpha[within]
        if missing.all():
            if self.work.task == "inpaint":
                sides = "×".join(str(side) for side in missing.shape)
                remedy = "Crop the image around the hole, or make it smaller first."
                raise InputError("mask", f"leave known pixels in every window of {sides}", "true in one", remedy)
            empty = np.full((*_sides(within), *picture.pixels.shape[2:]), np.nan, own.pixels.dtype)
            return own.with_pixels(empty, alpha=alpha), nothing
        pixels, found = self._restored(picture, missing, piece)
        return own.with_pixels(pixels[within], alpha=alpha), found

    def _is_done(self, missing: np.ndarray) -> bool:
        """Whether the pixels that a piece answers for are to stay as they are."""
        if self.work.task == "inpaint":
            return not any(self.treatment.sigmas) and not missing.any()
        return self.treatment.leaves(self.operator)

    def _restored(self, picture: Picture, missing: np.ndarray, piece: Piece) -> tuple[np.ndarray, np.ndarray]:
        """All that is seen of a piece, on x's pixels."""
        settings: dict[str, Any] = {"data_range": self.work.data_range, "channel_axis": self.axis}
        inpaint = self.work.task == "inpaint"
        fill = _covered if inpaint else partial(_filled, settings={**settings, "device": self.work.device})
        filled = fill(picture.pixels, missing)
        operator = Mask(missing) if inpaint else piece.operator
        assert operator is not None  # `_tied` has seen to it
        frame, array = canvas(filled, **settings)
        shape = picture.size

        def one(plane: Tensor, model: Model, noise: float, number: int) -> Restoration:
            unit = self.units[number]
            own = partial(restore, plane, operator, model, sigma=noise, unit=unit, generator=self.generator)
            outcome = sparing(own, self.device)
            return replace(outcome, x=operator.crop(outcome.x, shape))

        restored = self.treatment.restore(frame.planes(array, self.device), self.operator, one)
        pixels = np.asarray(frame.image(restored.planes))
        if inpaint:
            kept = missing if self.axis is None else missing[..., None]
            pixels = pixels if any(restored.sigmas) else np.where(kept, pixels, picture.pixels)
        else:
            pixels = _emptied(pixels, missing, self.work.factor)
        return pixels, np.array([restored.sigmas, restored.residuals]) * self.span


def _covered(pixels: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """An inconspicuous value where pixels are missing."""
    if not missing.any():
        return pixels
    known = pixels[~missing]
    covered = pixels.copy()
    covered[missing] = known.mean(axis=0) if known.size else 0
    return covered


def _filled(pixels: np.ndarray, missing: np.ndarray, settings: dict[str, Any]) -> np.ndarray:
    """Missing pixels filled in, so that what is to be restored has no holes."""
    if not missing.any() or missing.all():
        return _covered(pixels, missing)
    return tasks.inpaint(pixels, missing, **settings)


def _emptied(pixels: np.ndarray, missing: np.ndarray, factor: int) -> np.ndarray:
    """NaN again where there was nothing."""
    if not missing.any():
        return pixels
    pixels[missing.repeat(factor, axis=0).repeat(factor, axis=1)] = np.nan
    return pixels


def _alpha(picture: Picture, work: Work) -> np.ndarray | None:
    """Alpha on the fine pixels, bilinearly, where `slir.upsample` puts them; None where it stays as it is.

    A coarse pixel covers its factor × factor fine ones; with a Gaussian or a kernel it sits on the first of them.
    """
    alpha, factor = picture.alpha, work.factor
    if alpha is None or factor == 1:
        return alpha
    from scipy.ndimage import map_coordinates

    shift = (factor - 1) / 2 if isinstance(work.own.get("antialias"), str) else 0.0
    places = [(np.arange(side * factor) - shift) / factor for side in alpha.shape]
    grid = np.meshgrid(*places, indexing="ij")
    values = map_coordinates(alpha.astype(np.float64), grid, order=1, mode="nearest")
    return (np.rint(values) if alpha.dtype.kind in "iu" else values).astype(alpha.dtype)


def _sides(window: Window) -> tuple[int, int]:
    rows, cols = window
    return rows.stop - rows.start, cols.stop - cols.start


def _overall(found: Sequence[Any]) -> Numbers:
    """Root mean square over planes of a number, or of one a channel; None where one of them has none."""
    if any(each is None for each in found):
        return None
    values = np.sqrt(np.mean(np.square(np.asarray(found, np.float64)), axis=0))
    return float(values) if values.ndim == 0 else tuple(float(value) for value in values)


def _tell(progress: Progress, plane: int, planes: int, done: int, total: int, what: str) -> None:
    """Progress of one plane as a part of the whole."""
    progress(plane * total + done, planes * total, what)
