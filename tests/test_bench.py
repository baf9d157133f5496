"""The benchmark on folders of synthetic images: protocols, peers, store and runner."""

from __future__ import annotations

import importlib
import io
import itertools
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import typer
from PIL import Image
from rich.console import Console
from typer.main import get_command
from typer.testing import CliRunner

from slir.errors import FileError, InputError
from slir_bench import peers, printed, protocols, tables
from slir_bench.cli import bench_app
from slir_bench.peers.bicubic import enlarge
from slir_bench.peers.epll import EPLL, cut, glue, most_likely
from slir_bench.peers.forward import Forward, conjugate_gradients, first_guess
from slir_bench.peers.hyper_laplacian import shrink
from slir_bench.peers.mixture import Mixture, fit_mixture, patch_basis, sample_patches
from slir_bench.peers.sparse import decode, k_svd, matching_pursuit
from slir_bench.protocols import Case, blurred, groups, noise, psnr, shrunk
from slir_bench.results import Result, Results, fingerprint
from slir_bench.runner import run

pytestmark = pytest.mark.usefixtures("one_thread")


def scene(seed: int, size: tuple[int, int] = (72, 80)) -> np.ndarray:
    """Discs and half-planes of different grey over a soft gradient: edges in all directions, as in photographs."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[: size[0], : size[1]]
    image = 0.3 + 0.3 * rows / size[0] + 0.04 * np.sin(columns / 1.5) * (rows > size[0] / 2)
    for _ in range(14):
        middle, radius = rng.uniform(0, 1, 2) * size, rng.uniform(4, 18)
        edge = np.hypot(rows - middle[0], columns - middle[1]) - radius
        if rng.random() < 0.4:
            angle = rng.uniform(0, 2 * np.pi)
            edge = (rows - middle[0]) * np.cos(angle) + (columns - middle[1]) * np.sin(angle)
        image = image + (rng.uniform(0, 1) - image) / (1 + np.exp(np.clip(edge / 0.3, -30, 30))) * 0.8
    return protocols.eight_bits(image)


def skewed_kernel(size: int) -> np.ndarray:
    """A lopsided kernel, so that a flip or a shift shows."""
    rows, columns = np.mgrid[:size, :size] - size // 2
    kernel = np.exp(-((rows - columns / 2) ** 2) / 2 - (columns - 1) ** 2 / 8)
    return (kernel / kernel.sum()).astype(np.float32)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    names = {
        "bsd68": [f"test{i:03}" for i in range(1, 10)],
        "set12": ["01", "02"],
        "set5": ["baby", "bird"],
        "cbsd68": ["test001", "test002"],
        "bsds_train": [name for subject in protocols.COMPOSITION.values() for name in subject],
    }
    seed = 0
    for place, stems in names.items():
        (folder / place).mkdir()
        for stem in stems:
            seed += 1
            x = np.round(scene(seed) * 255).astype(np.uint8)
            colour = np.stack([x, x // 2, x // 3], axis=-1) if place in ("set5", "cbsd68", "bsds_train") else x
            Image.fromarray(colour).save(folder / place / f"{stem}.png")
    (folder / "kernels").mkdir()
    np.save(folder / "kernels" / "kernel1_17x17.npy", skewed_kernel(17))
    np.save(folder / "kernels" / "kernel2_19x19.npy", skewed_kernel(19))
    return folder


@pytest.fixture(scope="module")
def training() -> list[np.ndarray]:
    return [scene(100 + i) for i in range(12)]


@pytest.fixture(scope="module")
def gmm(training: list[np.ndarray]) -> dict[str, np.ndarray]:
    return EPLL(components=16, patches=6000, rounds=5).fit(training, deblurring_case())


def deblurring_case() -> Case:
    return blurred("deblurring", "kernel 1", "a", scene(11), skewed_kernel(13), seed=0)


def denoising_case(sigma: float = 25 / 255) -> Case:
    x = scene(11)
    return Case("denoising", "σ=25", "a", "denoise", x + np.float32(sigma) * noise(x.shape, 0), x, sigma)


def inpainting_case() -> Case:
    x = scene(11)
    mask = (torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.2).numpy()
    return Case("inpainting", "80 % missing", "a", "inpaint", np.where(mask, x, np.float32(0)), x, 0.0, mask=mask)


CASES = {
    "deblur": deblurring_case,
    "denoise": denoising_case,
    "upsample": lambda: shrunk("upsampling", "x2", "a", scene(11)),
    "inpaint": inpainting_case,
}

# ------------------------------------------------------------------------------------------------------ protocols


def test_protocols_shapes_and_determinism(data):
    expected = {"deblurring": (2, 9), "upsampling": (1, 2), "denoising": (3, 2), "composition": (5, 4)}
    for table, (settings, images) in (expected | {"inpainting": (1, 2)}).items():
        found, again = list(groups(table, data)), list(groups(table, data))
        assert [len(group.cases) for group in found] == [images] * settings
        for one, other in zip(found, again):
            for case, same in zip(one.cases, other.cases):
                assert case.y.dtype == case.clean.dtype == np.float32
                assert np.array_equal(case.y, same.y)
                assert Forward(case, "cpu").apply(torch.from_numpy(case.clean)).shape == case.y.shape


def test_deblurring_protocol_is_a_valid_true_convolution(data):
    case = next(groups("deblurring", data)).cases[3]
    k, half = case.psf, case.border
    assert case.y.shape == tuple(side - 2 * half for side in case.clean.shape) == case.target.shape
    r, c = 5, 11
    window = case.clean[r : r + 17, c : c + 17].astype(np.float64)
    exact = float((window * k[::-1, ::-1]).sum()) + 0.01 * noise(case.y.shape, 3)[r, c]
    assert abs(case.y[r, c] - exact) <= 0.5 / 255 + 1e-6
    assert np.allclose(case.y * 255, np.round(case.y * 255), atol=1e-4)


def test_subsets(data):
    assert [case.name for case in next(groups("deblurring", data, subset="subset9")).cases] == ["test001", "test009"]
    whole = next(groups("deblurring", data)).cases[8]
    assert np.array_equal(next(groups("deblurring", data, subset="subset9")).cases[1].y, whole.y)
    assert all(len(group.cases) == 1 for group in groups("denoising", data, subset="smoke"))


def test_upsampling_protocol(data):
    case = next(groups("upsampling", data)).cases[0]
    assert case.y.shape == (36, 40)
    assert case.clean.shape == (72, 80)
    r, c = 10, 12
    window = case.clean[2 * r - 3 : 2 * r + 4, 2 * c - 3 : 2 * c + 4].astype(np.float64)
    assert abs(case.y[r, c] - (window * case.psf).sum()) <= 0.5 / 255 + 1e-6


def test_composition_names_its_banks(data):
    found = {group.setting: group for group in groups("composition", data)}
    assert list(found) == ["penguin", "tiger", "bear", "building", "hybrid"]
    tests = {names[0] for names in protocols.COMPOSITION.values()}
    for group in found.values():
        stems = {path.stem for path in group.train}
        assert len(stems) == 4
        assert not stems & tests
    assert len(found["tiger"].train_images(10)) == 4


def test_inpainting_keeps_a_fifth(data):
    case = next(groups("inpainting", data)).cases[0]
    assert 0.15 < case.mask.mean() < 0.25
    assert np.array_equal(case.y[case.mask], case.clean[case.mask])
    assert not case.y[~case.mask].any()


def test_train_images(data):
    drawn = protocols.train_images(data, 5, seed=3)
    assert len(drawn) == 5
    assert all(image.dtype == np.float32 and image.ndim == 2 for image in drawn)
    assert all(np.array_equal(a, b) for a, b in zip(drawn, protocols.train_images(data, 5, seed=3)))


def test_psnr_takes_both_sizes_and_says_what_is_wrong():
    case = deblurring_case()
    off = case.clean + np.float32(0.1) * (case.clean < 0.5) - np.float32(0.1) * (case.clean >= 0.5)
    assert psnr(case, off) == pytest.approx(20, abs=1e-4)
    assert psnr(case, off[6:-6, 6:-6]) == psnr(case, off)
    with pytest.raises(InputError, match="shape"):
        psnr(case, off[1:])
    with pytest.raises(InputError, match="finite"):
        psnr(case, off * np.nan)


def test_missing_data_names_the_remedy(data, tmp_path):
    with pytest.raises(FileError, match=r"does not exist.*holds bsd68"):
        next(groups("deblurring", tmp_path))
    with pytest.raises(InputError, match="table must be one of"):
        groups("deblur", data)
    with pytest.raises(InputError, match="subset must be"):
        groups("deblurring", data, subset="half")
    (tmp_path / "bsd68").mkdir()
    (tmp_path / "bsds_train").mkdir()
    for folder in ("bsd68", "bsds_train"):
        (tmp_path / folder / "a.png").write_bytes(b"not an image")
    with pytest.raises(FileError, match="kernel1"):
        next(groups("deblurring", tmp_path))
    with pytest.raises(FileError, match="intact copy"):
        protocols.train_images(tmp_path, 1)
    with pytest.raises(FileError, match="lacks"):
        next(groups("composition", tmp_path))


def test_printed_means_agree_with_their_rows():
    for table in (printed.UPSAMPLING, printed.COMPOSITION):
        rows = [row for label, row in table.items() if label != "mean"]
        for column, value in table["mean"].items():
            assert np.mean([row[column] for row in rows]) == pytest.approx(value, abs=0.011)


# ---------------------------------------------------------------------------------------------------------- peers


@pytest.mark.parametrize("kind", CASES)
def test_forward_adjoint(kind):
    case = CASES[kind]()
    forward = Forward(case, "cpu")
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(case.clean.shape, generator=g), torch.randn(case.y.shape, generator=g)
    left, right = (forward.apply(x) * y).sum(), (x * forward.adjoint(y)).sum()
    assert abs(left - right) <= 1e-4 * forward.apply(x).norm() * y.norm()
    seen = forward.apply(torch.from_numpy(case.clean)).numpy()
    assert np.abs(seen - case.y).mean() <= max(case.sigma, 1 / 255)


def test_conjugate_gradients_solve():
    g = torch.Generator().manual_seed(0)
    a = torch.randn(20, 20, generator=g)
    a = a @ a.T + torch.eye(20)
    b = torch.randn(20, generator=g)
    x = conjugate_gradients(lambda v: a @ v, b, torch.zeros(20), steps=200, tolerance=1e-5)
    assert (a @ x - b).norm() <= 1e-3 * b.norm()


@pytest.mark.parametrize("beta", [1.0, 8.0, 256.0])
def test_shrink_against_brute_force(beta):
    v = torch.linspace(-2, 2, 81, dtype=torch.float64)
    w = torch.linspace(-2.5, 2.5, 50_001, dtype=torch.float64)[:, None]
    energy = w.abs() ** (2 / 3) + beta / 2 * (w - v) ** 2
    mine = shrink(v, beta, 2 / 3)
    reached = mine.abs() ** (2 / 3) + beta / 2 * (mine - v) ** 2
    assert (reached <= energy.min(0).values + 1e-6).all()


def test_z_step_against_brute_force(gmm):
    mixture, beta = Mixture.load(gmm, "cpu"), 200.0
    patches = cut(torch.from_numpy(first_guess(deblurring_case())))[:, ::397]
    basis = patch_basis(8).double()
    f, best = basis @ patches.double(), torch.full((patches.shape[1],), -math.inf, dtype=torch.float64)
    expected = torch.zeros_like(f)
    for weight, axes, spread in zip(mixture.weights.double(), mixture.axes.double(), mixture.spread.double()):
        covariance = axes @ spread.diag() @ axes.T
        noisy = covariance + torch.eye(63) / beta
        gauss = torch.distributions.MultivariateNormal(torch.zeros(63).double(), noisy)
        score = weight.log() + gauss.log_prob(f.T)
        expected = torch.where(score > best, covariance @ torch.linalg.solve(noisy, f), expected)
        best = torch.maximum(best, score)
    z = basis.T @ expected + patches.double().mean(0)
    assert torch.allclose(most_likely(patches, mixture, beta).double(), z, atol=2e-4)


def test_em_increases_the_likelihood(training):
    features = sample_patches(training, 3000, 8, seed=0)
    mixture, path = fit_mixture(features, 8, rounds=6, generator=torch.Generator().manual_seed(0))
    assert all(after >= before - 1e-3 for before, after in itertools.pairwise(path))
    assert path[-1] > path[0] + 1
    assert float(mixture.weights.sum()) == pytest.approx(1, abs=1e-4)
    one = torch.distributions.MultivariateNormal(
        torch.zeros(63).double(), (mixture.axes[0] * mixture.spread[0]).double() @ mixture.axes[0].T.double()
    )
    expected = one.log_prob(features[:, :5].T.double()) + 63 / 2 * math.log(2 * math.pi) + mixture.weights[0].log()
    assert torch.allclose(mixture.log_joint(features[:, :5])[0].double(), expected, rtol=1e-3, atol=0.5)


def test_glue_is_the_adjoint_of_cut():
    g = torch.Generator().manual_seed(0)
    x, z = torch.randn(20, 23, generator=g), torch.randn(64, 13 * 16, generator=g)
    assert float((cut(x) * z).sum()) == pytest.approx(float((x * glue(z, x.shape)).sum()), rel=1e-3, abs=1e-3)


def test_matching_pursuit_and_k_svd():
    g = torch.Generator().manual_seed(0)
    atoms = torch.nn.functional.normalize(torch.randn(24, 32, generator=g))
    index = torch.stack([torch.randperm(24, generator=g)[:2] for _ in range(400)])
    signals = decode(index, torch.randn(400, 2, generator=g) + 3, atoms)
    found, weight = matching_pursuit(signals, atoms, most=8, error=1e-6)
    assert (signals - decode(found, weight, atoms)).norm() < 1e-2 * signals.norm()
    start = torch.nn.functional.normalize(torch.randn(24, 32, generator=g))

    def loss(d: torch.Tensor) -> float:
        return float((signals - decode(*matching_pursuit(signals, d, most=2), d)).square().sum())

    assert loss(k_svd(signals, start, rounds=10, most=2)) < 0.5 * loss(start)


MARGINS = {
    ("bicubic", "upsample"): 4.0,
    ("linear", "inpaint"): 12.0,
    ("TV", "denoise"): 8.0,
    ("Wiener", "deblur"): 3.0,
    ("HL", "deblur"): 6.0,
    ("KSVD", "denoise"): 8.0,
    ("KSVD", "upsample"): 9.0,
    ("ANR", "upsample"): 8.0,
    ("BM3D", "denoise"): 10.0,
    ("EPLL", "deblur"): 6.0,
    ("EPLL", "denoise"): 7.0,
    ("EPLL", "upsample"): 9.0,
    ("EPLL", "inpaint"): 13.0,
}
"""How many dB above the start: y, with its pixels repeated for upsampling, and grey for what inpainting lacks."""


@pytest.mark.parametrize(("name", "kind"), MARGINS)
def test_peers_improve(name, kind, training, gmm):
    if name in ("TV", "Wiener"):
        pytest.importorskip("skimage")
    if name == "BM3D":
        pytest.importorskip("bm3d")
    case = CASES[kind]()
    peer = peers.ANR(atoms=64, pairs=6000, rounds=4) if name == "ANR" else peers.PEERS[name]()
    if name == "KSVD":
        peer = peers.KSVD(scale=0.08, rounds=(2, 4))
    peer.model = gmm if name == "EPLL" else peer.fit(training, case)
    assert peer.handles(case)
    start = np.repeat(np.repeat(case.y, case.factor, 0), case.factor, 1)
    if case.mask is not None:
        start = np.where(case.mask, start, np.float32(0.5))
    restored = peer.restore(case)
    assert psnr(case, restored) > psnr(case, start) + MARGINS[name, kind]
    assert np.abs(restored - peer.restore(case)).max() < 1e-3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("name", "kind"), [pair for pair in MARGINS if pair[0] in ("HL", "KSVD", "ANR", "EPLL")])
def test_peers_on_a_gpu(name, kind, training, gmm):
    options = {"ANR": {"atoms": 64, "pairs": 6000, "rounds": 4}, "KSVD": {"scale": 0.08, "rounds": (2, 4)}}.get(
        name, {}
    )
    case, both = CASES[kind](), []
    for device in ("cpu", "cuda"):
        peer = peers.PEERS[name](device=device, **options)
        peer.model = gmm if name == "EPLL" else peer.fit(training, case)
        both.append(psnr(case, peer.restore(case)))
    assert both[0] == pytest.approx(both[1], abs=0.5 if name in ("KSVD", "ANR") else 0.02)  # greedy fits may part ways
    if name == "EPLL":
        fitted = EPLL(components=16, patches=6000, rounds=5, device="cuda").fit(training, case)
        assert float(fitted["weights"].sum()) == pytest.approx(1, abs=1e-3)


def test_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "bm3d", None)
    with pytest.raises(peers.MissingPackageError, match=r"pip install 'slir-bench\[peers\]'"):
        peers.build("bm3d").restore(denoising_case())
    with pytest.raises(InputError, match="method must be one of"):
        peers.build("magic")


class Counter(peers.Peer):
    """A peer that counts its fits."""

    name = "counter"
    kinds = frozenset({"denoise"})
    images = 3
    fits = 0

    def fit(self, images, case):
        Counter.fits += 1
        return {"mean": np.array([image.mean() for image in images])}


def test_fits_are_kept(data, tmp_path):
    group = next(groups("denoising", data))
    first, second, third = (Counter({"a": 1}, cache=tmp_path) for _ in range(3))
    first.prepare(group)
    second.prepare(group)
    assert Counter.fits == 1
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(b"torn")
    third.prepare(group)
    assert Counter.fits == 2
    assert first.model["mean"].tolist() == second.model["mean"].tolist() == third.model["mean"].tolist()
    assert first.handles(group.cases[0])
    assert not first.handles(next(groups("composition", data)).cases[0])


# ----------------------------------------------------------------------------------------------- store and runner


class Dimmer:
    """A method that scales y and counts its calls."""

    name = "dimmer"

    def __init__(self, scale: float = 1.0):
        self.settings = {"scale": scale}
        self.restored: list[str] = []
        self.prepared = 0

    def handles(self, case: Case) -> bool:
        return case.kind in ("denoise", "deblur")

    def prepare(self, group) -> None:
        self.prepared += 1

    def restore(self, case: Case) -> np.ndarray:
        self.restored.append(f"{case.setting} {case.name}")
        return case.y * np.float32(self.settings["scale"])


def test_runs_resume_and_survive_a_torn_line(data, tmp_path):
    first, seen = Dimmer(), []
    store = run(["denoising"], [first], data, tmp_path, progress=seen.append, pictures=True)
    assert len(first.restored) == len(store) == 6
    assert first.prepared == 3
    assert [p.done for p in seen if p.result is not None] == [1, 2] * 3
    assert len(list(tmp_path.rglob("*.png"))) == 6
    assert not list(tmp_path.rglob("*.part"))

    text = store.path.read_text("utf-8")
    store.path.write_text(text[:-25], "utf-8")
    second = Dimmer()
    resumed = run(["denoising"], [second], data, tmp_path)
    assert second.restored == ["σ=50 02"]
    assert second.prepared == 1
    assert {r.key: r.psnr for r in resumed} == {r.key: r.psnr for r in store}
    assert len(Results(tmp_path)) == 6

    third = Dimmer()
    run(["denoising", "upsampling"], [third], data, tmp_path)
    assert not third.restored
    other = Dimmer(0.9)
    assert len(run(["denoising"], [other], data, tmp_path)) == 12
    assert {r.fingerprint for r in Results(tmp_path).newest()} == {fingerprint(other.settings)}


def test_store_exports(tmp_path):
    store = Results(tmp_path)
    for image, value in (("a", 30.0), ("b", 32.0)):
        store.add(Result("denoising", "σ=25", image, "m", "f", value, 1.0))
    assert [(mean.count, mean.psnr) for mean in store.means()] == [(2, 31.0)]
    csv, means, everything = (path.read_text("utf-8") for path in store.export())
    assert csv.splitlines()[1] == "denoising,σ=25,a,m,f,30.0,1.0"
    assert means.splitlines()[1] == "denoising,σ=25,m,f,2,31.0,1.0"
    assert len(json.loads(everything)["results"]) == 2
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1}) != fingerprint({"a": 1, "b": 3})


def test_unwritable_output_names_the_remedy(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FileError, match="Choose an output folder"):
        Results(tmp_path / "file")


def test_tables_render(data, tmp_path):
    store = run(["deblurring", "denoising", "composition"], [Dimmer()], data, tmp_path, subset="smoke")
    store = run(["upsampling"], ["bicubic"], data, tmp_path)
    console = Console(width=200, record=True, file=io.StringIO())
    for table in tables.render(store):
        console.print(table)
    text = console.export_text()
    for expected in ("27.21", "printed", "dimmer", "35.83", "(29.64)", "seconds an image"):
        assert expected in text


def test_the_figure_of_correlations(data: Path, tmp_path: Path) -> None:
    from slir_bench.figure import correlation_figure

    found = correlation_figure(data, tmp_path / "out", images=3, m=300)
    assert found["q"] < found["patches"]
    assert 0 <= found["iteration 1: mean outside 5×5"] <= found["iteration 1: largest outside 5×5"] <= 1
    assert np.asarray(Image.open(tmp_path / "out" / "correlation.png")).std() > 1
    maps = np.loadtxt(tmp_path / "out" / "correlation.csv", delimiter=",")
    assert len(maps) == 3 * maps.shape[1]
    assert maps.max() == pytest.approx(1)


def test_our_methods_run_and_gain(data: Path, tmp_path: Path) -> None:
    """Every column of ours on one small case of each table, from small banks."""
    from slir_bench.ours import ours

    methods = ours("cpu")
    for method in methods:
        method.own |= {"m": 400}
    store = run(["deblurring", "denoising", "upsampling", "composition"], methods, data, tmp_path, subset="smoke")
    found = {(r.table, r.setting, r.method): r.psnr for r in store}
    assert len({method for _, _, method in found}) == 4
    for (table, setting, method), value in found.items():
        assert value > {"deblurring": 18, "composition": 15, "denoising": 17, "upsampling": 20}[table], (
            setting,
            method,
        )
    assert ("composition", "hybrid", "slir ℓ2") in found


# ------------------------------------------------------------------------------------------------- the learnt kernel


def test_robustness_tells_the_method_something_else(data: Path) -> None:
    truth, *others = groups("robustness", data, subset="smoke")
    assert truth.cases[0].sigma == protocols.DEBLUR_SIGMA
    for other in others:
        case, own = other.cases[0], truth.cases[0]
        np.testing.assert_array_equal(case.y, own.y)
        assert case.psf is not None
        assert abs(float(case.psf.sum()) - 1) < 1e-5
        assert case.psf.shape == own.psf.shape
        assert (case.sigma != own.sigma) != (np.abs(case.psf - own.psf).max() > 0)


def test_what_ships_gains_on_every_table(data: Path, tmp_path: Path) -> None:
    from slir_bench import learnt

    store = learnt.main(data=data, out=tmp_path, subset="smoke", device="cpu")
    found = {(r.table, r.setting): r.psnr for r in store.newest()}
    assert {table for table, _ in found} == set(learnt.TABLES)
    for table in ("deblurring", "denoising", "colour", "upsampling"):
        for group in groups(table, data, subset="smoke"):
            case = group.cases[0]
            seen = case.y if case.kind != "upsample" else enlarge(case.y, 2)
            assert found[table, group.setting] > psnr(case, seen) + 1
    assert found["inpainting", "80 % missing"] > 20
    assert found["robustness", "σ 20 % too large"] > found["robustness", "told the truth"] - 0.5


# --- the command ---------------------------------------------------------------------------------------------------


def test_bench_hands_its_options_on(tmp_path, monkeypatch):
    noted = []
    monkeypatch.setitem(sys.modules, "slir_bench.paper", SimpleNamespace(main=lambda **named: noted.append(named)))
    words = ["paper", "--data", tmp_path, "--out", tmp_path / "o", "--subset", "--table", "denoising", "--peers"]
    shown = CliRunner().invoke(bench_app, [str(word) for word in words])
    assert shown.exit_code == 0, shown.output
    (named,) = noted
    assert named == {
        "data": tmp_path,
        "out": tmp_path / "o",
        "subset": "subset9",
        "device": None,
        "peers": True,
        "tables": ["denoising"],
        "progress": False,
    }


@pytest.mark.parametrize("name", ["paper", "learnt", "trust", "speed", "correlation"])
def test_each_command_shows_an_example_that_can_be_run(name, monkeypatch):
    command = get_command(bench_app).commands[name]
    (example,) = (line for line in command.help.splitlines() if line.startswith("Example: "))
    noted = []
    module = SimpleNamespace(main=lambda **named: noted.append(name), TASKS=("denoise",))
    module.correlation_figure = lambda *_, **__: noted.append(name) or {"q": 0.5}
    monkeypatch.setitem(sys.modules, f"slir_bench.{'figure' if name == 'correlation' else name}", module)
    words = example.removeprefix("Example: slir bench ").split()
    assert words[0] == name
    shown = CliRunner().invoke(bench_app, words)
    assert shown.exit_code == 0, shown.output
    assert noted == [name]
    for param in command.params:
        assert param.help.rstrip().endswith((".", ")"))


def test_slir_finds_the_commands_of_other_distributions(monkeypatch):
    app = typer.Typer()
    app.command(name="first")(lambda: None)
    cli_app = importlib.import_module("slir.cli.app")
    monkeypatch.setattr(cli_app, "app", app)
    plugin = SimpleNamespace(name="bench", load=lambda: bench_app)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [plugin] if group == "slir.commands" else [])
    cli_app._add_plugins()
    assert "correlation" in get_command(app).commands["bench"].commands
