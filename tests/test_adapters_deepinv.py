"""slir in deepinv: physics as operators and back, with equal results; restorations by either's way of calling."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import deepinv.physics as dinv
import pytest
import torch
from deepinv.optim import DPIR, HQS, L2, PnP
from deepinv.physics.functional import gaussian_blur

import slir
from slir.adapters.deepinv import Denoiser, OperatorPhysics, Reconstructor, from_physics, to_physics
from slir.adapters.physics import PhysicsOperator
from slir.errors import InputError, SlirWarning
from slir.kernel.shipped import demo_picture
from slir.operators import Blur, Compose, Downsample, Identity, Linear, Mask, Operator, PerChannel, adjoint_error

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:.*padding.*:UserWarning:deepinv"),
]

COLOUR = torch.from_numpy(demo_picture()).permute(2, 0, 1)[None, :, 64:112, 64:112].float() / 255
GREY = COLOUR.mean(1, keepdim=True)
COMPLEX = torch.cat([GREY, torch.zeros_like(GREY)], 1)  # real and imaginary parts
SIZE = (1, 24, 30)
GAUSSIAN = gaussian_blur(sigma=(1.2, 1.2))


def psf(tall: int, wide: int, *, count: int = 1, channels: int = 1) -> torch.Tensor:
    """Without any symmetry, so that a flip or a shift would show."""
    drawn = torch.rand(count, channels, tall, wide, generator=torch.Generator().manual_seed(tall + wide))
    return drawn / drawn.sum((-2, -1), keepdim=True)


def psnr(image: torch.Tensor, truth: torch.Tensor) -> float:
    return float(-10 * torch.log10((image - truth).square().mean()))


def noise(sigma: float | torch.Tensor, seed: int = 0) -> dinv.GaussianNoise:
    return dinv.GaussianNoise(sigma, rng=torch.Generator().manual_seed(seed))


def random_mask(*shape: int, share: float = 0.5) -> torch.Tensor:
    return (torch.rand(shape, generator=torch.Generator().manual_seed(1)) < share).float()


def some_frequencies() -> torch.Tensor:
    """Half of them, among these the lowest."""
    mask = random_mask(1, 1, 48, 48)
    mask[..., 20:28, 20:28] = 1
    return mask


# Physics as operators


SIDES = [(5, 5), (4, 4), (5, 4), (3, 3)]
OWN: dict[str, tuple[Callable[[], dinv.LinearPhysics], type[Operator]]] = {
    "denoising": (dinv.Denoising, Identity),
    "inpainting": (lambda: dinv.Inpainting(SIZE, mask=random_mask(*SIZE)), Mask),
    "matlab 2": (lambda: dinv.DownsamplingMatlab(2), Downsample),
    "matlab 3": (lambda: dinv.DownsamplingMatlab(3), Downsample),
    "decimation": (lambda: dinv.Downsampling(SIZE, filter=None, factor=2), Downsample),
    "replicate, where it mirrors": (lambda: dinv.Blur(psf(3, 3), padding="replicate"), Blur),
}
OWN |= {
    f"{padding} {sides}, fft {fft}": (lambda p=padding, s=sides, f=fft: dinv.Blur(psf(*s), padding=p, use_fft=f), Blur)
    for padding in ("valid", "circular")
    for sides in SIDES
    for fft in (False, True)
}
OWN |= {f"BlurFFT {sides}": (lambda s=sides: dinv.BlurFFT(SIZE, psf(*s)), Blur) for sides in SIDES}
OWN |= {
    f"{kernel} by {factor}": (lambda k=kernel, f=factor: dinv.Downsampling(SIZE, filter=k, factor=f), Downsample)
    for kernel in ("gaussian", "bilinear", "bicubic", "sinc")
    for factor in (2, 3)
    if (kernel, factor) != ("gaussian", 3)  # wider than the image
}
OWN["own kernel by 2"] = (lambda: dinv.Downsampling(SIZE, filter=psf(5, 4), factor=2), Downsample)

OTHER: dict[str, Callable[[], dinv.LinearPhysics]] = {
    "replicate": lambda: dinv.Blur(psf(5, 5), padding="replicate"),
    "reflect": lambda: dinv.Blur(psf(3, 3), padding="reflect"),
    "zeros": lambda: dinv.Blur(psf(3, 3), padding="zeros"),
    "a PSF that does not sum to one": lambda: dinv.Blur(2 * psf(3, 3), padding="circular"),
    "downsampling, valid": lambda: dinv.Downsampling(SIZE, filter="bilinear", factor=2, padding="valid"),
    "downsampling, reflect": lambda: dinv.Downsampling(SIZE, filter="bicubic", factor=2, padding="reflect"),
    "sides that are no multiples": lambda: dinv.Downsampling(SIZE, filter=None, factor=4),
    "a mask of shades": lambda: dinv.Inpainting(SIZE, mask=torch.full(SIZE, 0.5)),
    "compressed sensing": lambda: dinv.CompressedSensing(40, SIZE),
    "composition": lambda: dinv.Downsampling(SIZE, filter=None, factor=2) * dinv.Blur(psf(3, 3), padding="circular"),
    "stack": lambda: dinv.Blur(psf(3, 3)).stack(dinv.Downsampling(SIZE, filter="bicubic", factor=2)),
    "space-varying blur": lambda: dinv.SpaceVaryingBlur(psf(3, 6).reshape(1, 1, 2, 3, 3), torch.rand(1, 1, 2, 24, 30)),
}


def flat(y: torch.Tensor) -> torch.Tensor:
    parts = [y] if isinstance(y, torch.Tensor) else list(y)
    return torch.cat([part.flatten() for part in parts])


@pytest.mark.parametrize("name", OWN)
def test_physics_that_slir_knows_become_its_own(name: str) -> None:
    make, kind = OWN[name]
    physics = make()
    operator = from_physics(physics, SIZE)
    assert type(operator) is kind
    x = torch.rand(1, *SIZE, generator=torch.Generator().manual_seed(2))
    y = physics.A(x)
    torch.testing.assert_close(operator.forward(x), y, rtol=0, atol=2e-6)
    torch.testing.assert_close(operator.adjoint(y), physics.A_adjoint(y), rtol=0, atol=2e-6)
    assert operator.x_shape(tuple(y.shape[-2:])) == SIZE[1:]
    assert physics.adjointness_test(img_size=SIZE) < 1e-4
    assert adjoint_error(operator, SIZE[1:]) < 1e-12


@pytest.mark.parametrize("name", OTHER)
def test_any_other_physics_becomes_an_operator(name: str) -> None:
    physics = OTHER[name]()
    operator = from_physics(physics, SIZE)
    assert isinstance(operator, PhysicsOperator)
    x = torch.rand(1, *SIZE, generator=torch.Generator().manual_seed(2))
    y = operator.forward(x[0, 0])
    torch.testing.assert_close(y.flatten(), flat(physics.A(x)))
    torch.testing.assert_close(operator.adjoint(y), physics.A_adjoint(physics.A(x))[0, 0])
    assert adjoint_error(operator, SIZE[1:]) < 1e-6
    assert operator.x_shape(operator.y_shape(SIZE[1:])) == SIZE[1:]


def test_channels_alike_are_planes_and_channels_mixed_are_taken_together() -> None:
    size = (3, 24, 30)
    alike = from_physics(dinv.Blur(psf(5, 5), padding="reflect"), size)
    assert (alike.y_shape((24, 30)), adjoint_error(alike, (24, 30)) < 1e-6) == ((24, 30), True)
    mixed = from_physics(dinv.Decolorize(), size)
    x = torch.rand(1, *size)
    assert mixed.x_planes == (3,)
    torch.testing.assert_close(mixed.forward(x[0]), dinv.Decolorize().A(x)[0, 0])
    assert adjoint_error(mixed, (24, 30)) < 1e-6
    physics = dinv.Blur(psf(3, 3, channels=3), padding="circular")  # each channel its own PSF
    colours = from_physics(physics, size)
    assert isinstance(colours, PerChannel)
    torch.testing.assert_close(colours.forward(x[0]), physics.A(x)[0], rtol=0, atol=2e-6)


def test_a_physics_keeps_its_precision() -> None:
    operator = from_physics(dinv.Blur(psf(5, 5), padding="reflect").double(), SIZE)
    assert adjoint_error(operator, SIZE[1:]) < 1e-12


def test_pictures_to_learn_from_are_cropped_to_the_physics() -> None:
    operator = from_physics(dinv.Blur(psf(5, 5), padding="reflect"), SIZE)
    assert operator.for_training((40, 50)) == (operator, (24, 30))
    assert operator.describe()["physics"] == "Blur"
    with pytest.raises(InputError, match="at least the physics' shape"):
        operator.for_training((20, 50))
    with pytest.raises(InputError, match="have the physics' shape"):
        operator.forward(torch.zeros(20, 20))


def test_what_is_no_linear_physics_is_refused() -> None:
    with pytest.raises(InputError, match="be a deepinv LinearPhysics"):
        from_physics(dinv.PhaseRetrieval(lambda x: x), SIZE)
    with pytest.raises(InputError, match="channels, height, width"):
        from_physics(dinv.Blur(psf(3, 3)))
    spectrum = dinv.LinearPhysics(A=torch.fft.fft2, A_adjoint=lambda y: torch.fft.ifft2(y).real, img_size=SIZE)
    with pytest.raises(InputError, match="measure real numbers"):
        from_physics(spectrum)


def test_a_wrong_adjoint_is_told() -> None:
    physics = dinv.LinearPhysics(A=lambda x: x.cumsum(-1), A_adjoint=lambda y: y.cumsum(-1), img_size=SIZE)
    with pytest.warns(SlirWarning, match="A_adjoint of LinearPhysics is not the adjoint"):
        from_physics(physics)


# Operators as physics

OPERATORS: dict[str, Operator] = {
    "identity": Identity(),
    "blur": Blur(psf(4, 5)[0, 0]),
    "circular": Blur(psf(4, 5)[0, 0], "circular"),
    "downsample": Downsample(2),
    "mask": Mask(random_mask(24, 30) == 0),
    "composition": Compose(Mask(random_mask(12, 15) == 0), Downsample(2)),
    "matrix": Linear(torch.rand(100, 720).numpy(), (24, 30), (10, 10)),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_are_physics(name: str) -> None:
    operator = OPERATORS[name]
    physics = to_physics(operator)
    assert physics.adjointness_test(img_size=(2, 24, 30), num_samples=3) < 1e-4
    x = torch.rand(2, 3, 24, 30, requires_grad=True)
    y = physics.A(x)
    torch.testing.assert_close(y[1, 2], operator.forward(x.detach()[1, 2]))
    (gradient,) = torch.autograd.grad(0.5 * y.square().sum(), x)  # of any operator, NumPy's own too
    torch.testing.assert_close(gradient, physics.A_adjoint(y.detach()))
    assert from_physics(physics, (1, 24, 30)) is operator


def test_physics_carry_noise() -> None:
    assert float(to_physics(Identity(), sigma=0.1).noise_model.sigma) == pytest.approx(0.1)
    assert isinstance(to_physics(Identity()).noise_model, dinv.ZeroNoise)
    with pytest.raises(InputError, match="noise_model"):
        to_physics(Identity(), sigma=0.1, noise_model=noise(0.1))


# slir as a reconstructor


def test_a_physics_is_restored_as_the_task_does() -> None:
    kernel = GAUSSIAN[0, 0].numpy()
    physics = dinv.Blur(GAUSSIAN, padding="circular", noise_model=noise(0.01))
    y = physics(GREY)
    made = Reconstructor()(y, physics)
    expected = slir.deblur(y[0, 0], kernel, sigma=0.01, border="circular", data_range=1.0)
    assert psnr(made, GREY) > psnr(expected[None, None], GREY) - 0.1  # but for the range, of which nothing is known
    assert psnr(made, GREY) > psnr(y, GREY) + 2
    y = dinv.Denoising(noise(0.1))(COLOUR)
    expected = slir.denoise(y[0], sigma=0.1, data_range=1.0, channel_axis=0)
    torch.testing.assert_close(Reconstructor(sigma=0.1)(y, dinv.Denoising())[0], expected, rtol=0, atol=1e-5)


RESTORED: dict[str, tuple[Callable[[], dinv.LinearPhysics], torch.Tensor, float]] = {  # least PSNR in dB
    "valid": (lambda: dinv.Blur(GAUSSIAN, noise_model=noise(0.01)), GREY, 19.5),
    "reflect": (lambda: dinv.Blur(GAUSSIAN, padding="reflect", noise_model=noise(0.01)), COLOUR, 25.5),
    "inpainting": (lambda: dinv.Inpainting((3, 48, 48), mask=random_mask(1, 48, 48)), COLOUR, 24.5),
    "demosaicing": (lambda: dinv.Demosaicing((3, 48, 48), noise_model=noise(0.01)), COLOUR, 24.0),
    "upsampling": (lambda: dinv.Downsampling((1, 48, 48), filter="bicubic", factor=2), GREY, 25.0),
    "mixed channels": (lambda: dinv.MRI(some_frequencies(), (2, 48, 48), noise_model=noise(0.01)), COMPLEX, 28.5),
    "fewer numbers than pixels": (lambda: dinv.CompressedSensing(300, (1, 20, 20)), GREY[..., :20, :20], 25.0),
    "stack": (
        lambda: dinv.Blur(GAUSSIAN, noise_model=noise(0.05)).stack(dinv.Denoising(noise(0.05))),
        GREY,
        28.0,
    ),
}


@pytest.mark.filterwarnings("ignore::UserWarning")  # deepinv's about its own
@pytest.mark.parametrize("name", RESTORED)
def test_reconstructor_restores(name: str) -> None:
    make, truth, least = RESTORED[name]
    physics = make()
    y = physics(truth)
    made = Reconstructor()(y, physics)
    assert made.shape == truth.shape
    assert psnr(made, truth) > least


def test_images_of_a_batch_have_their_own_filters_and_noise() -> None:
    images = torch.cat([GREY, GREY.flip(-1)])
    filters = torch.cat([GAUSSIAN, GAUSSIAN.roll(1, -1)])
    physics = dinv.Blur(filters, padding="circular", noise_model=noise(torch.tensor([0.01, 0.05])))
    y = physics(images)
    together = Reconstructor()(y, physics)
    for number, sigma in enumerate((0.01, 0.05)):
        own = dinv.Blur(filters[number : number + 1], padding="circular", noise_model=noise(sigma))
        torch.testing.assert_close(together[number : number + 1], Reconstructor()(y[number : number + 1], own))
    assert from_physics(physics, (1, 48, 48), sample=1).psf.equal(filters[1, 0].double())


def test_noise_has_to_be_known() -> None:
    physics = dinv.Denoising(dinv.PoissonNoise(0.05))
    with pytest.raises(InputError, match="Gaussian noise"):
        Reconstructor()(GREY, physics)
    assert Reconstructor(sigma=0.1)(GREY, physics).shape == GREY.shape
    stack = dinv.Denoising(noise(0.1)).stack(dinv.Denoising(noise(0.2)))
    with pytest.raises(InputError, match="same noise"):
        Reconstructor()(stack(GREY), stack)
    with pytest.raises(InputError, match="16 pixels a side"):
        Reconstructor(sigma=0.1)(GREY[..., :12], physics)


# slir as a denoiser


@pytest.mark.parametrize("scale", [1e-3, 1e-2, 10.0, 1e3])
def test_brightness_changes_nothing(scale: float) -> None:
    y = COLOUR + 0.05 * torch.randn(COLOUR.shape, generator=torch.Generator().manual_seed(0))
    expected = Denoiser()(y, 0.05)
    torch.testing.assert_close(Denoiser()(scale * y, 0.05 * scale) / scale, expected, rtol=0, atol=1e-4)
    physics = dinv.Blur(GAUSSIAN, padding="valid")
    y = physics.A(GREY)
    expected = Reconstructor(sigma=0.01)(y, physics)
    found = Reconstructor(sigma=0.01 * scale)(scale * y, physics) / scale
    torch.testing.assert_close(found, expected, rtol=0, atol=5e-4)


@pytest.mark.parametrize("sigma", [1e-4, 1.0, 10.0])
def test_any_level_is_better_than_what_came(sigma: float) -> None:
    x = torch.from_numpy(demo_picture()).permute(2, 0, 1)[None].float() / 255
    y = x + sigma * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    found = Denoiser()(y, sigma)
    least = {1e-4: psnr(y, x) - 0.01, 1.0: 18.5, 10.0: 12.0}  # in dB; total variation is below
    assert psnr(found, x) > least[sigma]


def test_denoiser_takes_maps() -> None:
    sigma = torch.linspace(0.01, 0.2, 48).expand(2, 1, 48, 48)
    y = torch.cat([COLOUR, COLOUR.flip(-2)])
    y = y + sigma * torch.randn(y.shape, generator=torch.Generator().manual_seed(0))
    truth = torch.cat([COLOUR, COLOUR.flip(-2)])
    found = Denoiser()(y, sigma)
    assert psnr(found, truth) > psnr(Denoiser()(y, 0.11), truth) + 1
    torch.testing.assert_close(Denoiser()(y[:1], torch.full((1, 1, 48, 48), 0.1)), Denoiser()(y[:1], 0.1))


WRONG: dict[str, tuple[Callable[[], torch.Tensor], tuple[str, ...]]] = {
    "complex": (lambda: Denoiser()(COLOUR * 1j, 0.1), ("x", "real", "complex64")),
    "complex y": (lambda: Reconstructor(sigma=0.1)(GREY * 1j, dinv.Denoising()), ("y", "real", "complex64")),
    "integers": (lambda: Denoiser()((255 * COLOUR).byte(), 0.1), ("x", "floating-point", "uint8")),
    "volume": (lambda: Denoiser()(COLOUR[:, :, None], 0.1), ("x", "(B, C, H, W)", "(1, 3, 1, 48, 48)")),
    "nan": (lambda: Denoiser()(COLOUR * torch.nan, 0.1), ("x", "finite")),
    "negative": (lambda: Denoiser()(COLOUR, -0.1), ("sigma", "at least 0", "-0.1")),
    "nan sigma": (lambda: Denoiser()(COLOUR, float("nan")), ("sigma", "finite", "nan")),
    "negative, y": (lambda: Reconstructor(sigma=-1.0)(GREY, dinv.Denoising()), ("sigma", "at least 0", "-1")),
    "count": (lambda: Denoiser()(COLOUR, torch.tensor([0.1, 0.2])), ("sigma", "1 images", "2 numbers")),
    "map": (lambda: Denoiser()(COLOUR, torch.ones(1, 1, 5, 5)), ("sigma", "(1, 3, 48, 48)", "(1, 1, 5, 5)")),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_refused_in_words(name: str) -> None:
    call, words = WRONG[name]
    with pytest.raises(InputError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.func itself
@pytest.mark.parametrize("name", ["blur", "matrix"])
def test_transforms_go_through_physics(name: str) -> None:
    operator = OPERATORS[name]
    physics = to_physics(operator)
    x = torch.rand(2, 3, 24, 30)
    y, pull = torch.func.vjp(physics.A, x)
    torch.testing.assert_close(y, operator.forward(x))
    torch.testing.assert_close(pull(y)[0], operator.adjoint(y))
    torch.testing.assert_close(torch.func.jvp(physics.A, (x,), (x,))[1], y)
    torch.testing.assert_close(torch.vmap(physics.A)(x), y)


def test_denoiser_takes_batches_and_a_sigma_for_each() -> None:
    y = torch.cat([COLOUR, COLOUR.flip(-1)]) + 0.1 * torch.randn(2, 3, 48, 48)
    made = Denoiser()(y, torch.tensor([0.1, 0.2]))
    alone = Denoiser()(y[1:], 0.2)
    torch.testing.assert_close(made[1:], alone)
    assert psnr(made[:1], COLOUR) > psnr(y[:1], COLOUR) + 5
    torch.testing.assert_close(Denoiser()(y, 0.0), y)
    torch.testing.assert_close(Denoiser()(3 * y[:1], 0.3), 3 * made[:1], rtol=0, atol=1e-4)  # any level will do
    assert Denoiser()(y[:1, :1].double(), 0.1).dtype == torch.float64


def test_denoiser_by_a_model_of_ones_own() -> None:
    model = slir.paper_model([GREY[0, 0], GREY[0, 0].T], Identity(), 0.1, "squared", "krr", 200)
    y = GREY + 0.1 * torch.randn(GREY.shape, generator=torch.Generator().manual_seed(0))
    assert psnr(Denoiser(model)(y, 0.1), GREY) > psnr(y, GREY) + 3
    with pytest.raises(InputError, match="learnt for the operator"):
        Reconstructor(model)(y, dinv.Blur(GAUSSIAN, padding="circular"))


def test_a_model_is_learnt_for_a_physics(tmp_path: Path) -> None:
    physics = dinv.Blur(GAUSSIAN, padding="reflect", noise_model=noise(0.05))
    operator = from_physics(physics, (1, 48, 48))
    pictures = [demo_picture()[60 * i : 60 * i + 60, 150:210] for i in range(4)]
    model = slir.fit(pictures, operator=operator, sigma=0.05, cells=2, crops=4)
    y = physics(GREY)
    made = Reconstructor(model)(y, physics)
    assert psnr(made, GREY) > psnr(y, GREY) + 1
    model.save(str(tmp_path / "model.safetensors"))
    torch.testing.assert_close(Reconstructor(slir.load(tmp_path / "model.safetensors"))(y, physics), made)
    with pytest.raises(InputError, match="learnt for the operator"):
        Reconstructor(model)(y, dinv.Denoising())


def test_nothing_carries_a_gradient() -> None:
    y = GREY.clone().requires_grad_()
    assert not Denoiser()(y, 0.1).requires_grad
    assert not Reconstructor(sigma=0.1)(y, dinv.Denoising()).requires_grad
    assert not list(Reconstructor().parameters())


@pytest.mark.parametrize("own", [False, True], ids=["deepinv's physics", "slir's operator"])
def test_plug_and_play_with_slir_improves(own: bool) -> None:
    """DPIR is HQS with a denoiser whose level falls from step to step."""
    physics = dinv.BlurFFT((1, 48, 48), GAUSSIAN, noise_model=noise(0.02))
    if own:
        physics = to_physics(Blur(GAUSSIAN[0, 0], "circular"), noise_model=noise(0.02))
        assert isinstance(physics, OperatorPhysics)
    y = physics(GREY)
    made = DPIR(sigma=0.02, denoiser=Denoiser())(y, physics)
    assert psnr(made, GREY) > psnr(y, GREY) + 2


def test_half_quadratic_splitting_with_slir_improves() -> None:
    physics = dinv.BlurFFT((1, 48, 48), GAUSSIAN, noise_model=noise(0.02))
    y = physics(GREY)
    hqs = HQS(data_fidelity=L2(), prior=PnP(Denoiser()), stepsize=10.0, sigma_denoiser=0.05, max_iter=8)
    assert psnr(hqs(y, physics), GREY) > psnr(y, GREY) + 2
