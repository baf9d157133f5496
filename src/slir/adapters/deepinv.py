"""slir in deepinv: a reconstructor, a denoiser for plug-and-play methods, operators as physics.

    restored = Reconstructor()(y, physics)               # any linear physics, with its noise model
    HQS(prior=PnP(Denoiser()), ...)(y, physics)          # slir's denoiser in deepinv's algorithms
    physics = to_physics(slir.operators.Blur(psf))       # and from_physics, the other way round

Images are (B, C, H, W), where black is 0 and white 1, as deepinv has them. slir is not learnt by gradient descent:
results carry no gradient, and there are no parameters to train.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from deepinv import models as dinv_models
from deepinv import physics as dinv
from torch import Tensor

from slir.adapters.physics import PhysicsOperator, channel_operators, checked_size, from_physics, of_sample
from slir.adapters.planes import restore_planes
from slir.errors import InputError
from slir.model import Model
from slir.operators import Identity, Operator

__all__ = ["Reconstructor", "Denoiser", "OperatorPhysics", "from_physics", "to_physics"]


class Denoiser(dinv_models.Denoiser):
    """x̂ = denoiser(x, sigma): `slir.denoise` for batches of images whose range is 1.

    sigma: one for all images, or one for each. model: a `slir.Model` for denoising; None takes the one that ships,
    which serves any noise level.
    """

    def __init__(self, model: Model | None = None):
        super().__init__()
        self.model = model

    @torch.no_grad()
    def forward(self, x: Tensor, sigma: float | Tensor, **ignored: Any) -> Tensor:
        noise = self._handle_sigma(sigma, batch_size=len(x)).tolist()
        images = [restore_planes(list(image), Identity(), sigma=own, model=self.model) for image, own in zip(x, noise)]
        return torch.stack([torch.stack(planes) for planes in images]).to(x)


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
        backward = physics.A_adjoint(y)
        size = checked_size(physics, tuple(backward.shape[1:]))
        images = []
        before: tuple[Any, list[Operator] | None] = (None, None)
        for number in range(len(backward)):
            own = of_sample(physics, number, size)
            if own is not before[0]:  # mostly one physics serves all of them
                before = own, channel_operators(own, size)
            sigma = noise_of(physics, number) if self.sigma is None else self.sigma
            measured = y[number : number + 1] if isinstance(y, Tensor) else [part[number : number + 1] for part in y]
            images.append(self._restored(measured, own, size, before[1], sigma))
        return torch.stack(images).to(backward)

    def _restored(
        self, y: Any, physics: dinv.LinearPhysics, size: tuple[int, int, int], operators: list[Operator] | None,
        sigma: float,
    ) -> Tensor:  # fmt: skip
        """One image: (1, ...) -> (C, H, W)."""
        told: dict[str, Any] = {"sigma": sigma, "model": self.model, "beyond": True}
        if operators is None:  # all channels are one tall picture
            whole = PhysicsOperator(physics, size)
            return restore_planes([whole.flat(y)[0]], whole, **told)[0].reshape(size)
        if isinstance(operators[0], PhysicsOperator):
            planes = [operators[0].flat(channel[None, None])[0] for channel in y[0]]
        else:
            planes = list(y[0])
        if all(operator is operators[0] for operator in operators):
            return torch.stack(restore_planes(planes, operators[0], **told))
        alone = [restore_planes([plane], operator, **told)[0] for plane, operator in zip(planes, operators)]
        return torch.stack(alone)


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
    """One of slir's operators as a deepinv physics, on each channel of each image."""

    def __init__(self, operator: Operator, **settings: Any):
        super().__init__(**settings)
        self.operator = operator

    def A(self, x: Tensor, **ignored: Any) -> Tensor:
        return _Linear.apply(x, self.operator.forward, self.operator.adjoint)

    def A_adjoint(self, y: Tensor, **ignored: Any) -> Tensor:
        return _Linear.apply(y, self.operator.adjoint, self.operator.forward)


def to_physics(operator: Operator, *, sigma: float = 0.0, **settings: Any) -> OperatorPhysics:
    """An operator as a deepinv physics with Gaussian noise; gradients flow through it.

    settings: of `deepinv.physics.LinearPhysics` (img_size, noise_model, max_iter, tol, solver).
    """
    if sigma > 0 and "noise_model" in settings:
        raise InputError("sigma", "be left out where a noise_model is given", sigma, "Pass one of the two.")
    if sigma > 0:
        settings["noise_model"] = dinv.GaussianNoise(sigma)
    return OperatorPhysics(operator, **settings)


class _Linear(torch.autograd.Function):
    """A linear map with its adjoint as gradient, whatever it is computed by; the gradient's gradient is the map."""

    @staticmethod
    def forward(ctx: Any, image: Tensor, there: Callable[[Tensor], Tensor], back: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.maps = there, back
        return there(image)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        there, back = ctx.maps
        return _Linear.apply(gradient, back, there), None, None
