"""The theory in use: held-out curves, the law they follow, reports, their words, files and pictures."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import slir
from slir import io, theory
from slir.cli import app
from slir.errors import InputError
from slir.kernel.degradations import Noise
from slir.kernel.shipped import shipped_model, training_pictures
from slir.operators import Blur, Downsample, Identity, Mask
from slir.theory import charts, curves, files, rates, words
from slir.theory.curves import Curves
from slir.theory.rates import Rate
from slir.weights import Kernel, NadarayaWatson

pytestmark = pytest.mark.usefixtures("one_thread")
runner = CliRunner()


def small(count: int = 4, side: int = 40) -> list[Tensor]:
    """Crops of photographs, one a picture."""
    return [picture[100 : 100 + side, 120 : 120 + side].contiguous() for picture in training_pictures()[:count]]


def noise(count: int = 4, side: int = 24) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.rand(side, side, generator=generator) for _ in range(count)]


def planted(law: Rate, n=(1, 2, 4, 8), m=(64, 128, 256, 512, 1024), splits: int = 5, scatter: float = 0.0) -> Curves:
    """Curves that follow a law, some splits being harder than others; scatter: relative, of each number."""
    mean = law(np.array(m), np.array(n)[:, None])
    hard = 1 + 0.5 * np.linspace(-1, 1, splits)[:, None, None]
    wobble = 1 + scatter * np.random.default_rng(0).standard_normal((splits, len(n), len(m)))
    return Curves(tuple(n), tuple(m), mean * hard * wobble, 0.01, 0.02, ((0,),) * splits, ((1,),) * splits)


# ---- q from fewer pairs, and from a bank


def test_partners_estimate_the_same_q() -> None:
    images, descriptor, kernel = small(3, 32), slir.descriptors.DctDescriptor(), Kernel("gaussian", 0.5)
    settings = {"size": 8, "kernel": kernel}
    whole = theory.patch_correlation(images, descriptor, **settings)
    found = [theory.patch_correlation(images, descriptor, **settings, partners=60, seed=k) for k in range(60)]
    within = np.array([each.within for each in found])
    assert within.std() > 0
    assert abs(within.mean() - whole.within) < 4 * within.std() / 60**0.5
    assert found[0].between == pytest.approx(whole.between, rel=1e-6)
    with pytest.raises(InputError, match="partners must"):
        theory.patch_correlation(images, descriptor, **settings, partners=1)


def test_q_of_a_bank_is_that_of_its_images() -> None:
    images = small(4, 48)
    model = slir.paper_model(images, Identity(), 0.05, "squared", "krr", m=4000, seed=1)
    prior = model.paper_stages[0].prior
    stored = theory.prior_correlation(prior)
    settings = {"m": 4000, "s": prior.weights.s, "centres": None, "seed": 1}
    measured = theory.bank_correlation(images, Identity(), 0.05, **settings)
    assert stored.images == 4
    assert stored.patches == 41**2  # every border was sampled
    assert stored.within == pytest.approx(measured.within, rel=0.02)
    assert stored.q == pytest.approx(measured.q, rel=0.1)
    alone = slir.paper_model(images[:1], Identity(), 0.05, "squared", m=100).paper_stages[0].prior
    with pytest.raises(InputError, match="at least two images"):
        theory.prior_correlation(alone)


# ---- held-out curves


def test_curves_hold_images_out() -> None:
    """Without noise, a patch that the bank holds is its own nearest neighbour: any leak would show as no error."""
    weights = NadarayaWatson(0.01)
    found = theory.heldout_curves(noise(5), Identity(), 0.0, weights=weights, m=128, folds=5, test=50)
    assert found.n == (1, 2, 4)
    assert found.m == (8, 16, 32, 64, 128)
    assert found.errors.shape == (5, 3, 5)
    assert (found.errors > 0.5 * found.spread).all()
    assert found.seen == pytest.approx(0, abs=1e-12)
    assert sorted(image for split in found.held_out for image in split) == [0, 1, 2, 3, 4]
    for outside, pool in zip(found.held_out, found.training):
        assert sorted(outside + pool) == [0, 1, 2, 3, 4]


def test_curves_are_those_of_the_estimator() -> None:
    """The last cell of one split by hand: the bank, its weights, and the patches of the image that was held out."""
    images, sigma = small(3), 0.1
    seeds = torch.randint(2**31, (3,), generator=torch.Generator().manual_seed(7)).tolist()
    found = theory.heldout_curves(images, Identity(), sigma, weights="krr", s=0.8, lam=1e-3, m=64, test=30, seed=7)
    assert found.weights == {"kind": "krr", "lam": 1e-3, "s": 0.8, "kernel": "gaussian"}
    descriptor = slir.descriptors.DctDescriptor()
    drawn = []
    for image, own in zip(images, seeds):
        bank = slir.bank.sample_bank([image], Identity(), sigma, m=64, seed=own)
        order = torch.randperm(64, generator=torch.Generator().manual_seed(own))
        drawn.append((bank.seen[order], bank.clean[order] - bank.clean[order].mean(1, keepdim=True)))
    first, second = found.training[0]
    seen = descriptor.of_patches(torch.cat([drawn[first][0][:32], drawn[second][0][:32]]))
    clean = torch.cat([drawn[first][1][:32], drawn[second][1][:32]])
    query, truth = drawn[found.held_out[0][0]]
    alpha = slir.weights.KernelRidge(1e-3, 0.8).fit(seen, clean).alpha(descriptor.of_patches(query[:30]))
    assert found.errors[0, 1, -1] == pytest.approx(float((alpha @ clean - truth[:30]).square().mean()), rel=1e-4)


def test_curves_are_reproducible_and_fall() -> None:
    images = [part.contiguous() for row in training_pictures()[0].split(96) for part in row.split(96, 1)][::4]
    settings = {"weights": "krr", "m": 512, "folds": 4, "test": 100}
    found = theory.heldout_curves(images, Identity(), 0.1, **settings)
    again = theory.heldout_curves(images, Identity(), 0.1, **settings)
    np.testing.assert_array_equal(found.errors, again.errors)
    other = theory.heldout_curves(images, Identity(), 0.1, **settings, seed=1)
    assert not np.array_equal(found.errors, other.errors)
    assert (found.mean[:, -1] < found.mean[:, 0]).all()
    assert found.mean[-1, -1] < 0.8 * found.spread
    assert found.weights["lam"] in curves.RIDGES
    assert found.seen == pytest.approx(0.01 * 63 / 64, rel=0.05)  # σ², but for the mean


def test_chosen_ridge_suits_the_noise() -> None:
    """Noise asks for more ridge than none."""
    chosen = [
        theory.heldout_curves(small(4, 48), Identity(), sigma, weights="krr", m=64, test=50).weights["lam"]
        for sigma in (0.0, 0.5)
    ]
    assert chosen[0] < chosen[1]


def test_paired_errors_leave_out_what_splits_share() -> None:
    found = planted(Rate(0.001, 0.02, 0.01, 0.3, 0.0), scatter=0.01)
    assert (found.paired_error < 0.2 * found.standard_error).all()


@pytest.mark.parametrize("view", ["seen", "clean"])
def test_windows_and_views(view: str) -> None:
    descriptor = slir.descriptors.DctDescriptor(10 if view == "seen" else None)
    settings = {"weights": "nw", "m": 64, "descriptor": descriptor, "view": view, "test": 40}
    found = theory.heldout_curves(small(3), Blur(np.ones((3, 3)) / 9), 0.01, **settings)
    assert 0 < found.seen < found.spread
    assert np.isfinite(found.errors).all()


def test_curves_refuse() -> None:
    with pytest.raises(InputError, match="images must hold at least two pictures"):
        theory.heldout_curves(noise(1), Identity(), 0.1)
    with pytest.raises(InputError, match=r"images\[1\] must show at least 32 patches of 8×8"):
        theory.heldout_curves([*noise(1), torch.rand(9, 9)], Identity(), 0.1)
    with pytest.raises(InputError, match="m must be at least 32"):
        theory.heldout_curves(noise(2), Identity(), 0.1, m=4)
    with pytest.raises(InputError, match="folds must"):
        theory.heldout_curves(noise(2), Identity(), 0.1, folds=1)
    with pytest.raises(InputError, match="psf must"):
        theory.heldout_curves(noise(2), Blur(np.ones((31, 31)) / 961), 0.1)


# ---- the law


@pytest.mark.parametrize("law", [Rate(0.002, 0.03, 0.01, 0.4, 0.0), Rate(0.0, 0.02, 0.0, 0.2, 0.0)])
def test_law_is_found_again(law: Rate) -> None:
    found = theory.fit_rate(planted(law))
    assert found.misfit < 0.005
    assert found.power == pytest.approx(law.power, rel=0.15)
    assert found.kappa == pytest.approx(law.kappa, rel=0.3, abs=1e-5)
    assert found(2048, 8) == pytest.approx(law(2048, 8), rel=0.02)
    wavering = theory.fit_rate(planted(law, scatter=0.02))
    assert 0 < wavering.power_error < 0.5


def test_bound_s_law_has_its_own_power_and_kappa() -> None:
    found = theory.bound_rate(planted(Rate(0.003, 0.01, (1 + 99) / 5000, 0.25, 0.0)), q=99, patches=5000)
    assert (found.power, found.kappa) == (0.25, 0.02)
    assert found.misfit < 1e-10
    assert (found.floor, found.scale) == (pytest.approx(0.003), pytest.approx(0.01))
    shape = theory.bound(np.array([64, 1024]), 4, q=99, patches=5000) / 12
    assert found(np.array([64, 1024]), 4) == pytest.approx(0.003 + 0.01 * shape)


def test_fit_is_never_negative() -> None:
    rising = planted(Rate(0.0, 1.0, 0.0, 0.2, 0.0))
    found = theory.fit_rate(replace(rising, errors=1 / rising.errors))  # more patches are worse: nothing to extrapolate
    assert found.scale == 0
    assert found.floor > 0


def test_gains_by_hand() -> None:
    errors = np.array([[[4.0, 3.0], [4.0, 2.0]], [[8.0, 6.0], [6.0, 3.0]]])
    found = Curves((1, 2), (8, 16), errors, 0.0, 1.0, ((0,), (1,)), ((1,), (0,)))
    patches, images = rates.gains(found)
    assert patches.share == pytest.approx(0.5)
    assert patches.error == pytest.approx(0)
    assert images is not None
    assert images.share == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert images.error == pytest.approx(1 / 12)
    lead = rates.preference(found)
    assert lead is not None
    assert lead.share == pytest.approx((-1 / 3 + 0) / 2)  # e(m, n/2) = 3, 6 against e(m/2, n) = 4, 6


# ---- words


@pytest.fixture(scope="module")
def base() -> theory.Report:
    return theory.report(small(4), Identity(), 0.1, m=64, test=40)


def told(base: theory.Report, law: Rate, **settings) -> theory.Report:
    found = planted(law, **settings)
    return replace(base, curves=found, rate=theory.fit_rate(found), n=max(found.n))


def test_advice_follows_the_measurements(base: theory.Report) -> None:
    images = told(base, Rate(0.001, 0.02, 1.0, 0.4, 0.0), scatter=0.005)
    assert images.advice.startswith("More images")
    assert "at a bank of about 8 patches" in images.advice
    patches = told(base, Rate(0.001, 0.02, 0.0, 0.4, 0.0), scatter=0.005)
    assert patches.advice.startswith("More patches")
    assert "as if they were independent" in patches.advice
    vague = replace(images, rate=replace(images.rate, kappa=0.01, kappa_error=0.015))
    assert "not the better choice before a bank of about 200 patches of 8 images" in vague.advice
    assert told(base, Rate(0.01, 1e-6, 0.1, 0.4, 0.0), scatter=0.001).advice.startswith("Neither")
    law = Rate(0.001, 0.02, 8 / 1024, 0.4, 0.0)  # where both are worth the same
    assert told(base, law, scatter=0.05).advice.startswith("Either")
    alone = told(base, law, n=(1,))
    assert alone.advice.startswith("Doubling the patches still helps")
    assert replace(base, curves=None).advice.startswith("Nothing was measured")


def test_turning_point_is_where_doublings_are_worth_the_same() -> None:
    law = Rate(0.001, 0.02, 0.01, 0.3, 0.0)
    more_patches, more_images = words._next(law, 800, 8)
    assert more_patches == pytest.approx(more_images)


# ---- reports


def test_report_agrees_with_its_parts(base: theory.Report) -> None:
    assert base.curves is not None
    assert base.correlation is not None
    assert (base.task, base.sigma, base.m, base.n) == ("denoise", 0.1, 64, 4)
    assert (base.c, base.c_printed) == (pytest.approx(0.2), pytest.approx(0.1))
    q = max(base.correlation.q, 0)
    assert base.lam == pytest.approx(theory.lam(64, q=q, patches=33**2, n=4))
    assert base.bound == pytest.approx(theory.bound(64, 4, q=q, patches=33**2, c=0.2))
    text = base.text()
    for part in ("q ", "lambda", "bound", "Held-out error", "The law", "Advice", f"{base.lam:.3g}"):
        assert part in text
    assert f"{100 * base.curves.mean[0, 0] ** 0.5:.2f}" in text


def test_record_is_json(base: theory.Report) -> None:
    found = json.loads(json.dumps(files.plain(base.record()), allow_nan=False))
    assert found["curves"]["n"] == [1, 2]
    assert np.array(found["curves"]["errors"]).shape == (4, 2, 5)
    assert found["seed"] == 0
    assert found["advice"] == base.advice
    assert found["gains"]["patches"]["share"] == pytest.approx(base.gains[0].share)


def test_report_by_other_operators() -> None:
    missing = torch.zeros(40, 40, dtype=torch.bool)
    missing[::2] = True
    settings = {"weights": "nw", "m": 32, "test": 20}
    blurred = theory.report(small(3), Blur(slir.psf.gaussian(0.8)), 0.01, **settings)
    assert (blurred.task, blurred.c, blurred.c_printed) == ("deblur", 1.0, None)
    assert "nothing better is known" in blurred.text()
    masked = theory.report(small(3), Mask(missing), 0.0, **settings)
    assert masked.c == pytest.approx(0.5**0.5)
    assert theory.report(small(3), Downsample(2), 0.0, **settings).task == "upsample"


def test_theorem_s_ridge_is_used_when_asked() -> None:
    found = theory.report(small(3), Identity(), 0.1, m=32, test=20, lam="theorem")
    assert found.curves is not None
    assert found.curves.weights["lam"] == pytest.approx(found.lam)
    given = theory.report(small(3), Identity(), 0.1, m=32, test=20, lam=0.02)
    assert given.curves is not None
    assert given.curves.weights["lam"] == 0.02


def test_two_images_say_so() -> None:
    found = theory.report(small(2), Identity(), 0.1, m=32, test=20, folds=5)
    assert found.curves is not None
    assert found.curves.n == (1,)
    assert any("Two images" in note for note in found.notes)
    assert set(files.plots(found)) == {"error-by-patches.png"}
    assert "takes three or more" in found.advice


def test_report_refuses() -> None:
    with pytest.raises(InputError, match="operator must be given"):
        theory.report(small(2))
    with pytest.raises(InputError, match="sigma must be given"):
        theory.report(small(2), Identity())
    with pytest.raises(InputError, match="sigma must be a number from 0 to 1"):
        theory.report(small(2), Identity(), 25)
    with pytest.raises(InputError, match="images must hold at least two"):
        theory.report([], Identity(), 0.1)
    with pytest.raises(InputError, match="lam must be a number, 'theorem' or None"):
        theory.report(small(2), Identity(), 0.1, lam="best", m=32)


# ---- models


def test_report_of_a_bank() -> None:
    images = small(4)
    model = slir.paper_model(images[:3], Identity(), 0.1, "squared", "krr", m=300)
    alone = theory.report(model=model)
    assert alone.correlation is not None
    assert (alone.m, alone.n, alone.curves) == (300, 3, None)
    q = max(alone.correlation.q, 0)
    assert alone.lam == pytest.approx(theory.lam(300, q=q, patches=alone.correlation.patches, n=3))
    assert alone.c == pytest.approx(0.2)
    assert "300" in alone.text()
    found = theory.report(images, model=model, m=64, test=200)
    assert found.curves is not None
    assert found.curves.weights == model.paper_stages[0].prior.weights.settings()
    assert any("learnt from 3 of these 4" in note for note in found.notes)
    assert found.model_error is not None
    assert 0 < found.model_error < found.curves.mean[0, 0]  # 300 patches beat 4
    assert "of its bank" in found.text()


def test_model_of_one_blur_asks_for_it() -> None:
    images, blur = small(3), Blur(slir.psf.gaussian(0.8))
    model = slir.paper_model(images, blur, 0.01, "squared", m=100)
    with pytest.raises(InputError, match="operator must be given unless a model specifies it"):
        theory.report(images, model=model, m=32)
    found = theory.report(images, blur, model=model, m=32, test=20)
    assert found.sigma == 0.01
    assert found.model_error is None  # there is no image that the bank was not learnt from


def test_report_of_a_learnt_kernel(tmp_path) -> None:
    model = shipped_model("denoise")
    alone = theory.report(model=model)
    assert alone.correlation is None
    assert alone.model is not None
    assert [path.name for path in alone.save(tmp_path)] == ["theory.txt", "theory.json"]
    found = theory.report(small(3), Identity(), 0.1, model=model, m=32, test=20)
    assert found.task == "denoise"
    assert found.correlation is not None
    family = {"family": Noise(0.05, 0.1).describe()}
    drawn = theory.report(small(3), model=replace(model, provenance=family), m=32, test=20)
    assert any("drawn with seed 0" in note for note in drawn.notes)


# ---- files and pictures


def test_files(base: theory.Report, tmp_path) -> None:
    assert base.curves is not None
    written = base.save(tmp_path / "new" / "folder")
    assert {path.name for path in written} == set(files.NAMES)
    assert (tmp_path / "new/folder/theory.txt").read_text(encoding="utf-8") == base.text() + "\n"
    rows = (tmp_path / "new/folder/curves.csv").read_text().splitlines()
    assert len(rows) == 1 + 2 * 5
    n, m, mean, *_ = rows[-1].split(",")
    assert (int(n), int(m)) == (2, 64)
    assert float(mean) == pytest.approx(base.curves.mean[-1, -1], rel=1e-4)
    for name in files.PLOTS[:2]:
        pixels = io.read(tmp_path / "new/folder" / name).pixels
        assert pixels.shape == (charts.HEIGHT, charts.WIDTH, 3)


def test_chart_draws_where_values_are() -> None:
    red, blue = (255, 0, 0), (0, 0, 255)
    series = [
        charts.Series("low", [1, 10, 100], [1.0, 1.0, 1.0], red, style="line"),
        charts.Series("high", [1, 10, 100], [2.0, 2.0, 2.0], blue, bars=[0.1, 0.1, 0.1]),
    ]
    drawn = charts.line_chart(series, title="t", subtitle="s", x=charts.Axis("x"), y=charts.Axis("y"))
    inside = drawn[:, : charts.WIDTH - 212].astype(int)
    low = np.argwhere((inside - np.array(red)).__abs__().sum(-1) < 60)
    high = np.argwhere((inside - np.array(blue)).__abs__().sum(-1) < 60)
    assert low[:, 0].min() > high[:, 0].max()  # rows count downwards
    assert np.ptp(low[:, 0]) < 6  # a level line
    columns = np.unique(high[:, 1])
    gaps = np.flatnonzero(np.diff(columns) > 5)
    assert len(gaps) == 2  # three points
    middles = [part.mean() for part in np.split(columns, gaps + 1)]
    assert middles[1] - middles[0] == pytest.approx(middles[2] - middles[1], abs=2)  # logarithmic


@pytest.mark.parametrize("limits", [(7.4, 8.8), (0.02, 3.0), (1e-4, 1.1e-4), (28.0, 31.9), (5, 900)])
def test_ticks_are_few_round_and_inside(limits) -> None:
    ticks = charts.Axis("y").chosen(*limits)
    assert 3 <= len(ticks) <= 13
    assert all(limits[0] <= tick <= limits[1] for tick in ticks)
    assert len({f"{tick:g}" for tick in ticks}) == len(ticks)


# ---- the command


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    for number, plane in enumerate(small(3)):
        io.write(tmp_path / "in" / f"{number}.png", io.Picture((255 * plane).round().byte().numpy()))
    return tmp_path


def run(*words, code: int = 0) -> str:
    result = runner.invoke(app, ["theory", *map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def test_command_prints_writes_and_keeps(folder) -> None:
    out = folder / "out"
    words = (folder / "in", "--sigma", "25", "--patches", 32, "--out", out)
    text = run(*words)
    assert "Advice" in text
    assert f"sigma {25 / 255:.4g}" in text
    assert (out / "error-by-images.png").exists()
    assert "exists already" in run(*words, code=2)
    found = json.loads(run(*words, "--force", "--json"))
    assert found == json.loads((out / "theory.json").read_text())
    assert found["sigma"] == pytest.approx(25 / 255)


def test_command_takes_tasks(folder) -> None:
    words = (folder / "in", "--patches", 32, "--json", "--weights", "nw")
    blur = json.loads(run(*words, "--gaussian", 0.8))
    assert (blur["task"], blur["sigma"]) == ("deblur", 0.01)
    masked = json.loads(run(*words, "--task", "inpaint", "--missing", "50%"))
    assert masked["c"] == pytest.approx(0.5**0.5, rel=0.05)


def test_command_refuses(folder) -> None:
    first = folder / "in" / "0.png"
    assert "IMAGES must be two at least" in run(first, code=2)
    io.write(folder / "tiny.png", io.Picture(np.zeros((9, 9), np.uint8)))
    assert "tiny.png must show at least 32 patches" in " ".join(run(first, folder / "tiny.png", code=2).split())
    assert "the blur must be given with --task deblur" in run(folder / "in", "--task", "deblur", code=2)
    assert "psf must be no larger than the image" in run(folder / "in", "--gaussian", 12, code=2)
    assert "--lam must be positive" in run(folder / "in", "--lam", "-1", code=2)
    assert "--sigma must be a number" in run(folder / "in", "--sigma", "auto", code=2)
    assert "is a file" in run(folder / "in", "--out", first, code=2)
