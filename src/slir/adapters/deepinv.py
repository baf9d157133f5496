"""slir in deepinv: a reconstructor, a denoiser for plug-and-play methods, operators as physics.

    restored = Reconstructor()(y, physics)               # any linear physics, with its noise model
    HQS(prior=PnP(Denoiser()), ...)(y, physics)          # slir's denoiser in deepinv's algorithms
    physics = to_physics(slir.operators.Blur(psf))       # and from_physics, the other way round

Images are (B, C, H, W), where black is 0 and white 1, as deepinv has them. slir is not learnt by gradient descent:
results carry no gradient, and there are no parameters to train.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

import torch
from deepinv import models as dinv_models
from deepinv import physics as dinv
from torch import Tensor

from slir.adapters.physics import PhysicsOperator, checked_size, from_physics, of_sample
from slir.adapters.planes import restore_batch
from slir.errors import InputError, is_finite
from slir.model import Model
from slir.operators import Identity, Operator

__all__ = ["Reconstructor", "Denoiser", "OperatorPhysics", "from_physics", "to_physics"]


class Denoiser(dinv_models.Denoiser):
    """x̂ = denoiser(x, sigma): `slir.denoise` for batches of images whose range is 1.

    sigma: one for all images, one for each, or a map that broadcasts to them: (B, C, H, W).
    model: a `slir.Model` for denoising; None takes the one that ships, which serves any noise level and brightness.
    """

    def __init__(self, model: Model | None = None):
        super().__init__()
        self.model = model

    @torch.no_grad()
    def forward(self, x: Tensor, sigma: float | Tensor, **ignored: Any) -> Tensor:
        x = checked(x, "x")
        return torch.stack(restore_batch(list(x), Identity(), _sigmas(sigma, x), model=self.model)).to(x)


class Reconstructor(dinv_models.Reconstructor):
    """x̂ = reconstructor(y, physics), of the shape that the physics takes.

    sigma: of the noise where the range is 1; None takes that of the physics' noise model, which is then Gaussian or
    none at all. model: a `slir.Model` for this physics, say slir.fit(pictures, operator=from_physics(physics, size));
    None takes one that ships: by kind, or the one for blurs where slir has no such kind.
    """

    def __init__(self, model: Model | None = None, sigma: float | None = None):
        super().__init__()
        self.model, self.sigma = model, sigma

    @torch.no_grad()
    def forward(self, y: Tensor, physics: dinv.LinearPhysics, **ignored: Any) -> Tensor:
        checked_size(physics, (1, 1, 1))
        backward = physics.A_adjoint(checked(y, "y"))
        size = checked_size(physics, tuple(backward.shape[1:]))
        count = len(backward)
        sigmas = [noise_of(physics, number) if self.sigma is None else self.sigma for number in range(count)]
        each = [of_sample(physics, number, size) for number in range(count)]
        images: list[Tensor] = []
        for _, run in groupby(range(count), lambda number: id(each[number])):  # mostly one physics serves all of them
            numbers = list(run)
            operator = from_physics(each[numbers[0]], size)
            parts = [y[n] if isinstance(y, Tensor) else [part[n] for part in y] for n in numbers]
            told: dict[str, Any] = {"model": self.model, "beyond": True}
            batch = [measured(part, operator) for part in parts]
            images += restore_batch(batch, operator, [_told(sigmas[number]) for number in numbers], **told)
        return torch.stack([image.reshape(size) for image in images]).to(backward)


def checked(image: Any, argument: str) -> Any:
    """A batch of real, finite images (B, C, H, W), or the parts of what a stacked physics measured."""
    parts = [image] if isinstance(image, Tensor) else list(image)
    for part in parts:
        if not isinstance(part, Tensor) or part.is_complex() or not part.is_floating_point():
            kind = str(part.dtype) if isinstance(part, Tensor) else type(part).__name__
            remedy = "Pass real and imaginary parts as two channels (torch.view_as_real)."
            raise InputError(argument, "hold real floating-point numbers", kind, remedy)
        if argument == "x" and part.ndim != 4:
            shape = tuple(part.shape)
            raise InputError(argument, "have the axes (B, C, H, W)", shape, "Restore volumes plane by plane.")
        if not bool(part.isfinite().all()):
            raise InputError(argument, "be finite", "NaN or infinite at some pixels", "Mark them as missing in a mask.")
    return image


def _sigmas(sigma: Any, x: Tensor) -> list[float | Tensor]:
    """σ of each image of a batch: a number, or a map of its shape."""
    values = torch.as_tensor(sigma, dtype=torch.float64, device=x.device)
    rule, remedy = "be finite and at least 0", "It is the noise's standard deviation, where white is 1."
    if not bool(values.isfinite().all()) or bool((values < 0).any()):
        raise InputError("sigma", rule, sigma if values.ndim == 0 else "negative or not finite", remedy)
    if values.ndim <= 1:
        values = values.flatten()
        if len(values) not in (1, len(x)):
            rule = f"be one number, one for each of the {len(x)} images, or a map"
            raise InputError("sigma", rule, f"{len(values)} numbers", remedy)
        return values.expand(len(x)).tolist()
    if values.ndim == 4 and values[0].numel() == 1:
        return values.flatten().expand(len(x)).tolist()
    try:
        return list(values.expand_as(x))
    except RuntimeError as error:
        rule = f"broadcast to the images, {tuple(x.shape)}"
        raise InputError("sigma", rule, f"of shape {tuple(values.shape)}", remedy) from error


def measured(y: Any, operator: Operator) -> Tensor:
    """What a physics measured of one image as the operator has it."""
    if not isinstance(operator, PhysicsOperator):
        return y[0] if operator.x_planes and not operator.y_planes else y
    if operator.alike:
        return operator.flat(y[:, None])
    return operator.flat(y[None] if isinstance(y, Tensor) else [part[None] for part in y])[0]


def _told(sigma: Any) -> float:
    """The Reconstructor's σ as a number."""
    if isinstance(sigma, Tensor) and sigma.numel() == 1:
        sigma = float(sigma)
    if not (isinstance(sigma, int | float) and is_finite(sigma) and sigma >= 0):
        remedy = "It is the noise's standard deviation, where white is 1."
        raise InputError("sigma", "be a finite number of at least 0", repr(sigma), remedy)
    return float(sigma)


def noise_of(physics: dinv.LinearPhysics, number: int = 0) -> float:
    """σ of the physics' noise for one image of the batch."""
    if isinstance(physics, dinv.StackedPhysics):
        sigmas = {noise_of(part, number) for part in physics.physics_list}
        if len(sigmas) > 1:
            remedy = "Pass sigma to the Reconstructor, and divide each part and its measurements by its noise level."
            raise InputError("physics", "have the same noise in all its parts", sorted(sigmas), remedy)
        return sigmas.pop()
    noise = physics.noise_model
    if isinstance(noise, dinv.ZeroNoise):
        return 0.0
    if not isinstance(noise, dinv.GaussianNoise):
        remedy = "Pass sigma to the Reconstructor: the approximate standard deviation of the noise."
        raise InputError("physics", "have Gaussian noise, or none", type(noise).__name__, remedy)
    sigma = noise.sigma.flatten()
    return float(sigma[number if len(sigma) > 1 else 0])


class OperatorPhysics(dinv.LinearPhysics):
    """One of slir's operators as a deepinv physics: on each channel of each image, or on all of its channels together.

    What an operator makes of several channels as one plane has one channel here.
    """

    def __init__(self, operator: Operator, **settings: Any):
        super().__init__(**settings)
        self.operator = operator

    def A(self, x: Tensor, **ignored: Any) -> Tensor:
        return _Linear.apply(x, self._forward, self._adjoint)

    def A_adjoint(self, y: Tensor, **ignored: Any) -> Tensor:
        return _Linear.apply(y, self._adjoint, self._forward)

    @property
    def _single(self) -> bool:
        """Whether y would be left without an axis of channels."""
        return bool(self.operator.x_planes) and not self.operator.y_planes

    def _forward(self, x: Tensor) -> Tensor:
        y = self.operator.forward(x)
        return y.unsqueeze(-3) if self._single else y

    def _adjoint(self, y: Tensor) -> Tensor:
        return self.operator.adjoint(y.squeeze(-3) if self._single else y)


def to_physics(operator: Operator, *, sigma: float = 0.0, **settings: Any) -> OperatorPhysics:
    """An operator as a deepinv physics with Gaussian noise; gradients flow through it.

    settings: of `deepinv.physics.LinearPhysics` (img_size, noise_model, max_iter, tol, solver).
    """
    if sigma > 0 and "noise_model" in settings:
        raise InputError("sigma", "be left out where a noise_model is given", sigma, "Pass one of the two.")
    if sigma > 0:
        settings["noise_model"] = dinv.GaussianNoise(sigma)
    return OperatorPhysics(operator, **settings)


Map = Callable[[Tensor], Tensor]


class _Linear(torch.autograd.Function):
    """A linear map with its adjoint as gradient, whatever it is computed by; the gradient's gradient is the map.

    torch.func's transforms (vjp, jvp, vmap) go through it.
    """

    @staticmethod
    def forward(image: Tensor, there: Map, back: Map) -> Tensor:
        made = there(image)
        return made.clone() if made is image else made

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Map, Map], output: Tensor) -> None:
        ctx.maps = inputs[1:]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        there, back = ctx.maps
        return _Linear.apply(gradient, back, there), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *nothing: Any) -> Tensor:
        there, back = ctx.maps
        return _Linear.apply(tangent, there, back)

    @staticmethod
    def vmap(info: Any, dims: tuple[int | None, ...], image: Tensor, there: Map, back: Map) -> tuple[Tensor, int]:
        assert dims[0] is not None  # the image alone has a batch
        return _Linear.apply(image.movedim(dims[0], 0), there, back), 0
