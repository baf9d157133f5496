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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from slir.compute import pick_device
from slir.errors import InputError, SlirWarning
from slir.estimator.tiling import Piece, cut, scale_window, tile_side
from slir.files.warning_log import about_plane
from slir.io import Picture, Sink, Source
from slir.model import Model
from slir.noise import estimate_sigma
from slir.operators import Mask, Operator
from slir.preprocessing.arrays import DataRange
from slir.preprocessing.treatment import Restored, Treatment, sample
from slir.preprocessing.windows import Decision, RestoredWindow, decide_once, restore_window
from slir.problem import Problem
from slir.restoration import Info, Settings, explain_pixel, restore_image
from slir.result import UNTOUCHED, Result, Uncertainty

if TYPE_CHECKING:
    from slir.trust.explain import Explanation

LARGE = 2**24
"""Pixels of a plane, in and out, beyond which it is restored by windows."""

Window = tuple[slice, slice]
Progress = Callable[[int, int, str], None]
Numbers = float | tuple[float, ...] | None
Missing = Callable[[slice, slice], np.ndarray]


@dataclass(frozen=True, eq=False)
class Work:
    """What to do to each plane.

    problem: of a whole scale, its sigma "auto", "poisson-gaussian" or in pixel values.
    missing: (rows, cols) -> where pixels of a window are missing; None where NaN says it.
    data_range, model, device, seed: as for every task.
    observe: called as observe(plane, image) after each stage. keep: called as keep(plane, result) with the `Result` of
    each. Both are for planes that fit into memory.
    errors: called as errors(plane, uncertainty, window) with the `slir.result.Uncertainty` of each plane, or of each
    window of it (None: all). level: of its intervals, between 0 and 1; None for none.
    """

    problem: Problem
    data_range: DataRange
    missing: Missing | None = None
    model: Model | None = None
    device: str | None = None
    seed: int = 0
    observe: Callable[[int, np.ndarray], None] | None = None
    keep: Callable[[int, Result], None] | None = None
    errors: Callable[[int, Uncertainty, Window | None], None] | None = None
    level: float | None = None

    def blank(self, pixels: np.ndarray, rows: slice, cols: slice) -> np.ndarray:
        """(h, w) true where pixels of a window are missing."""
        if self.missing is not None:
            return self.missing(rows, cols)
        if pixels.dtype.kind != "f":
            return np.zeros(pixels.shape[:2], bool)
        missing = ~np.isfinite(pixels)
        return missing.any(axis=-1) if pixels.ndim == 3 else missing


class PlaneStats(NamedTuple):
    """σ and the residual of a plane in pixel values: one number, or one a channel. noise: what was estimated, in words;
    empty where nothing was."""

    sigma: Any
    residual: Any
    noise: str = ""


@dataclass(frozen=True)
class Found:
    """σ and the residual in pixel values: one number, or one a channel; of a stack, root mean squares of its planes.
    noise: what was estimated, of the first plane. notes: what else is worth telling. Both are in words."""

    sigma: Numbers
    residual: Numbers
    noise: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def of_planes(cls, found: Sequence[PlaneStats], notes: tuple[str, ...] = ()) -> Found:
        """From those of each plane."""
        sigmas, residuals, noises = zip(*found)
        return cls(_overall(sigmas), _overall(residuals), noises[0], notes)


def restore_file(source: Source, sink: Sink, work: Work, progress: Progress | None = None) -> Found:
    """Every plane of `source`, restored, into `sink`."""
    found = []
    for plane in range(source.planes):
        tell = None if progress is None else partial(_tell, progress, plane, source.planes)
        by = _by_windows if is_cut(source.size, work) else restore_whole
        with about_plane(plane, source.planes):
            found.append(by(source, plane, sink, work, tell))
    return Found.of_planes(found)


def is_cut(size: tuple[int, int], work: Work) -> bool:
    """Whether planes of this size are restored by windows."""
    return size[0] * size[1] * work.problem.factor**2 > LARGE and not _is_tied(work)


def explain(source: Source, plane: int, work: Work, at: tuple[int, int], *, k: int) -> Explanation:
    """What the pixel `at` (row, col) of a restored plane would be made from. Nothing else of it is restored."""
    picture = source.read(plane)
    missing = work.blank(picture.pixels, slice(None), slice(None))
    settings: dict[str, Any] = {"data_range": work.data_range, "channel_axis": picture.channel_axis}
    pixels, problem = _of_plane(picture, missing, work, settings)
    return explain_pixel(pixels, problem, at, k=k, model=work.model, **settings)


def _of_plane(
    picture: Picture, missing: np.ndarray, work: Work, settings: dict[str, Any]
) -> tuple[np.ndarray, Problem]:
    """A plane without holes, and the problem with what is known of it: the mask, or the noise beside the holes."""
    if work.problem.task.masked:
        return picture.pixels, work.problem.replace(mask=missing)
    sigma = _noise_beside(picture, missing, work)
    return _fill_missing(picture.pixels, missing, settings), work.problem.replace(sigma=sigma)


def _is_tied(work: Work) -> bool:
    """Whether far pixels depend on each other, so that no window can be restored alone."""
    circular = work.problem.options.get("border") == "circular"
    return circular or (work.model is not None and work.model.splitting == "admm")


def restore_whole(source: Source, plane: int, sink: Sink, work: Work, progress: Progress | None = None) -> PlaneStats:
    """A plane that fits into memory."""
    picture = source.read(plane)
    missing = work.blank(picture.pixels, slice(None), slice(None))
    settings: dict[str, Any] = {
        "data_range": work.data_range,
        "channel_axis": picture.channel_axis,
        "device": work.device,
        "rng": work.seed,
    }
    pixels, problem = _of_plane(picture, missing, work, settings)
    look = None if work.observe is None else partial(work.observe, plane)
    info: Info = "stats" if work.keep is None and work.errors is None else True
    asked: dict[str, Any] = {"model": work.model, "progress": progress or False, "observe": look, "return_info": info}
    result = restore_image(pixels, problem, Settings(**settings, **asked))
    if work.keep is not None:
        work.keep(plane, result)
    gone = np.zeros_like(missing) if work.problem.task.masked else missing
    if work.errors is not None:
        uncertainty = Uncertainty.of(result.outlook, result.image, work.level, result.calibrated)
        work.errors(plane, uncertainty.each(lambda own: _set_missing_to_nan(own, gone, work.problem.factor)), None)
    emptied = _set_missing_to_nan(result.image, gone, work.problem.factor)
    sink.write(picture.with_pixels(emptied, alpha=_alpha(picture, work)), plane=plane)
    return PlaneStats(result.stats.get("sigma"), result.stats.get("residual"), result.stats.get("noise", ""))


def _by_windows(source: Source, plane: int, sink: Sink, work: Work, progress: Progress | None) -> PlaneStats:
    """A plane that need not fit into memory."""
    windows = Windows(source, plane, work, errors=work.errors is not None)
    lead = windows.decision.treatment.model_for(windows.decision.operator, windows.device)
    side = tile_side(lead, windows.device, source.size, work.problem.operator(source.size))
    pieces = pieces_of(source.size, work, lead, side)
    found = []
    for number, piece in enumerate(pieces):
        if progress is not None:
            progress(number, len(pieces), "restoring")
        part = windows.restore_piece(piece)
        rows, cols = scale_window(piece.own, work.problem.factor)
        sink.write(part.picture, plane=plane, rows=rows, cols=cols)
        if work.errors is not None:
            work.errors(plane, part.uncertainty or Uncertainty(), (rows, cols))
        found.append(part.found)
    if progress is not None:
        progress(len(pieces), len(pieces), "restoring")
    decision = windows.decision
    return plane_totals(found, pieces, work, decision.spans, decision.noise_in_words)


def pieces_of(size: tuple[int, int], work: Work, lead: Model, side: int) -> list[Piece]:
    """The windows of a plane, row by row. lead: the model that does most of the work."""
    return list(cut(size, work.problem.operator(size), lead, side))


def plane_totals(
    found: Sequence[np.ndarray], pieces: Sequence[Piece], work: Work, spans: Sequence[float], noise: str
) -> PlaneStats:
    """σ and the residual of a plane from those of its windows, (2, C) each. Warns of what speaks against σ and B."""
    pixels = [float(np.prod(_sides(piece.own))) for piece in pieces]
    squares = np.sum([np.square(own) * count for own, count in zip(found, pixels)], axis=0)
    sigmas, residuals = np.sqrt(squares / sum(pixels))
    restored = Restored([], list(sigmas / spans), list(residuals / spans), [])
    treatment = Treatment(tuple(sigmas / spans), estimated=isinstance(work.problem.sigma, str))
    for text in treatment.doubts(restored, work.problem.operator(), spans):
        warnings.warn(text, SlirWarning, stacklevel=5)
    return PlaneStats(sigmas, residuals, noise) if len(sigmas) > 1 else PlaneStats(sigmas[0], residuals[0], noise)


@dataclass(frozen=True, eq=False)
class Part:
    """What a piece of a plane became. found: (2, C), σ and the residual of each channel, in pixel values."""

    picture: Picture
    found: np.ndarray
    uncertainty: Uncertainty | None = None


class Windows:
    """A plane that is read and restored by windows.

    decision: what is the same for all of them; None decides it from a sample. errors: whether errors to expect are
    asked for; these want the plane's own `test` first.
    """

    def __init__(
        self, source: Source, plane: int, work: Work, decision: Decision | None = None, *, errors: bool = False
    ):
        self.source, self.plane, self.work, self.errors = source, plane, work, errors
        self.device = pick_device(work.device)
        self.axis = -1 if source.colour else None
        self.generator = torch.Generator().manual_seed(work.seed)
        self.decision = self._decide() if decision is None else decision

    def _decide(self) -> Decision:
        blocks, holes = zip(*(self._block(window) for window in sample(self.source.size)))
        operator, missing = self.work.problem.operator(self.source.size), np.concatenate(holes)
        blind = bool(missing.all())
        if self.work.problem.task.masked:
            operator = Mask(np.zeros_like(missing) if blind else missing)
        told: dict[str, Any] = {"data_range": self.work.data_range, "channel_axis": self.axis, "device": self.device}
        pixels = np.concatenate(blocks)
        told |= {"model": self.work.model, "blind": blind, "amount": self.work.problem.amount}
        return decide_once(pixels, operator, self.work.problem.sigma, **told)

    def _block(self, window: Window) -> tuple[np.ndarray, np.ndarray]:
        """Pixels of a window, an inconspicuous value where they are missing; and where that is."""
        pixels = self.source.read(self.plane, *window).pixels
        missing = self.work.blank(pixels, *window)
        return cover_missing(pixels, missing), missing

    def restore_piece(self, piece: Piece) -> Part:
        """What a piece answers for."""
        picture = self.source.read(self.plane, *piece.seen)
        missing = self.work.blank(picture.pixels, *piece.seen)
        own = replace(
            picture,
            pixels=picture.pixels[piece.within],
            alpha=None if picture.alpha is None else picture.alpha[piece.within],
        )
        nothing = np.zeros((2, 3 if self.source.colour else 1))
        factor = self.work.problem.factor
        within = scale_window(piece.within, factor)
        blank = np.zeros((*_sides(within), *picture.pixels.shape[2:]), np.float32) if self.errors else None
        if self._is_done(missing[piece.within]):
            untouched = self.decision.treatment.leaves(self.decision.operator)
            if blank is not None and not self.work.problem.task.masked:
                blank = _set_missing_to_nan(blank, missing[piece.within], factor)
            return Part(own, nothing, self._exact(own.pixels, blank, UNTOUCHED if untouched else ""))
        alpha = _alpha(picture, self.work)
        alpha = None if alpha is None else alpha[within]
        if missing.all():
            if self.work.problem.task.masked:
                sides = "×".join(str(side) for side in missing.shape)
                remedy = "Crop the image around the hole, or make it smaller first."
                raise InputError("mask", f"leave known pixels in every window of {sides}", "true in one", remedy)
            empty = np.full((*_sides(within), *picture.pixels.shape[2:]), np.nan, own.pixels.dtype)
            unknown = self._exact(empty, None if blank is None else blank + np.nan)
            return Part(own.with_pixels(empty, alpha=alpha), nothing, unknown)
        whole = self._restore_seen(picture, missing, piece)
        uncertainty = None if whole.uncertainty is None else whole.uncertainty.each(lambda own: own[within])
        return Part(own.with_pixels(whole.pixels[within], alpha=alpha), whole.found, uncertainty)

    def _exact(self, pixels: np.ndarray, error: np.ndarray | None, reason: str = "") -> Uncertainty | None:
        """Of pixels that came back as they were: the bounds of their intervals are what they are."""
        if error is None or self.work.level is None or reason:
            return None if error is None else Uncertainty(error, reason)
        return Uncertainty(error, reason, pixels, pixels)

    def _is_done(self, missing: np.ndarray) -> bool:
        """Whether the pixels that a piece answers for are to stay as they are."""
        if self.work.problem.task.masked:
            return not any(self.decision.treatment.sigmas) and not missing.any()
        return self.decision.treatment.leaves(self.decision.operator)

    @property
    def _settings(self) -> dict[str, Any]:
        return {"data_range": self.work.data_range, "channel_axis": self.axis}

    @property
    def _told(self) -> dict[str, Any]:
        return {**self._settings, "device": self.device, "generator": self.generator}

    def _without_holes(self, picture: Picture, missing: np.ndarray, piece: Piece) -> tuple[np.ndarray, Operator]:
        """All that is seen of a piece with its holes filled in, and B for it, which for inpainting tells of these."""
        if self.work.problem.task.masked:
            return cover_missing(picture.pixels, missing), Mask(missing)
        assert piece.operator is not None  # `_tied` has seen to it
        return _fill_missing(picture.pixels, missing, {**self._settings, "device": self.work.device}), piece.operator

    def _restore_seen(self, picture: Picture, missing: np.ndarray, piece: Piece) -> RestoredWindow:
        """All that is seen of a piece, on x's pixels."""
        filled, operator = self._without_holes(picture, missing, piece)
        asked: dict[str, Any] = {"errors": self.errors, "level": self.work.level}
        whole = restore_window(filled, operator, self.decision, **asked, **self._told)
        if not self.work.problem.task.masked:
            empty = partial(_set_missing_to_nan, missing=missing, factor=self.work.problem.factor)
            uncertainty = None if whole.uncertainty is None else whole.uncertainty.each(empty)
            return replace(whole, pixels=empty(whole.pixels), uncertainty=uncertainty)
        if whole.found[0].any():
            return whole
        kept = missing if self.axis is None else missing[..., None]
        return replace(whole, pixels=np.where(kept, whole.pixels, picture.pixels))


def cover_missing(pixels: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """An inconspicuous value where pixels are missing."""
    if not missing.any():
        return pixels
    known = pixels[~missing]
    filled = pixels.copy()
    filled[missing] = known.mean(axis=0) if known.size else 0
    return filled


def _fill_missing(pixels: np.ndarray, missing: np.ndarray, settings: dict[str, Any]) -> np.ndarray:
    """Missing pixels filled in, so that what is to be restored has no holes."""
    if not missing.any() or missing.all():
        return cover_missing(pixels, missing)
    return restore_image(pixels, Problem("inpaint", mask=missing), Settings(**settings))


def _noise_beside(picture: Picture, missing: np.ndarray, work: Work) -> float | str:
    """σ as it was asked for; but where holes of a grey plane are filled in, found beside them: what fills them has
    none."""
    holed = missing.any() and not missing.all()
    if work.problem.sigma != "auto" or picture.channel_axis is not None or not holed:
        return work.problem.sigma
    return estimate_sigma(cover_missing(picture.pixels, missing))


def _set_missing_to_nan(pixels: np.ndarray, missing: np.ndarray, factor: int) -> np.ndarray:
    """NaN again where there was nothing."""
    if not missing.any():
        return pixels
    pixels[missing.repeat(factor, axis=0).repeat(factor, axis=1)] = np.nan
    return pixels


def _alpha(picture: Picture, work: Work) -> np.ndarray | None:
    """Alpha on the fine pixels, bilinearly, where `slir.upsample` puts them; None where it stays as it is.

    A coarse pixel covers its factor × factor fine ones; with a Gaussian or a kernel it sits on the first of them.
    """
    alpha, factor = picture.alpha, work.problem.factor
    if alpha is None or factor == 1:
        return alpha
    from scipy.ndimage import map_coordinates

    shift = (factor - 1) / 2 if work.problem.centred else 0.0
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
