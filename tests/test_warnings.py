"""What users are warned of: once, of the right plane, and with advice that they have not followed already."""

import warnings

import numpy as np
import pytest
import tifffile
import torch

import slir
from slir.errors import InputError, SlirWarning
from slir.files.jobs import Job, run
from slir.files.warning_log import about_plane, caught
from slir.operators import Blur, Downsample, Identity, Mask, Operator
from slir.preprocessing.treatment import Restored, Treatment, decide
from slir.problem import Problem
from slir.trust.forward import judge

pytestmark = pytest.mark.usefixtures("one_thread")


def squares(side: int = 64) -> np.ndarray:
    rows, cols = np.mgrid[:side, :side]
    return 60.0 + 120 * ((rows // 12 + cols // 12) % 2)


def told_of(*planes_and_texts: tuple[int, str], planes: int = 9) -> tuple[str, ...]:
    with caught() as told:
        for plane, text in planes_and_texts:
            with about_plane(plane, planes):
                warnings.warn(text, SlirWarning, stacklevel=1)
        return told()


# Estimated noise


@pytest.mark.parametrize(
    "operator", [Identity(), Blur(slir.psf.gaussian(2)), Downsample(2)], ids=lambda o: type(o).__name__
)
@pytest.mark.parametrize("share", [0.1, 10.0])
def test_who_estimated_sigma_is_not_told_to_estimate_it(operator: Operator, share: float) -> None:
    y = torch.from_numpy(squares() / 255 + np.random.default_rng(0).normal(0, 0.05, (64, 64))).float()
    x = operator.guess(y) if share > 1 else torch.zeros(operator.x_shape((64, 64)))
    told, estimated = (judge(y, operator, x, 0.05 * share, estimated=own) for own in (False, True))
    assert told.faults.keys() == estimated.faults.keys()
    assert "auto" in told.words
    assert "auto" not in estimated.words


@pytest.mark.parametrize(("sigma", "advised"), [("auto", False), (4, True)])
def test_the_advice_follows_sigma_through_files_and_arrays(sigma: float | str, advised: bool) -> None:
    treatment = decide([torch.from_numpy(squares() / 255).float()], Mask(np.zeros((1, 1), bool)), sigma, [255.0], None)
    restored = Restored([], [0.01], [0.2], [])
    (text,) = Treatment((0.01,), estimated=treatment.estimated).doubts(restored, Mask(np.zeros((1, 1), bool)), [255.0])
    assert "does not explain the image" in text
    assert ("auto" in text) == advised


def test_a_psf_is_to_be_measured_on_what_can_be_measured() -> None:
    """The warning names what `slir.psf.from_image` takes, as its documentation does."""
    psf = slir.psf.gaussian(1.0)
    rng = np.random.default_rng(0)
    y = torch.from_numpy(np.kron(rng.random((24, 24)), np.ones((8, 8)))).float()
    words = judge(y, Blur(slir.psf.gaussian(4)), y, 0.01).words
    assert "PSF looks too wide" in words
    for noun in ("bead", "star"):
        assert noun in words
        assert noun in str(slir.psf.from_image.__doc__)
    assert "on a bead or a star (" in words
    assert psf.sum() == pytest.approx(1)


# Planes of stacks


def test_warnings_name_their_planes_once() -> None:
    texts = [(plane, f"The noise of plane {plane + 0.5:g} is large.") for plane in (0, 1, 2, 5)]
    assert told_of(*texts) == ("Plane 0: The noise of plane 0.5 is large. The same holds for planes 1 to 2 and 5.",)
    assert told_of((3, "Blue."), (3, "Blue."), (4, "Red.")) == ("Plane 3: Blue.", "Plane 4: Red.")
    assert told_of((0, "Blue."), (0, "Blue 1."), (1, "Blue 2."), planes=1) == ("Blue.", "Blue 1.", "Blue 2.")


def test_warnings_of_others_pass_through() -> None:
    with pytest.warns(DeprecationWarning, match="old"), about_plane(0, 2):
        warnings.warn("old", DeprecationWarning, stacklevel=1)


def test_a_stack_names_the_planes_that_are_noisier_than_was_said(tmp_path) -> None:
    rng = np.random.default_rng(0)
    planes = [squares() + rng.normal(0, sigma, (64, 64)) for sigma in (5, 30, 30, 5, 40)]
    tifffile.imwrite(tmp_path / "in.tif", np.clip(planes, 0, 255).astype(np.uint8), metadata={"axes": "ZYX"})
    outcome = run(Job(Problem("denoise", sigma=6), tmp_path / "in.tif", tmp_path / "out.tif"))
    (text,) = (text for text in outcome.warnings if "noisier" in text)
    assert text.startswith("Plane 1: The image is noisier than sigma")
    assert text.endswith("The same holds for planes 2 and 4.")


# Low counts


def counts(offset: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    light = squares(96) / 4 - 15
    return np.rint(rng.poisson(light) + offset + rng.normal(0, 1.5, light.shape)).clip(0).astype(np.uint16)


def test_a_cameras_offset_is_asked_for() -> None:
    with pytest.warns(
        SlirWarning, match=r"darkest pixels are about 9\d, far above black.*data_range=\(offset, white\)"
    ):
        slir.denoise(counts(100), sigma="poisson-gaussian")


def test_no_offset_is_asked_for_where_there_is_none_or_it_is_known() -> None:
    slir.denoise(counts(0), sigma="poisson-gaussian")
    slir.denoise(counts(100), sigma="poisson-gaussian", data_range=(100, 65535))


@pytest.mark.parametrize(
    "own",
    [
        {"task": "deblur", "psf": slir.psf.gaussian(1)},
        {"task": "upsample", "factor": 2},
        {"task": "inpaint", "mask": "nan"},
    ],
)
def test_growing_noise_is_refused_before_the_work_with_the_way_around_it(own) -> None:
    with pytest.raises(InputError, match=r"sigma must be auto, a number or a percentage to \w+, .* third of the sigma"):
        Problem(sigma="poisson-gaussian", **own)
