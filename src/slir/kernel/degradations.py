"""Families of degradations y = Bx + ε to learn from: each draw is another operator B and noise level σ.

A model that is fitted over a family works on kernels, masks and noise levels that it never saw. A family is a handful
of numbers: `describe` records them, `family_from` rebuilds it.
"""

from __future__ import annotations

import math
import string
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from slir import psf
from slir.errors import InputError
from slir.estimator.paper_settings import ROUNDING
from slir.operators import Blur, Downsample, Identity, Mask, Operator
from slir.operators.base import Shape


class Family(ABC):
    """Degradations of one kind, and how often each of them is met."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """The task that undoes them (`Operator.task`)."""

    @abstractmethod
    def draw(self, generator: torch.Generator, shape: Shape) -> tuple[Operator, float]:
        """An operator B for clean pictures x of this shape (H, W), and σ where the range is 1.

        The same state of the generator gives the same draw, bit for bit. B may want x cropped: `B.for_training(shape)`
        says to what.
        """

    def describe(self) -> dict[str, Any]:
        """The settings as JSON, for provenance and `family_from`."""
        own = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}
        return {"kind": self.kind, "family": type(self).__name__, **own}


@dataclass(frozen=True)
class Fixed(Family):
    """The same B every time. sigma: the same σ too, or (low, high) between which it is log-uniform."""

    operator: Operator
    sigma: float | tuple[float, float]

    def __post_init__(self) -> None:
        if isinstance(self.sigma, tuple):
            _check_noise(*self.sigma)
        elif not (math.isfinite(self.sigma) and self.sigma >= 0):
            remedy = "It is the noise's standard deviation, with a range of 1."
            raise InputError("sigma", "be a finite number of at least 0", self.sigma, remedy)

    @property
    def kind(self) -> str:
        return self.operator.task

    def draw(self, generator: torch.Generator, shape: Shape) -> tuple[Operator, float]:
        sigma = _log_uniform(_rng(generator), *self.sigma) if isinstance(self.sigma, tuple) else float(self.sigma)
        return self.operator.for_training(shape)[0], sigma

    def describe(self) -> dict[str, Any]:
        """A record alone: an operator appears as its hash, from which it cannot be rebuilt."""
        return {**super().describe(), "operator": self.operator.describe()}


@dataclass(frozen=True)
class Noise(Family):
    """y = x + ε with σ log-uniform in [low, high]: every decade as often as the next."""

    low: float = 2 / 255
    high: float = 80 / 255
    kind = "denoise"

    def __post_init__(self) -> None:
        _check_noise(self.low, self.high)

    def draw(self, generator: torch.Generator, shape: Shape) -> tuple[Operator, float]:
        return Identity(), _log_uniform(_rng(generator), self.low, self.high)


@dataclass(frozen=True)
class AnyBlur(Family):
    """Blurs as cameras make them, beyond an unknown border; σ log-uniform in [low, high].

    55 % camera shake, 15 % Gaussian (half of them elongated), 12 % defocus, 10 % straight motion, 8 % diffraction.

    sizes: the smallest and the largest longer side of a PSF, odd numbers. None is longer than a third of the picture's
        shorter side either, so that y shows most of x.
    """

    sizes: tuple[int, int] = (3, 65)
    low: float = 0.002
    high: float = 0.1
    kind = "deblur"

    def __post_init__(self) -> None:
        small, large = self.sizes
        if not (1 < small <= large and small % 2 == large % 2 == 1):
            rule = "be two odd numbers, the smaller first, of at least 3"
            raise InputError("sizes", rule, self.sizes, "They are sides of PSFs in pixels, such as (3, 65).")
        _check_noise(self.low, self.high)

    def draw(self, generator: torch.Generator, shape: Shape) -> tuple[Operator, float]:
        small, large = self.sizes
        third = (min(shape) // 3 - 1) // 2 * 2 + 1  # the next odd number
        if third < small:
            rule = f"have sides of at least three times the smallest PSF, {3 * small}"
            raise InputError("shape", rule, tuple(shape), "Learn from larger pictures, or lower sizes[0].")
        rng = _rng(generator)
        large = min(large, third)
        kernel = self._psf(rng, large)
        while not small <= max(kernel.shape) <= large:  # rare: the draw below knows the sizes but for a pixel or two
            kernel = self._psf(rng, large)
        return Blur(kernel, border="unknown"), _log_uniform(rng, self.low, self.high)

    def _psf(self, rng: np.random.Generator, large: int) -> np.ndarray:
        """A PSF whose longer side is about `large` at most."""
        room = large - 2  # for paths: they spread to the next pixel at both ends
        angle = rng.uniform(0, 180)
        share = rng.random()
        if share < 0.55:
            longest = room if rng.random() < 0.15 else min(32, room)
            extent = _log_uniform(rng, min(max(4, self.sizes[0] - 4), room), longest)
            return psf.camera_shake(extent, rng, softness=rng.uniform(0, 0.6))
        if share < 0.70:
            sigma, other = (_log_uniform(rng, 0.5, min(4, (large - 1) / 8)) for _ in range(2))
            return psf.gaussian(sigma, sigma_across=other if rng.random() < 0.5 else None, angle=angle)
        if share < 0.82:
            return psf.defocus(_log_uniform(rng, 1, min(8, large / 2)))
        if share < 0.92:
            return psf.motion(_log_uniform(rng, min(3, room), min(32, room)), angle)
        return psf.airy(_log_uniform(rng, 1, min(8, large / 5.4)))  # it reaches 2.66 radii each way


@dataclass(frozen=True)
class AnyDownsampling(Family):
    """Every f-th pixel of a filtered picture: 30 % bicubic, 20 % box, 50 % Gaussian of 0.3 f … 0.6 f fine pixels.

    share_clean: how often σ = 0; otherwise it is log-uniform in [low, high].
    """

    factor: int
    low: float = 0.002
    high: float = 0.1
    share_clean: float = 0.5
    kind = "upsample"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.factor) and self.factor >= 2 and self.factor == int(self.factor)):
            raise InputError(
                "factor", "be a whole number of at least 2", self.factor, "A factor of 1 keeps all pixels."
            )
        _check_noise(self.low, self.high, self.share_clean)

    def draw(self, generator: torch.Generator, shape: Shape) -> tuple[Operator, float]:
        rng = _rng(generator)
        antialias: str | float = self.factor * rng.uniform(0.3, 0.6)
        share = rng.random()
        if share < 0.5:
            antialias = "bicubic" if share < 0.3 else "box"
        sigma = _sometimes_clean(rng, self.low, self.high, self.share_clean)
        return Downsample(self.factor, antialias, border="reflect"), sigma


@dataclass(frozen=True)
class AnyMask(Family):
    """Missing pixels: 70 % at random, 15 % under lines of text, 15 % under scratches.

    At random 30 to 95 % of the pixels are missing, in half of these draws 50 to 90 %. At least
    1 % are missing and 3 % known, always.

    share_clean: how often σ = 0; otherwise it is log-uniform in [low, high].
    """

    low: float = 0.004
    high: float = 0.1
    share_clean: float = 0.7
    kind = "inpaint"

    def __post_init__(self) -> None:
        _check_noise(self.low, self.high, self.share_clean)

    def draw(self, generator: torch.Generator, shape: Shape) -> tuple[Operator, float]:
        if min(shape) < 8:
            raise InputError("shape", "have sides of at least 8", tuple(shape), "Learn from larger pictures.")
        rng = _rng(generator)
        missing = self._missing(rng, shape)
        while not 0.01 <= missing.mean() <= 0.97:  # scratches may lie beyond the picture's edge
            missing = self._missing(rng, shape)
        return Mask(missing), _sometimes_clean(rng, self.low, self.high, self.share_clean)

    def _missing(self, rng: np.random.Generator, shape: Shape) -> np.ndarray:
        """(H, W) bool, true where a pixel is missing."""
        share = rng.random()
        if share < 0.15:
            return _text(rng, shape)
        if share < 0.30:
            return _scratches(rng, shape)
        low, high = (0.5, 0.9) if rng.random() < 0.5 else (0.3, 0.95)
        return rng.random(shape) < rng.uniform(low, high)


_FAMILIES: dict[str, type[Family]] = {cls.__name__: cls for cls in (Noise, AnyBlur, AnyDownsampling, AnyMask)}


def family_from(settings: dict[str, Any]) -> Family:
    """The family that `describe` described. `Fixed` alone cannot be rebuilt: its operator is more than numbers."""
    name = settings.get("family")
    if name not in _FAMILIES:
        remedy = (
            "A fixed operator is not recorded whole: make it anew." if name == "Fixed" else "Pass what it described."
        )
        raise InputError("settings", f"name a family out of {', '.join(_FAMILIES)}", repr(name), remedy)
    own = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    own.pop("family"), own.pop("kind", None)
    try:
        return _FAMILIES[name](**own)
    except TypeError as error:
        raise InputError("settings", f"fit {name}", settings, "Pass what describe() gave, unchanged.") from error


def _rng(generator: torch.Generator) -> np.random.Generator:
    """NumPy's generator, seeded by torch's: a draw takes one number of the latter, whatever becomes of it."""
    return np.random.default_rng(int(torch.randint(2**63 - 1, (), generator=generator, device=generator.device)))


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """A number in [low, high] whose logarithm is uniform; `low` where high < low."""
    high = max(low, high)
    return min(max(math.exp(rng.uniform(math.log(low), math.log(high))), low), high)  # exp(log(x)) is not quite x


def _sometimes_clean(rng: np.random.Generator, low: float, high: float, share_clean: float) -> float:
    return 0.0 if rng.random() < share_clean else _log_uniform(rng, low, high)


def _text(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Lines of made-up words in one size, over the whole picture: (H, W) bool, true under ink, however faint."""
    height, width = shape
    image = Image.new("L", (width, height))
    draw = ImageDraw.Draw(image)
    size = round(_log_uniform(rng, 9, min(40, height / 2)))
    pitch = size * rng.uniform(1.0, 2.0)
    letters = list(string.ascii_letters + string.digits + 12 * " ")
    top = rng.uniform(-pitch, 0)
    while top < height:
        line = "".join(rng.choice(letters, 4 * width // size + 8))  # a letter is hardly narrower than a quarter of it
        draw.text((rng.uniform(-3 * size, 0), top), line, fill=255, font=_font(size))
        top += pitch
    return np.asarray(image) > 0


@lru_cache(maxsize=64)
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _scratches(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Thin lines that bend a little, 1 to 4 pixels wide: (H, W) bool, true on them."""
    height, width = shape
    image = Image.new("L", (width, height))
    draw = ImageDraw.Draw(image)
    for _ in range(rng.integers(3, 8 + height * width // 2000)):
        bends = rng.integers(1, 8)
        heading = rng.uniform(0, 2 * math.pi) + 0.3 * rng.standard_normal(bends).cumsum()
        step = math.hypot(height, width) * _log_uniform(rng, 0.1, 1.0) / bends
        x = rng.uniform(0, width) + step * np.append(0, np.cos(heading)).cumsum()
        y = rng.uniform(0, height) + step * np.append(0, np.sin(heading)).cumsum()
        path = list(zip(x.tolist(), y.tolist()))
        draw.line(path, fill=255, width=int(rng.integers(1, 5)), joint="curve")
    return np.asarray(image) > 0


def noise_levels(sigma: tuple[float, float] | None, *, clean: bool = False) -> dict[str, Any]:
    """Settings of a family for noise from one level to another, range 1. None: those that the family has by default.

    clean: whether the family knows pictures without noise. Others learn from what rounding to 8 bits leaves, at least.
    """
    if sigma is None:
        return {}
    if clean and sigma[1] == 0:
        return {"share_clean": 1.0}
    return {"low": max(sigma[0], ROUNDING), "high": max(sigma[1], ROUNDING)}


def _check_noise(low: float, high: float, share_clean: float = 0.0) -> None:
    """What all families with a range of noise levels ask of it."""
    remedy = "Noise levels are standard deviations, with a range of 1."
    if not (math.isfinite(high) and high > 0):
        raise InputError("high", "be a positive finite number", high, remedy)
    if not 0 < low <= high:
        raise InputError("low", f"be positive and at most high, {high}", low, remedy)
    if not 0 <= share_clean <= 1:
        raise InputError("share_clean", "lie in 0 … 1", share_clean, "It is how often there is no noise at all.")
