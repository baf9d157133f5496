"""Conjugate gradient by fused kernels: on a GPU where there is one, interpreted else."""

from __future__ import annotations

import pytest
import torch

from slir import fused, psf
from slir.operators import Blur
from slir.solvers import cg as module
from slir.solvers.cg import cg
from slir.solvers.system import System

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("one_thread")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("shape", [(17, 40), (33, 64), (64, 65)])
@pytest.mark.parametrize("smooth", [0.0, 0.02])
@pytest.mark.parametrize("hinted", [True, False])
def test_fused_steps_walk_where_plain_ones_do(
    shape: tuple[int, int], hinted: bool, smooth: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blur's hint gives views of larger images, whose rows do not touch."""
    generator = torch.Generator().manual_seed(0)
    rhs, start = (torch.randn(shape, generator=generator).to(DEVICE) for _ in range(2))
    system = System(Blur(psf.gaussian(1.0)), 1.0, 0.05, smooth)
    hint = system.preconditioner(rhs) if hinted else None
    monkeypatch.setattr(module, "LOOK", 4)
    runs = []
    for usable in (False, True):
        monkeypatch.setattr(fused, "usable", lambda like, usable=usable: usable)
        runs.append(cg(system.apply, rhs, start=start, precondition=hint, tol=1e-5))
    plain, quick = runs
    assert quick.verdict == plain.verdict
    assert abs(quick.stats["steps"] - plain.stats["steps"]) <= 4
    torch.testing.assert_close(quick.value, plain.value, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(system.apply(quick.value), rhs, rtol=0, atol=1e-4 * float(rhs.norm()))


def test_a_direction_that_does_not_curve_ends_the_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "usable", lambda like: True)
    rhs = torch.ones(16, 16, device=DEVICE)
    found = cg(lambda x: -x, rhs)
    assert found.verdict.name == "INDEFINITE"
    assert bool((found.value == 0).all())
