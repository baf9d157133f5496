"""Images y in any unit, seen through any operator: on the scale that the loop takes, and in the groups it restores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slir.compute import memory_for_tiles, retry_on_oom
from slir.errors import InputError, SlirError
from slir.estimator.loop import Restoration, restore
from slir.estimator.start import observed_pixels
from slir.estimator.tiling import KERNEL_HELD, restore_tiled
from slir.kernel.shipped import default_model
from slir.model import Model
from slir.operators import Diagonal, Identity, Operator
from slir.operators.base import Shape
from slir.preprocessing import colour
from slir.preprocessing.coarse import enlarged, halved
from slir.preprocessing.ranges import OUTLYING, TAIL, filled_range
from slir.preprocessing.treatment import NOT_FINITE, check_model

UNIT = 0.05
"""Largest difference from 1 of an operator's norm that is passed over."""

POWER_STEPS = 8
"""Of the power method. A norm that is some percent off is good enough."""

EXACT = 1e-3
"""Least noise of a pixel, as a share of that of the noisiest one: less makes no difference."""

MIN_SIDE = 16
"""Smallest side of x: below it there is hardly a patch to see."""


@dataclass(frozen=True)
class Images:
    """Images of one operator, ready to be restored.

    y: (*batch, *y_planes, h, w), in float32, on the scale where `range` are the pixel values 0 and 1. operator: B, and
    what evens out noise that differs from pixel to pixel. sigmas: of each image. groups: which of them are channels of
    one picture, by their numbers. sizes: those before y was halved because little else than noise could be seen.
    """

    y: Tensor
    operator: Operator
    sigmas: list[float]
    groups: list[list[int]]
    model: Model
    range: tuple[float, float]
    sizes: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(
        cls,
        y: Tensor,
        operator: Operator,
        sigma: float | Tensor,
        model: Model | None = None,
        whole: tuple[float, float] | None = None,
    ) -> Images:
        """y: (*batch, *y_planes, h, w) with at most one axis in the batch, channels. sigma: in y's units: a number, or
        an array of y's shape. whole: black and white of x; None where nothing is known of them but the image."""
        shape = operator.x_shape((y.shape[-2], y.shape[-1]))
        if tuple(own := operator.y_shape(shape)) != tuple(y.shape[-2:]):
            raise InputError("image", f"have the operator's shape {own}", tuple(y.shape), "Crop it.")
        if tuple(y.shape[y.ndim - 2 - len(operator.y_planes) : -2]) != operator.y_planes:
            rule = f"have the axes {operator.y_planes} that the operator makes before height and width"
            raise InputError("image", rule, tuple(y.shape), "Move the axes of the image.")
        if min(shape) < MIN_SIDE:
            found = f"{shape[0]}×{shape[1]}"
            raise InputError("image", f"have at least {MIN_SIDE} pixels a side", found, "Pad it first.")
        y = y.double()
        if model is not None:  # it was made for an operator, a noise level and a range
            noise = float(torch.as_tensor(sigma, dtype=torch.float64).square().mean().sqrt())
            span = 1.0 if whole is None else whole[1] - whole[0]
            check_model(model, operator, (noise / span,), span)
        elif abs((gain := _gain(operator, y, shape)) - 1) > UNIT:
            y, operator, sigma = y / gain, operator / gain, sigma / gain
        y, operator, sigmas = _evened(y, operator, sigma)
        sizes: list[tuple[int, int]] = []
        if isinstance(operator, Identity) and y.ndim == 3:
            y, sigmas, sizes = halved(y, sigmas)
            shape = (y.shape[-2], y.shape[-1])
        ones = y.new_ones(*operator.x_planes, *shape)
        batch = operator.batch(y)
        guess = torch.stack([operator.guess(own) for own in _each(y.float(), batch)])
        known = operator.crop(guess, (y.shape[-2], y.shape[-1])).flatten().cpu().numpy()
        if model is not None:
            low, high = whole or (0.0, 1.0)
        else:
            whole = whole or (0.0, float(np.quantile(np.abs(known), 1 - TAIL)) or 1.0)
            far = float("inf") if operator.diagonal_like(guess) is not None else OUTLYING
            low, high = filled_range(known, whole, max(sigmas), black=False, far=far)
        scaled = ((y - low * operator.forward(ones)) / (high - low)).float()
        sigmas = [sigma / (high - low) for sigma in sigmas]
        used = (model or default_model(operator)).to(y.device)
        if operator.x_planes and not used.learnt:
            remedy = "Leave it out for the learnt kernel."
            raise InputError("model", "restore planes together for this operator", "the paper's stages", remedy)
        groups = [[number] for number in range(prod(batch))]
        if len(groups) in (3, 4) and not operator.x_planes and used.joint:
            planes = [(own - low) / (high - low) for own in guess]
            if colour.alike(planes[:3], sigmas[:3]):
                groups = [[0, 1, 2], *groups[3:]]
        return cls(scaled, operator, sigmas, groups, used, (low, high), tuple(sizes))

    def planes(self, images: list[Tensor]) -> list[Tensor]:
        """What the groups became as planes."""
        planes = [plane for image in images for plane in image.reshape(-1, *image.shape[-2:])]
        return [enlarged(plane, list(self.sizes)) for plane in planes]

    def values(self, images: list[Tensor]) -> list[Tensor]:
        """The same in the image's own values."""
        low, high = self.range
        return [(low + (high - low) * plane.double()).float() for plane in self.planes(images)]

    def group(self, number: int) -> tuple[Tensor, list[float]]:
        """y of a group, with an axis for its channels, and their noise."""
        y = self.y.reshape(-1, *self.y.shape[len(self.operator.batch(self.y)) :])
        return y[self.groups[number]], [self.sigmas[one] for one in self.groups[number]]


def _gain(operator: Operator, y: Tensor, shape: Shape) -> float:
    """‖B‖, times the scale: the loop's noise levels are those of x, so B is divided by it. By the power method, from
    ones, which is exact at once for masks and nearly so for blurs."""
    if isinstance(operator, Identity):
        return 1.0
    x = y.new_ones(*operator.x_planes, *shape)
    x[..., ::2, ::2] += 0.1  # not orthogonal to what an operator that ignores constants sees
    size = 0.0
    for _ in range(POWER_STEPS):
        x = operator.normal(x / x.norm())
        if (size := float(x.norm())) == 0:
            return 1.0
    return operator.scale * size**0.5


def _each(y: Tensor, batch: tuple[int, ...]) -> list[Tensor]:
    return list(y.reshape(-1, *y.shape[len(batch) :]))


def _evened(y: Tensor, operator: Operator, sigma: float | Tensor) -> tuple[Tensor, Operator, list[float]]:
    """y, B and σ of each image, with the same noise at all pixels of an image: y/s = diag(1/s)Bx + ε."""
    batch = operator.batch(y)
    if not isinstance(sigma, Tensor):
        return y, operator, [sigma] * prod(batch)
    flat = sigma.to(y).reshape(prod(batch), -1)
    least, most = flat.aminmax(dim=1)
    if torch.equal(least, most):
        return y, operator, least.tolist()
    if bool((flat == flat[:1]).all()):  # the same for all channels
        sigma = sigma.to(y).reshape(-1, *y.shape[len(batch) :])[0]
        batch = ()
    sigma = sigma.to(y).clamp(min=EXACT * float(most.max()))
    level = float(sigma.pow(-2).mean().rsqrt())
    own = Diagonal(level / sigma) @ operator
    return level / sigma * y, own, [level] * prod(own.batch(y))


def restore_images(
    images: Sequence[Images],
    *,
    generator: torch.Generator | None = None,
    report: Callable[[int], Any] | None = None,
    errors: bool = False,
    beyond: bool = False,
) -> list[list[Restoration]]:
    """Each group of each image restored, on the pixels that y shows. Images of one size go through the kernel together,
    as many as fit into memory.

    report: gives what is called with the progress of a group. beyond: give x on all of its pixels.
    """
    places = [(own, number) for own, image in enumerate(images) for number in range(len(image.groups))]
    outcomes: dict[tuple[int, int], Restoration] = {}
    for number, together in enumerate(_together(images, places)):
        parts = [images[own].group(group) for own, group in together]
        first = images[together[0][0]]
        told: dict[str, Any] = {"generator": generator, "progress": report and report(number), "errors": errors}
        y, sigmas = torch.stack([part for part, _ in parts]), [noise for _, noise in parts]
        if len(together) == 1:
            y, sigmas = y[0], sigmas[0]  # type: ignore[assignment]
        found = _restored(y, sigmas, first, told, beyond=beyond)
        if not bool(found.x.isfinite().all()):
            raise SlirError(NOT_FINITE)
        each = [found] if len(together) == 1 else found.channels()
        outcomes |= dict(zip(together, each))
    return [[outcomes[own, number] for number in range(len(image.groups))] for own, image in enumerate(images)]


def _restored(y: Tensor, sigmas: Any, images: Images, told: dict[str, Any], *, beyond: bool) -> Restoration:
    """y: (C, ..., h, w), the channels of a picture or a single one, or (N, C, ..., h, w), several of them."""
    operator = images.operator
    if operator.observes_pixels and not any(np.ravel(sigmas)):  # nothing is to be undone
        x = observed_pixels(y, operator)
        return Restoration(x, residual=[0.0] * len(y), error=torch.zeros_like(x))
    if y.shape[0] == 1 or not images.model.joint:  # a single plane, or one that the operator takes together with others
        y, sigmas = y[0], sigmas[0]
    work = restore if (beyond and any(operator.margins())) or y.ndim > 3 + len(operator.y_planes) else restore_tiled
    return retry_on_oom(lambda: work(y, operator, images.model, sigma=sigmas, **told), y.device)


def _together(images: Sequence[Images], places: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """The groups that go through the kernel at once: of one operator and size, as many as fit into memory."""
    kinds: dict[tuple, list[tuple[int, int]]] = {}
    for own, number in places:
        image = images[own]
        kind = (id(image.operator), id(image.model), len(image.groups[number]), tuple(image.y.shape[-2:]))
        kinds.setdefault(kind, []).append((own, number))
    parts = []
    for together in kinds.values():
        first = images[together[0][0]]
        held = 4 * KERNEL_HELD * prod(first.operator.x_shape((first.y.shape[-2], first.y.shape[-1])))
        count = max(1, int(memory_for_tiles(first.y.device) / held)) if first.model.joint else 1
        parts += [together[start : start + count] for start in range(0, len(together), count)]
    return parts
