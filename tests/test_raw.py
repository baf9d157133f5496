"""Raw files of cameras: read, developed, refused in words. `tests/dng.py` makes the files, and LibRaw reads them."""

import io as streams
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms

import dng
import slir
from slir import development, io
from slir.development import Curve, RawNoise, camera_colours, rendered
from slir.errors import FileError, InputError
from slir.files.raw_file import Development, pairs
from slir.io import icc
from slir.io.ifd import LONG, SHORT, tag
from slir.io.raw import RawPicture
from slir.io.tiff_meta import exif_tags
from slir.kernel.shipped import demo_picture
from slir.operators.mosaic import checked_pattern

RGGB, GBRG, X_TRANS = (checked_pattern(name).numpy() for name in ("RGGB", "GBRG", "X-Trans"))
GAIN, READ = 1 / 600, 0.004
SPAN = dng.WHITE - dng.BLACK
TO_SRGB = np.linalg.inv((known := dng.XYZ_TO_CAMERA @ icc.SRGB.to_xyz) / known.sum(1, keepdims=True))


def picture(height: int = 64, width: int = 80) -> np.ndarray:
    """A picture in [0, 0.97], so that no colour of the camera saturates."""
    return demo_picture()[40 : 40 + height, 60 : 60 + width] / 255 * 0.97


def raw_of(srgb: np.ndarray, pattern: np.ndarray, **noise: Any) -> RawPicture:
    """What `read_raw` gives for a file, without a file."""
    black = np.full(pattern.shape, float(dng.BLACK))
    return RawPicture(dng.mosaic(srgb, pattern, **noise), pattern, black, dng.WHITE, dng.WHITE_BALANCE, TO_SRGB)


def psnr(picture: io.Picture, truth: np.ndarray) -> float:
    error = picture.pixels / picture.data_range - truth
    return float(-10 * np.log10(np.square(error[4:-4, 4:-4]).mean()))


TRUE_NOISE = RawNoise((GAIN * SPAN,) * 3, (READ * SPAN,) * 3)


# Files


@pytest.mark.parametrize("pattern", [RGGB, GBRG, X_TRANS], ids=["RGGB", "GBRG", "X-Trans"])
def test_a_raw_file_gives_what_the_sensor_recorded(tmp_path: Path, pattern: np.ndarray) -> None:
    pytest.importorskip("rawpy")
    mosaic = dng.mosaic(picture(), pattern, gain=GAIN, read=READ)
    raw = io.read_raw(dng.write(tmp_path / "a.dng", mosaic, pattern))
    np.testing.assert_array_equal(raw.mosaic, mosaic)
    np.testing.assert_array_equal(raw.pattern, pattern)
    np.testing.assert_array_equal(raw.black, np.full(pattern.shape, dng.BLACK))
    assert raw.white == dng.WHITE
    np.testing.assert_allclose(raw.white_balance, dng.WHITE_BALANCE, rtol=1e-5)
    np.testing.assert_allclose(raw.to_srgb, TO_SRGB, atol=2e-3)
    assert raw.notes == ()


def test_black_levels_of_each_pixel_and_the_border_are_heeded(tmp_path: Path) -> None:
    pytest.importorskip("rawpy")
    mosaic = dng.mosaic(picture(), RGGB)
    levels = {50713: tag(SHORT, (2, 2)), 50714: tag(LONG, (500, 510, 520, 530))}
    raw = io.read_raw(dng.write(tmp_path / "a.dng", mosaic, RGGB, extra=levels))
    np.testing.assert_array_equal(raw.black, [[500, 510], [520, 530]])
    active = {50829: tag(LONG, (3, 5, 61, 75))}  # top, left, bottom, right
    raw = io.read_raw(dng.write(tmp_path / "b.dng", mosaic, RGGB, extra=active))
    np.testing.assert_array_equal(raw.mosaic, mosaic[4:61, 6:75])  # LibRaw makes odd borders even
    np.testing.assert_array_equal(raw.pattern, np.roll(RGGB, (-1, -1), (0, 1)))  # RGGB begins at the active area


def test_exif_is_kept_without_what_speaks_of_the_old_file(tmp_path: Path) -> None:
    pytest.importorskip("rawpy")
    raw = io.read_raw(dng.write(tmp_path / "a.dng", dng.mosaic(picture(), RGGB), RGGB, orientation=6))
    assert raw.meta.exif is not None
    outer = exif_tags(raw.meta.exif)
    assert outer[271].text() == "Maker"  # type: ignore[union-attr]
    assert outer[274].number() == 1  # type: ignore[union-attr]
    inner: Any = outer[0x8769]
    assert inner[0x8827].number() == dng.ISO
    assert tuple(inner[0x829A].numbers()) == dng.EXPOSURE
    assert 0x927C not in inner


def test_without_white_balance_or_matrix_a_note_says_so(tmp_path: Path) -> None:
    pytest.importorskip("rawpy")
    mosaic = dng.mosaic(picture(), RGGB)
    raw = io.read_raw(dng.write(tmp_path / "a.dng", mosaic, RGGB, neutral=None, matrix=None))
    assert "daylight" in raw.notes[0]
    assert "no colour matrix" in raw.notes[1]
    np.testing.assert_array_equal(raw.to_srgb, np.eye(3))


def test_a_heap_of_pixels_below_the_declared_white_is_where_the_sensor_saturates(tmp_path: Path) -> None:
    pytest.importorskip("rawpy")
    mosaic = dng.mosaic(picture() + 0.4, RGGB, white=15000)
    assert io.read_raw(dng.write(tmp_path / "a.dng", mosaic, RGGB)).white == 15000
    single = dng.mosaic(picture() * 0.5, RGGB)
    single[3, 3] = 15000
    assert io.read_raw(dng.write(tmp_path / "b.dng", single, RGGB)).white == dng.WHITE


def _bad_files() -> dict[str, tuple[bytes, str]]:
    mosaic = dng.mosaic(picture(), RGGB)
    whole = dng.dng(mosaic, RGGB)
    huge = {256: tag(LONG, 30000), 257: tag(LONG, 30000)}
    return {
        "grey": (dng.dng(mosaic), "monochrome"),
        "linear": (dng.dng(np.stack([mosaic] * 3, -1), colours=3), "all colours at each pixel"),
        "two colours": (dng.dng(mosaic, np.array([[0, 1], [1, 0]])), "damaged"),
        "black above white": (dng.dng(mosaic, RGGB, extra={50714: tag(LONG, 20000)}), "no brighter than black"),
        "too large": (dng.dng(mosaic, RGGB, extra=huge), "the most is"),
        "half": (whole[: len(whole) // 2], "damaged"),
        "other": (b"nothing of the kind" * 100, "not a raw file"),
        "empty": (b"", "empty"),
    }


@pytest.mark.parametrize("name", _bad_files())
def test_files_that_cannot_be_developed_are_refused_in_words(tmp_path: Path, name: str, capfd: Any) -> None:
    pytest.importorskip("rawpy")
    data, words = _bad_files()[name]
    (tmp_path / "a.dng").write_bytes(data)
    with pytest.raises(FileError, match=words):
        io.read_raw(tmp_path / "a.dng")
    assert capfd.readouterr() == ("", "")


def test_damaged_files_give_a_file_error_or_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("rawpy")
    whole = bytearray(dng.dng(dng.mosaic(picture(32, 32), RGGB), RGGB))
    random = np.random.default_rng(0)
    for _ in range(150):
        damaged = whole.copy()
        for place in random.integers(8 + 2 * 32 * 32, len(whole), 3):
            damaged[place] = random.integers(256)
        (tmp_path / "a.dng").write_bytes(damaged)
        try:
            raw = io.read_raw(tmp_path / "a.dng")
        except FileError:
            continue
        assert raw.mosaic.ndim == 2
        assert np.isfinite(raw.to_srgb).all()


def test_untrusted_files_are_not_given_to_libraw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rawpy")
    monkeypatch.setenv("SLIR_UNTRUSTED", "1")
    with pytest.raises(FileError, match="not trusted"):
        io.read_raw(dng.write(tmp_path / "a.dng", dng.mosaic(picture(), RGGB), RGGB))


def test_without_rawpy_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(FileError, match=r'pip install "slir\[raw\]"'):
        io.read_raw(tmp_path / "a.dng")


# Colours


@pytest.mark.parametrize("flip", range(8))
def test_pictures_are_turned_as_libraw_turns_them(flip: int) -> None:
    raw = replace(raw_of(picture(6, 8), RGGB), flip=flip)
    pixels = np.arange(48).reshape(6, 8)
    turned = raw.turned(pixels)
    for row in range(turned.shape[0]):
        for col in range(turned.shape[1]):
            own = (col, row) if flip & 4 else (row, col)
            own = (5 - own[0] if flip & 2 else own[0], 7 - own[1] if flip & 1 else own[1])
            assert turned[row, col] == pixels[own]


def test_colours_are_those_of_the_picture_that_the_camera_saw() -> None:
    srgb = picture()
    seen = dng.camera_colours(srgb).astype(np.float32)
    pixels = rendered(seen, TO_SRGB, linear=False, space="srgb", exposure=0, depth=16)
    np.testing.assert_allclose(pixels / 65535, srgb, atol=2e-5)
    wide = rendered(seen, TO_SRGB, linear=True, space="rec2020", exposure=1, depth=16) / 65535
    linear = np.linalg.solve(icc.REC2020.to_xyz, icc.SRGB.to_xyz) @ (seen @ TO_SRGB.T)[..., None]
    np.testing.assert_allclose(wide, (2 * linear[..., 0]).clip(0, 1), atol=2e-5)
    bright = rendered(seen / 8, TO_SRGB, linear=False, space="srgb", exposure=None, depth=8)
    assert np.quantile(bright.max(2), 0.985) >= 250


def test_profiles_are_those_of_littlecms() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    image, srgb = Image.fromarray(pixels), ImageCms.createProfile("sRGB")

    def shown(space: icc.Space, *, linear: bool) -> np.ndarray:
        own = ImageCms.ImageCmsProfile(streams.BytesIO(icc.profile(space, linear=linear)))
        return np.array(ImageCms.profileToProfile(image, own, srgb)).astype(int)  # type: ignore[arg-type]

    np.testing.assert_array_equal(shown(icc.SRGB, linear=False), pixels)
    assert np.abs(shown(icc.SRGB, linear=True) - 255 * icc.encoded(pixels / 255)).max() < 1.5
    matrix = np.linalg.solve(icc.SRGB.to_xyz, icc.REC2020.to_xyz)
    wide = icc.encoded((pixels / 255 @ matrix.T).clip(0, 1))
    assert np.abs(shown(icc.REC2020, linear=True) - 255 * wide).max() < 2.5


# Noise


def test_the_curve_makes_noise_even_and_its_inverse_has_no_bias() -> None:
    a, b = np.full(3, 0.004), np.full(3, 0.01**2)
    curve = Curve.of(a, b)
    x = np.array([0.02, 0.1, 0.3, 0.9])[:, None]
    random = np.random.default_rng(0)
    y = x + np.sqrt(0.004 * x + 1e-4) * random.standard_normal((4, 200_000))
    z = curve.forward(y)
    spread = z.std(1)
    assert spread.max() / spread.min() < 1.12
    np.testing.assert_allclose(spread, curve.slope(x[:, 0]) * np.sqrt(0.004 * x[:, 0] + 1e-4), rtol=0.06)
    back = curve.inverse(np.repeat(z.mean(1)[:, None], 3, 1), a, b)
    np.testing.assert_allclose(back, np.repeat(x, 3, 1), atol=4e-4)
    np.testing.assert_allclose(curve.forward(np.array([0.0, 1.0])), [0, 1], atol=1e-12)


def test_noise_is_found_in_the_planes_of_the_mosaic() -> None:
    rows, cols = np.mgrid[:256, :256]
    smooth = 0.5 + 0.4 * np.sin(rows / 60) * np.cos(cols / 45)
    noise = RawNoise.of(raw_of(np.stack([smooth, smooth * 0.9, smooth * 0.8], -1), RGGB, gain=GAIN, read=READ))
    for light in (0.05, 0.2, 0.5):
        np.testing.assert_allclose(noise.sigma(light * SPAN), TRUE_NOISE.sigma(light * SPAN), rtol=0.15)


# Pictures


@pytest.mark.parametrize("pattern", [RGGB, X_TRANS], ids=["RGGB", "X-Trans"])
def test_development_removes_the_mosaic_and_the_noise(pattern: np.ndarray) -> None:
    srgb = demo_picture()[:64, 120:200] / 255 * 0.97
    raw = raw_of(srgb, pattern, gain=GAIN, read=READ)
    clean = slir.develop(raw, sigma=TRUE_NOISE, exposure=0)
    noisy = slir.develop(raw, sigma=TRUE_NOISE, strength=0, exposure=0)
    assert clean.pixels.shape == srgb.shape
    assert clean.pixels.dtype == np.uint16
    assert psnr(clean, srgb) > max(31, psnr(noisy, srgb) + 1.5)


def test_strips_agree_with_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    srgb = np.tile(picture(64, 32), (6, 1, 1))
    raw = raw_of(srgb, RGGB, gain=GAIN, read=READ)
    whole = camera_colours(raw, TRUE_NOISE)
    monkeypatch.setattr(development, "STRIP_PIXELS", 192 * 32)
    done: list[tuple[int, int]] = []
    strips = camera_colours(raw, TRUE_NOISE, progress=lambda part, total, what: done.append((part, total)))
    assert np.abs(strips - whole).max() < 2e-3
    assert done[-1][0] == done[-1][1]


@pytest.mark.parametrize(
    ("argument", "value"),
    [("sigma", "much"), ("sigma", -1), ("strength", 4), ("space", "cmyk"), ("exposure", np.inf), ("depth", 12)],
)
def test_wrong_arguments_are_named(argument: str, value: Any) -> None:
    told: dict[str, Any] = {argument: value}
    with pytest.raises(InputError, match=f"^{argument} must"):
        slir.develop(raw_of(picture(), RGGB), **told)
    with pytest.raises(InputError, match=r"^raw must"):
        slir.develop(picture())  # type: ignore[arg-type]


# Command line


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "slir", "develop", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_command_writes_pictures_that_say_what_they_are(tmp_path: Path) -> None:
    pytest.importorskip("rawpy")
    mosaic = dng.mosaic(picture(32, 48), RGGB, gain=GAIN, read=READ)
    (tmp_path / "in").mkdir()
    dng.write(tmp_path / "in" / "a.dng", mosaic, RGGB, orientation=6)
    (tmp_path / "in" / "b.nef").write_bytes(b"no raw file at all" * 100)
    result = run(tmp_path, "in", "-o", "out", "--sigma", "1%", "--linear", "--json")
    first, second, summary = map(json.loads, result.stdout.splitlines())
    assert result.returncode == 1
    assert (first["width"], first["height"], first["bits"]) == (32, 48, 16)
    assert first["noise"]["read"] == pytest.approx([0.01 * SPAN] * 3)
    assert "not a raw file" in second["reason"]
    assert summary["summary"]["failed"] == 1
    found = io.read(tmp_path / "out" / "a.tif")
    assert found.pixels.dtype == np.uint16
    assert found.size == (48, 32)
    assert found.meta.orientation == 1
    assert found.meta.icc == icc.profile(icc.SRGB, linear=True)
    again = run(tmp_path, "in/a.dng", "-o", "out/a.tif")
    assert again.returncode == 2
    assert "--force" in again.stderr


def test_formats_of_8_bits_hold_ready_pictures_alone(tmp_path: Path) -> None:
    assert Development().depth(tmp_path / "a.tif") == Development().depth(tmp_path / "a.png") == 16
    assert Development().depth(tmp_path / "a.jpg") == 8
    with pytest.raises(FileError, match=r"Write a\.tif"):
        Development(linear=True).depth(tmp_path / "a.jpg")
    with pytest.raises(InputError, match=r"^sigma must"):
        Development(sigma="poisson-gaussian")


def test_a_folder_of_raw_files_keeps_its_tree(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("a.dng", "b.NEF", "c.jpg", ".d.dng", "sub/e.cr3"):
        (tmp_path / name).touch()
    flat = pairs([str(tmp_path)], "out", recursive=False, form="png")
    assert flat == [(tmp_path / "a.dng", Path("out/a.png")), (tmp_path / "b.NEF", Path("out/b.png"))]
    assert (tmp_path / "sub/e.cr3", Path("out/sub/e.tif")) in pairs([str(tmp_path)], "out", recursive=True, form=None)
    (tmp_path / "a.nef").touch()
    with pytest.raises(FileError, match="both"):
        pairs([str(tmp_path)], "out", recursive=False, form=None)
    with pytest.raises(InputError, match=r"^the format must"):
        pairs(["a.dng"], "a.tif", recursive=False, form="png")
