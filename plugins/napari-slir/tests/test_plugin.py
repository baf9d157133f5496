"""What napari is told about the plugin, and the parts that need no window."""

from __future__ import annotations

import re
from importlib.metadata import version

import numpy as np
import pytest
from napari.layers import Image, Labels, Shapes
from napari_slir import samples
from napari_slir.form import BLURS
from napari_slir.layers import kernel_of, missing_in, pixel_size, planes_of
from npe2 import PluginManifest

import slir


def test_manifest_is_valid_and_all_that_it_names_is_there():
    manifest = PluginManifest.from_distribution("napari-slir")
    manifest.validate_imports()
    assert [widget.display_name for widget in manifest.contributions.widgets] == ["Restore"]
    for sample in manifest.contributions.sample_data:
        assert getattr(samples, sample.key)()


def test_version_is_that_of_slir():
    """Between releases each counts the commits up to its own installation."""
    plugin, library = (re.match(r"\d+\.\d+\.\d+", version(name)) for name in ("napari-slir", "slir"))
    assert plugin.group() == library.group()


def test_samples_are_layers(make_napari_viewer):
    viewer = make_napari_viewer()
    layers = viewer.open_sample("napari-slir", "scratched")
    assert [type(layer) for layer in layers] == [Image, Labels]
    assert layers[0].rgb
    assert layers[1].data.any()


def test_command_opens_the_widget_with_its_task(make_napari_viewer):
    from napari_slir.commands import deblur

    viewer = make_napari_viewer()
    viewer.add_image(np.zeros((20, 20)), name="other")
    layer = viewer.add_image(np.zeros((20, 20)), name="mine")
    deblur(viewer)
    _, widget = viewer.window.add_plugin_dock_widget("napari-slir", "Restore")
    assert widget.form.task.value == "deblur"
    assert widget.form.layer.value is layer


@pytest.mark.parametrize("kind", BLURS)
def test_every_blur_begins_with_a_psf(kind):
    blur = BLURS[kind]
    psf = blur.make(**{name: value for name, _, value in blur.takes})
    assert psf.sum() == pytest.approx(1)
    assert psf.size > 1


def test_labels_count_where_they_are_seen():
    image = Image(np.zeros((3, 20, 30)), scale=(1, 2, 2), translate=(0, 4, 0))
    labels = Labels(np.zeros((50, 60), int), translate=(0, 1))
    labels.data[14:18, 10:14] = 1  # world: rows 14 to 17, columns 11 to 14
    missing = missing_in(labels, image, planes_of(image))
    assert missing.shape == (20, 30)
    rows, cols = np.nonzero(missing)
    assert sorted(set(4 + 2 * rows)) == [14, 16]
    assert sorted(set(2 * cols)) == [12, 14]
    planes = Labels(np.zeros((3, 20, 30), int), scale=(1, 2, 2), translate=(0, 4, 0))
    planes.data[1, 5, 6] = 1
    assert np.argwhere(missing_in(planes, image, planes_of(image))).tolist() == [[1, 5, 6]]


def test_shapes_count_where_they_are_seen_and_on_their_plane():
    image = Image(np.zeros((3, 20, 30)), scale=(1, 2, 2))
    flat = Shapes([np.array([[8, 10], [8, 20], [16, 20], [16, 10]])], shape_type="rectangle")
    missing = missing_in(flat, image, planes_of(image))
    assert missing.shape == (20, 30)
    assert missing[5:8, 6:10].all()
    assert not missing[:4].any()
    assert not missing[:, 11:].any()
    deep = Shapes([np.array([[2, 8, 10], [2, 8, 20], [2, 16, 20], [2, 16, 10]])], shape_type="rectangle")
    np.testing.assert_array_equal(missing_in(deep, image, planes_of(image))[2], missing)
    assert not missing_in(deep, image, planes_of(image))[:2].any()


def test_kernels_from_layers():
    psf = slir.psf.gaussian(1.2)
    np.testing.assert_allclose(kernel_of(Image(100 * psf), bead=False), psf)
    bead = np.pad(1000 * psf, 12) + 50
    assert slir.psf.fwhm(kernel_of(Image(bead), bead=True)) == pytest.approx(slir.psf.fwhm(psf), rel=0.05)
    with pytest.raises(slir.InputError, match="Choose a layer with two axes"):
        kernel_of(Image(np.zeros((4, 9, 9)), name="stack"), bead=False)


def test_pixel_size_comes_from_units():
    assert pixel_size(Image(np.zeros((20, 20)), scale=(0.065, 0.065), units="um")) == pytest.approx(65)
    assert pixel_size(Image(np.zeros((20, 20)))) is None
