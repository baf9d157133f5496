"""Whether the energy of the z-update is convex where weights may be negative (appendix B.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from slir.compute import chunks, rows_that_fit
from slir.errors import InputError
from slir.losses import Loss
from slir.model import Model, Prior, Stage
from slir.weights import Fitted


@dataclass(frozen=True)
class Curvature:
    """eigenvalue: the smallest at each z, with β: (t,), or (c, t) where it was asked for each patch by itself.

    beta: the β that was added; so eigenvalue − beta is the curvature of the prior alone, and its largest negative value
        is the β that would make it convex.
    convex: whether no eigenvalue is negative, beyond rounding, at the given z. It says nothing of other z.
    """

    eigenvalue: Tensor
    beta: float
    convex: bool

    @property
    def beta_needed(self) -> float:
        """The smallest β ≥ 0 that leaves no negative eigenvalue at the given z."""
        return max(0.0, self.beta - float(self.eigenvalue.min()))


@torch.no_grad()
def smallest_curvature(
    source: Model | Stage | Prior,
    seen: Tensor,
    z: Tensor,
    *,
    loss: Loss | None = None,
    beta: float | None = None,
    average: bool = True,
) -> Curvature:
    """The smallest eigenvalue of the Hessian of z ↦ E_y Σᵢ αᵢ(y) ℓ(z, xⁱ) + β/2 ‖z − x‖², which does not depend on x:

        H(z) = βI + Σᵢ ᾱᵢ [ w(dᵢ) I + (w′(dᵢ)/dᵢ)(z − xⁱ)(z − xⁱ)ᵀ ],    dᵢ = ‖z − xⁱ‖,  ᾱ = mean_y α(y)

    With Nadaraya-Watson weights α ≥ 0 and H is never below βI. Those of kernel ridge regression may be negative; the
    paper shows that the average over y (and over banks) is convex for a large enough bank. The energies that are
    minimised are those of single y: average=False measures them one by one.

    Parameters
    ----------
    source : a Prior; or a Stage; or a Model, whose first stage is taken, because its β is the smallest.
    seen : (c, window²), patches of degraded images, not described yet: `PatchGrid(shape, window).extract(y)`.
    z : (t, k), where to look, centred as the bank's patches are. At a patch of the bank itself a loss with a kink has
        no Hessian.
    loss, beta : given for a Prior (β is 0 by default); for a Stage they replace its own.
    """
    stage = source.paper_stages[0] if isinstance(source, Model) else source
    if isinstance(stage, Stage):
        loss = loss or stage.loss
        beta = stage.beta if beta is None else beta
        prior = stage.prior
    else:
        prior = stage
    beta = 0.0 if beta is None else float(beta)
    if loss is None:
        raise InputError("loss", "be given with a Prior", None, "Pass a slir.losses.Loss, or the stage itself.")
    if not beta >= 0:
        raise InputError("beta", "be zero or positive", beta, "It ties the patches to the image.")
    k = prior.bank.clean.shape[1]
    if z.ndim != 2 or z.shape[1] != k or not len(z):
        raise InputError("z", f"have shape (t, {k}) with t ≥ 1", f"of shape {tuple(z.shape)}", "Pass one patch a row.")
    d = prior.bank.seen.shape[1] if prior.view == "seen" else k
    if seen.ndim != 2 or seen.shape[1] != d or not len(seen):
        remedy = "Pass one patch a row: PatchGrid(y.shape, window).extract(y)."
        raise InputError("seen", f"have shape (c, {d}) with c ≥ 1", f"of shape {tuple(seen.shape)}", remedy)
    fitted, features = prior.fitted, prior.descriptor.of_patches(seen.to(prior.bank.seen))
    bank, z = fitted.clean.double(), z.to(fitted.clean.device, torch.float64)
    alphas: Iterable[Tensor] = [_mean_alpha(fitted, features)] if average else _alphas(fitted, features)
    found = torch.cat([torch.stack([_smallest(loss, alpha, bank, at) for at in z], 1) for alpha in alphas]) + beta
    # Rounding alone may leave this much below zero where the prior is flat in some direction.
    rounding = 1e-9 * max(1.0, float(found.abs().max()))
    return Curvature(found[0] if average else found, beta, bool(found.min() >= -rounding))


def _alphas(fitted: Fitted, features: Tensor) -> Iterator[Tensor]:
    """α(y) chunk by chunk, in float64: (c, d) -> (≤ c, m) each."""
    for piece in chunks(len(features), rows_that_fit(24 * len(fitted.clean), features.device)):
        yield fitted.alpha(features[piece]).double()


def _mean_alpha(fitted: Fitted, features: Tensor) -> Tensor:
    """ᾱ: (c, d) -> (1, m)."""
    total = torch.stack([alpha.sum(0) for alpha in _alphas(fitted, features)]).sum(0)
    return total[None] / len(features)


def _smallest(loss: Loss, alpha: Tensor, bank: Tensor, z: Tensor) -> Tensor:
    """The smallest eigenvalue of Σᵢ αᵢ∇²ℓ(z, xⁱ): alpha (c, m), bank (m, k), z (k,) -> (c,)."""
    difference = z - bank  # (m, k)
    distance = torch.linalg.vector_norm(difference, dim=1)
    stiffness, slope = alpha @ loss.weight(distance), alpha * loss.weight_slope(distance)
    curved = torch.stack([difference.mT @ (row[:, None] * difference) for row in slope])  # (c, k, k)
    return stiffness + torch.linalg.eigvalsh(curved)[:, 0]
