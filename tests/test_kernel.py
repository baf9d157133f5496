"""The learnt kernel: the network against plain sums over patches, its stage in the loop, files, channels, tiles."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import slir
from slir import operators
from slir.errors import FileError
from slir.estimator.loop import begin, restore
from slir.estimator.state import State
from slir.estimator.tiling import restore_tiled
from slir.kernel.network import FEATURES, LEAD, PATCH, STRIDE, KernelNetwork
from slir.kernel.stage import DATA_WEIGHT, STAGES, KernelStage, ridge, scheduled_level, stages
from slir.model import Model
from slir.trust.calibrate import calibrate_model


@pytest.fixture(scope="module")
def network() -> KernelNetwork:
    """Untrained, and small; the last layer is scaled so that its corrections are of the noise's size."""
    torch.manual_seed(0)
    net = KernelNetwork((8, 12, 16), blocks=1)
    for weight in net.patches.parameters():
        weight.data *= 0.2
    return net.requires_grad_(False)


@pytest.fixture(scope="module")
def picture() -> torch.Tensor:
    rows, cols = torch.meshgrid(torch.arange(72.0), torch.arange(88.0), indexing="ij")
    return 0.5 + 0.2 * torch.sin(rows / 5) * torch.cos(cols / 7) + 0.2 * (cols > 40)


def averaged_by_loops(patches: torch.Tensor, channels: int) -> torch.Tensor:
    """Each patch written where it belongs, each pixel divided by the number of patches that reach it."""
    _, _, rows, cols = patches.shape
    total = torch.zeros(channels, STRIDE * rows + 2 * LEAD, STRIDE * cols + 2 * LEAD)
    count = torch.zeros_like(total)
    values = patches[0].view(channels, PATCH, PATCH, rows, cols)
    for i in range(rows):
        for j in range(cols):
            place = (..., slice(STRIDE * i, STRIDE * i + PATCH), slice(STRIDE * j, STRIDE * j + PATCH))
            total[place] += values[..., i, j]
            count[place] += 1
    inner = (..., slice(LEAD, LEAD + STRIDE * rows), slice(LEAD, LEAD + STRIDE * cols))
    return total[inner] / count[inner]


@pytest.mark.parametrize("channels", [1, 3])
def test_features_are_homogeneous(network: KernelNetwork, channels: int) -> None:
    planes = [torch.randn(1, channels, 32, 40) for _ in range(3)]
    level = torch.full((1, 1, 1, 1), 0.1)
    trunk = network.trunk(*planes, level)
    larger = network.trunk(*(7 * p for p in planes), 7 * level)
    assert network.features(trunk, channels).shape == (1, FEATURES, 16, 20)
    torch.testing.assert_close(network.features(larger, channels), 7 * network.features(trunk, channels))
    errors = network.expected_error(trunk, channels)
    assert errors.shape == planes[0].shape
    assert bool((errors >= 0).all())
    torch.testing.assert_close(network.expected_error(larger, channels), 7 * errors)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_estimate_is_x_less_the_averaged_corrections(network: KernelNetwork, channels: int) -> None:
    """Against patches that are added up one by one."""
    y = torch.rand(1, channels, 24, 32)
    trunk = network.trunk(y, y, torch.zeros_like(y), torch.full_like(y, 0.1))
    corrections = network.corrections(network.features(trunk, channels), channels)
    torch.testing.assert_close(network.estimate(y, trunk)[0], y[0] - averaged_by_loops(corrections, channels))


def test_any_size_is_restored_at_its_size(network: KernelNetwork) -> None:
    model = Model(stages(network, 1))
    for shape in [(16, 16), (17, 23), (33, 40)]:
        assert restore(torch.rand(shape), operators.Identity(), model, sigma=0.1).x.shape == shape


def test_denoising_is_homogeneous(network: KernelNetwork, picture: torch.Tensor) -> None:
    """A dim picture is restored as a bright one: no unit, no range."""
    y = picture + 0.05 * torch.randn(picture.shape)
    model = Model(stages(network, 1))
    dim = restore(y / 1000, operators.Identity(), model, sigma=0.1 / 1000).x
    torch.testing.assert_close(1000 * dim, restore(y, operators.Identity(), model, sigma=0.1).x, rtol=1e-4, atol=1e-5)


def test_the_x_update_solves_its_normal_equations(network: KernelNetwork, picture: torch.Tensor) -> None:
    """Against a dense solve: the x that the second stage sees."""
    picture = picture[:24, :24].contiguous()
    blur = operators.Blur(slir.psf.gaussian(1.0), border="reflect")
    y = blur.forward(picture)
    model = Model(stages(network, 2))
    seen: list[torch.Tensor] = []
    original = KernelStage.estimate
    with pytest.MonkeyPatch.context() as patch:

        def watched(stage: KernelStage, state: State, *, errors: bool) -> tuple[torch.Tensor, None]:
            z, _ = original(stage, state)
            seen.extend([state.x, z])
            return z, None

        patch.setattr(KernelStage, "estimate", watched)
        result = restore(y, blur, model, sigma=0.02)
    _, z, x, last = seen
    eye = torch.eye(picture.numel()).view(-1, 24, 24)
    dense = blur.forward(eye).reshape(picture.numel(), -1).T.double()
    weight = DATA_WEIGHT * (0.02 / scheduled_level(1.0, 0.02)) ** 2
    assert weight == pytest.approx(ridge(1.0, 0.02))
    left = dense.T @ dense + weight * torch.eye(picture.numel(), dtype=torch.float64)
    right = dense.T @ y.reshape(-1).double() + weight * z.reshape(-1).double()
    torch.testing.assert_close(x.reshape(-1).double(), torch.linalg.solve(left, right), rtol=0, atol=1e-4)
    torch.testing.assert_close(result.x, last)


def test_levels_fall_from_the_first_to_the_noise() -> None:
    levels = [scheduled_level(stage.share, 0.02) for stage in stages(KernelNetwork((8, 12, 16), 1), 4)]
    assert levels == sorted(levels, reverse=True)
    assert levels[-1] == pytest.approx(0.02)
    ratios = np.array(levels[1:]) / np.array(levels[:-1])
    np.testing.assert_allclose(ratios, ratios[0])


def test_known_pixels_of_a_mask_keep_their_own_noise(network: KernelNetwork, picture: torch.Tensor) -> None:
    missing = torch.rand(picture.shape) < 0.5
    stage = stages(network, 3)[0]
    model = Model(stages(network, 3))
    state = begin(picture * ~missing, operators.Mask(missing), model, 0.01)
    level = torch.as_tensor(stage.level(state))
    torch.testing.assert_close(level[missing], torch.full_like(level[missing], scheduled_level(0.0, 0.01)))
    torch.testing.assert_close(level[~missing], torch.full_like(level[~missing], 0.01))


def cases(picture: torch.Tensor) -> list[tuple[operators.Operator, float]]:
    missing = torch.rand(picture.shape, generator=torch.Generator().manual_seed(1)) < 0.5
    return [
        (operators.Identity(), 0.1),
        (operators.Blur(slir.psf.gaussian(1.2)), 0.02),
        (operators.Downsample(2, "bicubic"), 0.0),
        (operators.Mask(missing), 0.0),
    ]


@pytest.mark.parametrize("case", range(4))
def test_channels_are_solved_each_with_its_own_noise(network: KernelNetwork, picture: torch.Tensor, case: int) -> None:
    """Three channels go through the loop at once; a network that sees no colour gives what single planes give."""
    operator, sigma = cases(picture)[case]
    grey_only = KernelNetwork((8, 12, 16), blocks=1).requires_grad_(False)
    for weight in grey_only.patches.parameters():
        weight.zero_()
    x = torch.stack([picture, picture.flip(0), 0.5 * picture])
    y = operator.forward(x)
    model = Model(stages(grey_only, 1 if isinstance(operator, operators.Identity) else 3))
    together = restore(y, operator, model, sigma=[sigma] * 3)
    for c, part in enumerate(together.channels()):
        alone = restore(y[c], operator, model, sigma=sigma)
        torch.testing.assert_close(part.x, alone.x, rtol=0, atol=2e-4)
        assert part.residual == pytest.approx(alone.residual, abs=1e-4)


def test_colours_are_seen_together(network: KernelNetwork, picture: torch.Tensor) -> None:
    """The estimate of one channel depends on the others."""
    y = torch.stack([picture] * 3) + 0.1 * torch.randn(3, *picture.shape)
    model = Model(stages(network, 1))
    first = restore(y, operators.Identity(), model, sigma=[0.1] * 3).x[0]
    y[1] += 0.1
    assert not torch.allclose(first, restore(y, operators.Identity(), model, sigma=[0.1] * 3).x[0], atol=1e-4)


@pytest.mark.parametrize("channels", [0, 3])
@pytest.mark.parametrize("case", range(4))
def test_tiles_agree_with_the_whole(network: KernelNetwork, case: int, channels: int) -> None:
    generator = torch.Generator().manual_seed(2)
    shape = (40, 480)
    picture = torch.rand(shape, generator=generator)
    operator, sigma = cases(picture)[case]
    x = torch.stack([picture, picture.flip(1), picture**2]) if channels else picture
    y = operator.forward(x)
    model = Model(stages(network, 1 if isinstance(operator, operators.Identity) else 3))
    noise: float | list[float] = [sigma] * 3 if channels else sigma
    whole = restore_tiled(y, operator, model, sigma=noise, tile=10_000)
    tiled = restore_tiled(y, operator, model, sigma=noise, tile=64)
    assert len(tiled.stats) > len(whole.stats)  # it was cut
    torch.testing.assert_close(tiled.x, whole.x, rtol=0, atol=1e-4)
    np.testing.assert_allclose(tiled.residual, whole.residual, atol=1e-4)


@pytest.mark.filterwarnings("ignore::slir.errors.SlirWarning")  # an untrained network explains nothing
@pytest.mark.parametrize("task", ["denoise", "deblur", "upsample", "inpaint"])
def test_tasks_take_a_model_with_a_learnt_kernel(network: KernelNetwork, task: str) -> None:
    """Arrays with three channels and alpha: the colours go together, the alpha alone; progress reaches its end."""
    rng = np.random.default_rng(0)
    smooth = np.cumsum(np.cumsum(rng.standard_normal((48, 56)), 0), 1)
    smooth = (smooth - smooth.min()) / np.ptp(smooth)
    image = (255 * np.stack([smooth, 0.9 * smooth, 0.8 * smooth, smooth**2], -1)).astype(np.uint8)
    model = Model(stages(network, 1 if task == "denoise" else 2))
    seen, shown = [], []
    arguments = {
        "denoise": (),
        "deblur": (slir.psf.gaussian(1.0),),
        "upsample": (2,),
        "inpaint": (rng.random((48, 56)) < 0.5,),
    }[task]
    result = getattr(slir, task)(
        image, *arguments, sigma=5, model=model, channel_axis=-1, data_range=255,
        progress=lambda done, total, what: seen.append((done, total)), observe=shown.append, return_info="stats",
    )  # fmt: skip
    scale = 2 if task == "upsample" else 1
    assert result.image.shape == (48 * scale, 56 * scale, 4)
    assert result.image.dtype == np.uint8
    assert seen[-1][0] == seen[-1][1]
    assert shown[-1].shape == result.image.shape
    assert len(result.stats["residual"]) == 4


def test_a_model_comes_back_from_its_file(network: KernelNetwork, picture: torch.Tensor, tmp_path) -> None:
    model = Model(stages(network, 3), {"family": {"kind": "any"}})
    path = tmp_path / "kernel.safetensors"
    model.save(str(path))
    again = slir.load(str(path), device="cpu")
    blur = operators.Blur(slir.psf.gaussian(1.0))
    y = blur.forward(picture)
    torch.testing.assert_close(
        restore(y, blur, again, sigma=0.02).x, restore(y, blur, model, sigma=0.02).x, rtol=0, atol=2e-3
    )
    again.save(str(tmp_path / "twice.safetensors"))
    assert (tmp_path / "twice.safetensors").read_bytes() == path.read_bytes()


def test_a_file_whose_weights_do_not_fit_is_refused(network: KernelNetwork, tmp_path) -> None:
    from safetensors import safe_open
    from safetensors.torch import save_file

    path = tmp_path / "kernel.safetensors"
    Model(stages(network, 1)).save(str(path))
    with safe_open(str(path), framework="pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    del tensors["network.tail.grey.weight"]
    save_file(tensors, str(path), metadata=metadata)
    with pytest.raises(FileError, match="weights do not fit"):
        slir.load(str(path), device="cpu")


def test_a_kernel_comes_back_from_its_file_with_the_errors_of_each_task(network: KernelNetwork, tmp_path) -> None:
    from slir.io.models import load_kernel, write_kernel
    from slir.kernel.degradations import Noise
    from slir.kernel.learnt import LearntKernel

    bare, generator = LearntKernel(network), torch.Generator().manual_seed(0)
    pictures = [torch.rand(3, 48, 48, generator=generator), torch.rand(48, 48, generator=generator)]
    what = {"pictures": 2}
    settings = {"crops": 8, "side": 48, "what": what, "grain": (0.0,), "generator": generator}
    trust = calibrate_model(pictures, Noise(0.05, 0.1), bare.model("denoise"), **settings)
    assert trust.pixels == 2 * 3 * 48**2 + 6 * 48**2  # colours are calibrated too
    kernel = LearntKernel(network, {"denoise": trust}, None, {"steps": 3})
    path = tmp_path / "kernel.safetensors"
    write_kernel(path, kernel)
    again = load_kernel(path)
    assert again.provenance == {"steps": 3}
    assert again.model("deblur").trust is None
    assert len(again.model("deblur").stages) == STAGES
    found = again.model("denoise").trust
    assert found is not None
    assert found.sigma == trust.sigma
    torch.testing.assert_close(found.calibrations[0].quantiles, trust.calibrations[0].quantiles)
    with pytest.raises(FileError, match="not a slir model"):
        slir.load(path, device="cpu")
    Model(stages(network, 1)).save(str(tmp_path / "model.safetensors"))
    with pytest.raises(FileError, match="not a slir model"):
        load_kernel(tmp_path / "model.safetensors")


def test_errors_of_colours_and_grey_are_told_beside_the_estimate(network: KernelNetwork, picture: torch.Tensor) -> None:
    """The last network's, whatever comes after it."""
    from dataclasses import replace

    from slir.kernel.degradations import Noise

    model, generator = Model(stages(network, 2)), torch.Generator().manual_seed(0)
    blur = operators.Blur(slir.psf.gaussian(1.0))
    settings = {"crops": 4, "side": 64, "what": {}, "grain": (0.0,), "generator": generator}
    trust = calibrate_model([picture], Noise(0.05, 0.1), Model(stages(network, 1)), **settings)
    model = replace(model, trust=replace(trust, sigma=(0.0, 1.0)))
    for y in (blur.forward(picture), blur.forward(torch.stack([picture, picture.flip(0), picture**2]))):
        sigma = 0.05 if y.ndim == 2 else [0.05] * 3
        with_errors, without = (restore(y, blur, model, sigma=sigma, errors=own) for own in (True, False))
        assert with_errors.error is not None
        assert without.error is None
        assert with_errors.error.shape == with_errors.x.shape
        torch.testing.assert_close(with_errors.x, without.x)
