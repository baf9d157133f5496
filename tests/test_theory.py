"""The constants of the theory: against double loops, hand-computed values, geometry and automatic differentiation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from slir import theory
from slir.bank import Bank
from slir.descriptors import DctDescriptor
from slir.errors import InputError
from slir.estimator.loop import restore
from slir.fitting import paper_model
from slir.losses import Euclidean, Huber, Loss, Squared
from slir.model import Model, Prior
from slir.operators import Blur, Downsample, Identity, Mask, Operator
from slir.patches import PatchGrid
from slir.theory import correlation as correlation_module
from slir.weights import Kernel, KernelRidge, NadarayaWatson, Nystrom, Weights

pytestmark = pytest.mark.usefixtures("one_thread")

PLAIN = DctDescriptor(keep_dc=True)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ---- q


def q_by_loops(images: list[Tensor], size: int, kernel: Kernel) -> float:
    patches = [PatchGrid((image.shape[0], image.shape[1]), size).extract(image) for image in images]

    def squared(a: Tensor, b: Tensor) -> float:
        distance = float((a - b).norm())
        power = distance**2 / (2 * kernel.bandwidth**2) if kernel.name == "gaussian" else distance / kernel.bandwidth
        return float(np.exp(-power)) ** 2

    within = [sum(squared(a, b) for a in own for b in own) for own in patches]
    between = [
        sum(squared(a, b) for a in patches[i] for b in patches[j])
        for i in range(len(images))
        for j in range(len(images))
        if i != j
    ]
    return (float(np.mean(within)) - float(np.mean(between))) / len(patches[0])


@pytest.mark.parametrize("name", ["gaussian", "laplacian"])
def test_q_is_its_definition(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    images, kernel = [noise(5, 6, seed=i) for i in range(3)], Kernel(name, 0.7)
    expected = q_by_loops(images, 3, kernel)
    whole = theory.patch_correlation(images, PLAIN, size=3, kernel=kernel)
    # Rounding in ‖f − f′‖² passes through a square root on its way to the Laplacian kernel.
    assert whole.q == pytest.approx(expected, rel=1e-9 if name == "gaussian" else 1e-7)
    assert whole.patches == 12
    assert whole.images == 3
    assert whole.q == pytest.approx(whole.within - whole.between)
    monkeypatch.setattr(correlation_module, "rows_that_fit", lambda *_: 1)
    assert theory.patch_correlation(images, PLAIN, size=3, kernel=kernel).q == pytest.approx(whole.q, rel=1e-7)


def test_jackknife_is_leaving_one_out() -> None:
    images, kernel = [noise(6, 6, seed=i) ** (1 + i) for i in range(5)], Kernel("gaussian", 0.5)
    found = theory.patch_correlation(images, PLAIN, size=2, kernel=kernel)
    without = [theory.patch_correlation(images[:i] + images[i + 1 :], PLAIN, size=2, kernel=kernel).q for i in range(5)]
    assert found.error == pytest.approx(float(np.std(without)) * 2, rel=1e-9)  # √((n−1)/n · n) with n = 5
    assert np.isnan(theory.patch_correlation(images[:2], PLAIN, size=2, kernel=kernel).error)


def test_drawn_centres_agree_on_average_and_follow_the_seed() -> None:
    images, kernel = [noise(12, 12, seed=i) ** (1 + i % 3) for i in range(4)], Kernel("gaussian", 0.4)
    whole = theory.patch_correlation(images, PLAIN, size=3, kernel=kernel)
    some = [theory.patch_correlation(images, PLAIN, size=3, kernel=kernel, centres=20, seed=s).q for s in range(60)]
    assert np.mean(some) == pytest.approx(whole.q, abs=4 * np.std(some) / 60**0.5)
    assert np.std(some) > 0
    again = theory.patch_correlation(images, PLAIN, size=3, kernel=kernel, centres=20, seed=7)
    assert again.q == some[7]
    assert theory.patch_correlation(images, PLAIN, size=3, kernel=kernel, centres=10_000).q == whole.q


def test_q_of_independent_patches() -> None:
    """Patches that do not overlap, of white noise: only p = p' is correlated, which adds 1 − E k(y_p, y'_p)²."""
    images = [noise(32, 32, seed=i) for i in range(30)]
    wide = theory.patch_correlation(images, PLAIN, size=4, stride=4, kernel=Kernel("gaussian", 50.0))
    assert wide.patches == 64
    assert abs(wide.q) < 0.01
    narrow = theory.patch_correlation(images, PLAIN, size=4, stride=4, kernel=Kernel("gaussian", 0.1))
    assert narrow.q == pytest.approx(1.0, abs=0.05)
    middling = theory.patch_correlation(images, PLAIN, size=4, stride=4, kernel=Kernel("gaussian", 1.0))
    alike = middling.between / middling.patches
    assert middling.q == pytest.approx(1 - alike, abs=4 * middling.error + 0.05)


def test_q_of_equal_patches() -> None:
    images = [noise(4, 4, seed=i).tile(5, 5) for i in range(6)]
    found = theory.patch_correlation(images, PLAIN, size=4, stride=4, kernel=Kernel("gaussian", 0.2))
    assert found.patches == 25
    assert found.q == pytest.approx(25, rel=0.02)
    assert found.error < 0.5


def test_q_of_images_of_several_sizes() -> None:
    kernel = Kernel("gaussian", 0.2)
    images = [noise(4, 4, seed=i).tile(3 + i, 4) for i in range(4)]  # |P| = 12, 16, 20, 24
    found = theory.patch_correlation(images, PLAIN, size=4, stride=4, kernel=kernel)
    assert found.patches == 18
    assert found.q == pytest.approx(18, rel=0.02)


def test_q_of_a_bank_has_the_model_s_kernel() -> None:
    images = [noise(24, 20, seed=i).float() for i in range(3)]
    settings = {"size": 4, "window": 6, "keep_dc": False, "seed": 3}
    operator = Blur(np.ones((3, 3)) / 9)
    model = paper_model(images, operator, 0.05, m=200, s=0.3, **settings)
    prior = model.stages[0].prior
    seen = theory.iterates(images, operator, 0.05, model, count=1, seed=3)[0]
    assert seen[0].shape == (22, 18)
    expected = theory.patch_correlation(seen, prior.descriptor, size=4, kernel=prior.fitted.kernel)
    found = theory.bank_correlation(images, operator, 0.05, m=200, s=0.3, centres=None, **settings)
    assert found.q == pytest.approx(expected.q, rel=1e-6)
    lam = theory.theorem_lam(images, operator, 0.05, m=200, s=0.3, centres=None, kernel="gaussian", **settings)
    assert lam == pytest.approx((1 / 200 + expected.q / (expected.patches * 3)) ** 0.5, rel=1e-6)


def test_q_refuses() -> None:
    kernel = Kernel("gaussian", 1.0)
    with pytest.raises(InputError, match="images must hold at least two"):
        theory.patch_correlation([noise(8, 8)], PLAIN, size=4, kernel=kernel)
    with pytest.raises(InputError, match="centres must"):
        theory.patch_correlation([noise(8, 8)] * 2, PLAIN, size=4, kernel=kernel, centres=0)
    with pytest.raises(InputError, match="one shape"):
        theory.central_correlation([noise(8, 8), noise(9, 8)], PLAIN, size=4, kernel=kernel)
    with pytest.raises(InputError, match="centred"):
        theory.central_correlation([noise(8, 8)], PLAIN, size=4, kernel=kernel, centred=True)


# ---- the map around the central patch


def crops(side: int) -> list[Tensor]:
    data = pytest.importorskip("skimage.data")
    image = torch.from_numpy(data.camera()).float() / 255
    return [image[r : r + side, c : c + side] for r in range(40, 512 - side, 80) for c in range(20, 512 - side, 80)]


def test_correlation_map_of_a_photograph() -> None:
    images = crops(37)
    operator = Blur(np.ones((5, 5)) / 25)
    model = paper_model(images, operator, 0.01, m=150, stages=3, beta0=3.0)
    maps = theory.correlation_map(images, operator, 0.01, model)
    assert maps.shape == (3, 26, 26)  # y is 33×33
    for one in maps:
        assert np.unravel_index(one.argmax(), one.shape) == (13, 13)
        assert one[13, 13] == pytest.approx(1, abs=1e-4)
        rings = [np.mean([one[13 - r, 13], one[13 + r, 13], one[13, 13 - r], one[13, 13 + r]]) for r in (0, 1, 3, 9)]
        assert (np.diff(rings) < 0).all()
    centred = theory.correlation_map(images, operator, 0.01, model, iterations=1, centred=True, power=2)
    assert centred[0, 13, 13] < 1
    assert abs(centred[0, [0, 0, -1, -1], [0, -1, 0, -1]].mean()) < 0.25 * centred[0, 13, 13]


def test_centred_map_is_a_row_of_q() -> None:
    """With one patch it is q itself; with more, it is what a double loop over images gives."""
    images, kernel = [noise(6, 6, seed=i) for i in range(4)], Kernel("gaussian", 0.6)
    one = theory.central_correlation(images, PLAIN, size=6, kernel=kernel, power=2, centred=True)
    assert one.item() == pytest.approx(theory.patch_correlation(images, PLAIN, size=6, kernel=kernel).q)
    found = theory.central_correlation(images, PLAIN, size=2, kernel=kernel, power=2, centred=True)
    patches = [PatchGrid((6, 6), 2).extract(image) for image in images]
    gram = np.array([[kernel.gram(a[12:13], b).square().numpy()[0] for b in patches] for a in patches])  # (n, n, P)
    own = np.mean([gram[i, i] for i in range(4)], 0)
    others = np.mean([gram[i, j] for i in range(4) for j in range(4) if i != j], 0)
    np.testing.assert_allclose(found.ravel(), own - others, atol=1e-12)


@pytest.mark.parametrize("splitting", ["hqs", "admm"])
def test_iterates_are_what_stages_see(splitting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    images = [noise(16, 14, seed=i).float() for i in range(2)]
    model = paper_model(images, Identity(), 0.1, m=50, size=4, stages=3, beta0=1.0, splitting=splitting)
    seen = theory.iterates(images, Identity(), 0.1, model, seed=5)
    assert [len(planes) for planes in seen] == [2, 2, 2]
    described: list[Tensor] = []
    original = DctDescriptor.features

    def spy(self: DctDescriptor, image: Tensor, grid: PatchGrid, rows: slice = slice(None)) -> Tensor:
        described.append(image.clone())
        return original(self, image, grid, rows)

    monkeypatch.setattr(DctDescriptor, "features", spy)
    restore(seen[0][1], Identity(), model)  # x⁽⁰⁾ is y for the identity
    for planes, expected in zip(seen, described, strict=True):
        torch.testing.assert_close(planes[1], expected)
    with pytest.raises(InputError, match="iterations must"):
        theory.iterates(images, Identity(), 0.1, model, count=4)


def test_map_needs_a_kernel() -> None:
    class Plain(Weights):
        def fit(self, features: Tensor, clean: Tensor):
            return object()

        def settings(self) -> dict:
            return {}

    model = paper_model([noise(12, 12).float()], Identity(), 0.1, "squared", Plain(), m=20, size=4)
    with pytest.raises(InputError, match="weights with a kernel"):
        correlation_module.kernel_of(model.stages[0].prior)


# ---- c_{B,σ}


def test_ratios_as_printed() -> None:
    missing = torch.zeros(4, 4, dtype=torch.bool)
    missing[0] = True
    assert theory.constraint_ratio(Identity(), 0.1) == pytest.approx(0.1)
    assert theory.constraint_ratio(Identity(), 0.4, 16, per_pixel=False) == pytest.approx(0.4 / 4)
    assert theory.constraint_ratio(Identity(), 3.0) == 1
    assert theory.constraint_ratio(Mask(missing)) == pytest.approx(0.25**0.5)
    assert theory.constraint_ratio(Downsample(2)) == pytest.approx(4**-0.5)
    assert theory.constraint_ratio(Downsample(3)) < theory.constraint_ratio(Downsample(2))  # the print, reversed


def test_exact_ratios() -> None:
    missing = torch.zeros(4, 4, dtype=torch.bool)
    missing[0] = True
    ratio = theory.constraint_ratio
    assert ratio(Identity(), 0.1, exact=True) == pytest.approx(0.2)
    assert ratio(Identity(), 0.4, 16, per_pixel=False, exact=True) == pytest.approx(0.2)
    assert ratio(Mask(missing), exact=True) == pytest.approx(0.5)
    assert ratio(Mask(missing), 0.1, exact=True) == pytest.approx((0.25 + 4 * 0.01 * 0.75) ** 0.5)
    assert ratio(Mask(missing), 0.4, per_pixel=False, exact=True) == pytest.approx((0.25 + 4 * 0.01) ** 0.5)
    assert ratio(Mask(missing), 9.0, exact=True) == pytest.approx(1)
    decimate = [Downsample(f, np.ones((1, 1))) for f in (1, 2, 3)]
    assert [ratio(b, exact=True) for b in decimate] == pytest.approx([0, 0.75**0.5, (8 / 9) ** 0.5])
    assert ratio(Downsample(2, "box"), exact=True) == 1


def diameter(operator: Operator, x: Tensor, free: Tensor, sigma: float, *, draws: int = 400) -> float:
    """The largest distance met between random points of {x ∈ [0,1]ᵈ : ‖Bx − Bx₀‖ ≤ σ}, relative to √d.

    Points: the `free` pixels at random corners, the others moved by a random vector of length σ, clipped to the cube
    (which moves them closer to x₀, itself in the cube).
    """
    generator = torch.Generator().manual_seed(0)
    y, points = operator.forward(x), []
    for _ in range(draws):
        corner = torch.randint(2, x.shape, generator=generator).double()
        move = torch.randn(x.shape, generator=generator, dtype=torch.float64).sign() * ~free
        moved = (x + sigma * move / move.norm().clamp_min(1e-12)).clamp(0, 1)
        point = torch.where(free, corner, moved)
        assert float((operator.forward(point) - y).norm()) <= sigma + 1e-9
        points.append(point.ravel())
    distances = torch.cdist(torch.stack(points), torch.stack(points))
    return float(distances.max()) / x.numel() ** 0.5


def test_exact_ratios_hold_and_are_nearly_met() -> None:
    x = torch.full((3, 4), 0.5, dtype=torch.float64)
    missing = torch.zeros(3, 4, dtype=torch.bool)
    missing[1, :3] = True
    cases: list[tuple[Operator, Tensor, float, Tensor]] = [
        (Identity(), torch.zeros_like(missing), 0.3, x),
        (Mask(missing), missing, 0.0, x),
        (Mask(missing), missing, 0.4, x),
    ]
    even, seen = torch.full((4, 4), 0.5, dtype=torch.float64), torch.zeros(4, 4, dtype=torch.bool)
    seen[::2, ::2] = True
    cases += [(Downsample(2, np.ones((1, 1))), ~seen, sigma, even) for sigma in (0.0, 0.2)]
    for operator, free, sigma, start in cases:
        met = diameter(operator, start, free, sigma)
        limit = theory.constraint_ratio(operator, sigma, start.numel(), per_pixel=False, exact=True)
        assert 0.85 * limit < met <= limit + 1e-9
    printed = theory.constraint_ratio(Downsample(2, np.ones((1, 1))))
    assert diameter(cases[-2][0], even, ~seen, 0.0) > printed  # so the print is no upper bound


def test_an_averaging_filter_leaves_the_whole_diameter() -> None:
    board = (torch.arange(6)[:, None] + torch.arange(6)).remainder(2).double()
    box = Downsample(2, "box")
    torch.testing.assert_close(box.forward(board), box.forward(1 - board))
    assert float((board - (1 - board)).norm()) == pytest.approx(6)  # √d


def test_ratio_refuses() -> None:
    with pytest.raises(InputError, match=r"operator must be Identity, Mask or Downsample.*c=1"):
        theory.constraint_ratio(Blur(np.ones((3, 3)) / 9))
    with pytest.raises(InputError, match="n_pixels must"):
        theory.constraint_ratio(Identity(), 0.1, per_pixel=False)
    with pytest.raises(InputError, match="sigma must"):
        theory.constraint_ratio(Identity(), -0.1)


# ---- λ and the bound


def test_lam_by_hand() -> None:
    assert theory.lam(10_000, q=0, patches=100, n=4) == pytest.approx(0.01)
    assert theory.lam(100, q=3, patches=25, n=4, r=2) == pytest.approx(2 * 0.2)
    assert np.asarray(theory.lam([100, 400], q=0, patches=9, n=1)) == pytest.approx([0.1, 0.05])


def test_bound_by_hand() -> None:
    # 1/m + (1 + q)/(|P|n) = 1/20,000 + 1/20,000 = 10⁻⁴, whose fourth root is 1/10
    assert theory.bound(20_000, 10, q=0, patches=2000) == pytest.approx(1.2)
    assert theory.bound(20_000, 10, q=1, patches=4000, c=0.25, r=4, g=0.5) == pytest.approx(12 * 0.5 * 2 * 0.5 * 0.1)


def test_lam_and_bound_fall_with_m_and_n() -> None:
    m, n = np.array([10, 100, 1000, 10_000]), np.array([1, 4, 16])
    for values in (theory.lam(m[:, None], q=50, patches=900, n=n), theory.bound(m[:, None], n, q=50, patches=900)):
        assert values.shape == (4, 3)
        assert (np.diff(values, axis=0) < 0).all()
        assert (np.diff(values, axis=1) < 0).all()


@pytest.mark.parametrize("bad", [{"q": -1.0}, {"patches": 0}, {"n": 0}, {"m": [5, -1]}, {"r": float("nan")}])
def test_lam_and_bound_refuse(bad: dict) -> None:
    given = {"m": 10, "n": 2, "q": 1.0, "patches": 9, "r": 1.0, **bad}
    with pytest.raises(InputError, match=f"{next(iter(bad))} must"):
        theory.lam(given.pop("m"), **given)
    given = {"m": 10, "n": 2, "q": 1.0, "patches": 9, "r": 1.0, **bad}
    with pytest.raises(InputError, match=f"{next(iter(bad))} must"):
        theory.bound(given.pop("m"), given.pop("n"), **given)


# ---- convexity


def made_prior(weights: Weights, *, m: int = 30, size: int = 3) -> Prior:
    clean = noise(m, size**2, seed=1)
    return Prior(Bank(clean + 0.2 * noise(m, size**2, seed=2), clean, torch.zeros(m, 3)), DctDescriptor(), weights)


@pytest.mark.parametrize("loss", [Euclidean(), Squared(), Huber(0.7)])
@pytest.mark.parametrize("weights", [NadarayaWatson(), KernelRidge(1e-3, 0.5), Nystrom(1e-3, 0.5, centres=10)])
def test_curvature_is_that_of_the_energy(loss: Loss, weights: Weights) -> None:
    prior = made_prior(weights)
    seen, z = noise(7, 9, seed=3), noise(2, 9, seed=4) - 0.5
    found = theory.smallest_curvature(prior, seen, z, loss=loss, beta=0.3)
    assert found.eigenvalue.shape == (2,)
    alpha = prior.fitted.alpha(prior.descriptor.of_patches(seen))  # (7, m)

    def energy(at: Tensor, weights: Tensor) -> Tensor:
        terms = loss.value(torch.linalg.vector_norm(at - prior.fitted.clean, dim=1))
        return weights @ terms + 0.15 * (at - 0.1).square().sum()

    for value, at in zip(found.eigenvalue, z):
        hessian = torch.autograd.functional.hessian(lambda v: energy(v, alpha.mean(0)), at)
        assert float(value) == pytest.approx(float(torch.linalg.eigvalsh(hessian)[0]), rel=1e-6, abs=1e-9)
    each = theory.smallest_curvature(prior, seen, z, loss=loss, beta=0.3, average=False)
    assert each.eigenvalue.shape == (7, 2)
    hessian = torch.autograd.functional.hessian(lambda v: energy(v, alpha[5]), z[1])
    assert float(each.eigenvalue[5, 1]) == pytest.approx(float(torch.linalg.eigvalsh(hessian)[0]), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("loss", [Euclidean(), Squared(), Huber(0.7)])
def test_nadaraya_watson_is_always_convex(loss: Loss) -> None:
    prior = made_prior(NadarayaWatson())
    z = noise(20, 9, seed=5) - 0.5
    found = theory.smallest_curvature(prior, noise(10, 9, seed=6), z, loss=loss, average=False)
    assert found.convex
    assert float(found.eigenvalue.min()) >= -1e-9
    assert found.beta_needed < 1e-9


def test_signed_weights_may_need_beta() -> None:
    prior = made_prior(KernelRidge(1e-6, 2.0))
    seen, z = noise(10, 9, seed=6), noise(5, 9, seed=7) - 0.5
    bare = theory.smallest_curvature(prior, seen, z, loss=Euclidean(), average=False)
    assert not bare.convex
    assert bare.beta_needed > 0
    mended = theory.smallest_curvature(prior, seen, z, loss=Euclidean(), beta=bare.beta_needed, average=False)
    assert mended.convex


def test_curvature_of_models_and_stages() -> None:
    images = [noise(16, 14, seed=i).float() for i in range(2)]
    model: Model = paper_model(images, Identity(), 0.1, weights="krr", m=40, size=4, beta0=0.7, stages=2)
    seen, z = PatchGrid((16, 14), 4).extract(images[0]), noise(3, 16) - 0.5
    first = theory.smallest_curvature(model, seen, z)
    assert first.beta == 0.7
    second = theory.smallest_curvature(model.stages[1], seen, z)
    assert second.beta == 1.4
    torch.testing.assert_close(second.eigenvalue - first.eigenvalue, torch.full((3,), 0.7, dtype=torch.float64))
    prior = model.stages[0].prior
    with pytest.raises(InputError, match="loss must"):
        theory.smallest_curvature(prior, seen, z)
    with pytest.raises(InputError, match="beta must"):
        theory.smallest_curvature(prior, seen, z, loss=Euclidean(), beta=-1)
    with pytest.raises(InputError, match="z must"):
        theory.smallest_curvature(model, seen, z[:, 1:])
    with pytest.raises(InputError, match="seen must"):
        theory.smallest_curvature(model, seen[:, 1:], z)
