"""The widget as a user has it: layers in, layers out, clicks, errors, and a run that is stopped."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from napari.utils.interactions import mouse_move_callbacks, mouse_press_callbacks, mouse_release_callbacks
from napari_slir.widget import RestoreWidget

import slir


def error_of(image: np.ndarray, truth: np.ndarray) -> float:
    return float(np.sqrt(np.mean((image.astype(float) - truth.astype(float)) ** 2)))


def click(widget: RestoreWidget, position: tuple[float, ...], *, moved: float = 1) -> None:
    """What napari does with the button pressed at a place in the world, moved by pixels of the screen and let go."""
    event = SimpleNamespace(position=position, pos=np.zeros(2), modifiers=(), button=1, handled=False, is_dragging=True)
    event.type = "mouse_press"
    mouse_press_callbacks(widget.viewer, event)
    event.type, event.pos = "mouse_move", np.array([moved, 0])
    mouse_move_callbacks(widget.viewer, event)
    event.type = "mouse_release"
    mouse_release_callbacks(widget.viewer, event)


def test_denoise_error_map_and_explain_on_click(widget, finish, told, noisy, clean, qtbot):
    viewer = widget.viewer
    layer = viewer.add_image(noisy, name="cell", scale=(2, 2), translate=(10, 20), units=("um", "um"), colormap="green")
    widget.form.noise.value, widget.form.sigma.value = "given", 20
    steps = []
    widget.run()
    widget.worker.bell.rung.connect(lambda done, total: steps.append((done, total)))
    assert not widget.start.isEnabled()
    assert widget.cancel.isEnabled()
    finish()
    error, result = viewer.layers[1:]
    assert (error.name, result.name) == ("cell denoised: expected error", "cell denoised")
    expected = slir.denoise(noisy, sigma=20, return_info=True)
    np.testing.assert_array_equal(result.data, expected.image)
    np.testing.assert_allclose(error.data, expected.error_map, rtol=1e-5)
    assert error_of(result.data, clean[..., 1]) < 0.7 * error_of(noisy, clean[..., 1])
    for own in (error, result):
        np.testing.assert_allclose(own.extent.world, layer.extent.world)
        assert own.units == layer.units
    assert result.colormap.name == "green"
    assert tuple(result.contrast_limits) == tuple(layer.contrast_limits)
    assert error.contrast_limits[0] == 0 < error.contrast_limits[1] <= error.data.max()
    assert error.colormap.name == "slir-error"
    assert result.metadata["slir"]["sigma"] == 20
    assert viewer.layers.selection.active is result
    total = steps[-1][1]
    assert steps == [(done, total) for done in range(total + 1)]
    assert widget.start.isEnabled()
    assert told() == []

    widget.explain.setChecked(True)
    click(widget, (10 + 2 * 12, 20 + 2 * 30), moved=30)
    assert widget.worker is None  # a drag moves the picture
    click(widget, (1000, 1000))
    assert widget.worker is None  # beside it
    click(widget, (10 + 2 * 12 + 0.4, 20 + 2 * 30 - 0.6))
    finish()
    text = widget.panel.text.text()
    low, high = (float(bound[12, 30]) for bound in expected.interval(0.9))
    assert f"Row 12, column 30: {expected.image[12, 30]}" in text
    assert f"Expected error: {expected.error_map[12, 30]:.4g}" in text
    assert f"90% interval: {low:.4g} to {high:.4g}" in text
    assert f"of {expected.explain(12, 30).total} training patches" in text
    assert widget.panel.picture.pixmap().height() > 300
    assert widget.panel.picture.pixmap().width() <= max(288, widget.panel.room)  # two columns at least
    widget.explain.setChecked(False)
    click(widget, (10 + 2 * 12, 20 + 2 * 30))
    assert widget.worker is None


def test_deblur_with_a_built_psf_and_with_one_from_a_layer(widget, finish, told, clean):
    psf = slir.psf.motion(5, 20)
    viewer, form = widget.viewer, widget.form
    layer = viewer.add_image(clean[..., 1], name="shaken")
    kernel = viewer.add_image(7 * psf, name="kernel")
    form.layer.value, form.task.value, form.blur.value = layer, "deblur", "motion"
    form.numbers["motion", "length"].value, form.numbers["motion", "angle"].value = 5, 20
    form.noise.value, form.sigma.value, form.errors.value = "given", 2, False
    widget.run()
    finish()
    form.blur.value, form.kernel.value = "kernel", kernel
    widget.run()
    finish()
    assert [own.name for own in viewer.layers[2:]] == ["shaken deblurred", "shaken deblurred [1]"]
    with pytest.warns(slir.SlirWarning) as doubts:  # it never was shaken
        expected = slir.deblur(clean[..., 1], psf, sigma=2)
    assert told() == 2 * [str(own.message) for own in doubts]
    for own in viewer.layers[2:]:
        np.testing.assert_array_equal(own.data, expected)


def test_colours_are_enlarged_onto_their_own_place_and_keep_their_transparency(widget, finish, clean):
    alpha = np.full((*clean.shape[:2], 1), 200, np.uint8)
    layer = widget.viewer.add_image(np.concatenate([clean, alpha], -1), scale=(3, 3), rotate=30, name="small")
    widget.form.task.value = "upsample"
    widget.run()
    finish()
    error, result = widget.viewer.layers[1:]
    assert result.rgb
    assert result.data.shape == (80, 80, 4)
    assert (result.data[..., 3] == 200).all()
    np.testing.assert_array_equal(result.data[..., :3], slir.upsample(clean, 2, channel_axis=-1))
    assert error.data.shape == (80, 80)
    for own in (error, result):  # the middle of four fine pixels is the middle of the coarse one
        np.testing.assert_allclose(own.data_to_world((20.5, 6.5)), layer.data_to_world((10, 3)))
        np.testing.assert_allclose(own.data_to_world((-0.5, 79.5)), layer.data_to_world((-0.5, 39.5)))


def test_stacks_by_planes_and_the_plane_that_is_shown(widget, finish, noisy):
    stack = np.stack([noisy, noisy.T, noisy[::-1]])
    layer = widget.viewer.add_image(stack, name="stack", scale=(5, 1, 1))
    form = widget.form
    form.noise.value, form.sigma.value = "given", 20
    widget.run()
    finish()
    error, result = widget.viewer.layers[1:]
    assert error.data.shape == result.data.shape == stack.shape
    np.testing.assert_array_equal(result.data[1], slir.denoise(noisy.T, sigma=20))
    widget.explain.setChecked(True)
    click(widget, (10, 7, 9))
    finish()
    assert f"Row 7, column 9: {result.data[2, 7, 9]}" in widget.panel.text.text()

    widget.viewer.dims.set_point(0, 5)
    form.only_shown.value, form.errors.value = True, False
    widget.run()
    finish()
    shown = widget.viewer.layers[-1]
    np.testing.assert_array_equal(shown.data, result.data[1:2])
    np.testing.assert_allclose(shown.data_to_world((0, 0, 0)), layer.data_to_world((1, 0, 0)))


def test_inpaint_from_labels_and_from_nan(widget, finish, clean):
    truth = clean[..., 1] / 255.0
    hole = np.zeros(truth.shape, np.uint8)
    hole[10:14, 20:30] = 1
    layer = widget.viewer.add_image(np.where(hole, np.nan, truth), name="print", contrast_limits=(0, 1))
    widget.viewer.add_labels(hole, name="holes")
    form = widget.form
    form.task.value, form.range.value, form.errors.value = "inpaint", "contrast", False
    assert form.mask.value is widget.viewer.layers["holes"]
    widget.run()
    finish()
    form.mask.value = None
    widget.run()
    finish()
    by_labels, by_nan = (own.data for own in widget.viewer.layers[2:])
    np.testing.assert_array_equal(by_labels, by_nan)
    np.testing.assert_array_equal(by_labels[hole == 0], layer.data[hole == 0])
    assert error_of(by_labels[hole > 0], truth[hole > 0]) < 0.15


def test_settings_become_a_request(widget, noisy, tmp_path):
    form = widget.form
    layer = widget.viewer.add_image(noisy / 255.0, scale=(0.1, 0.1), units="um")
    form.range.value, form.black.value, form.white.value = "given", -0.1, 0.9
    form.noise.value = "poisson-gaussian"
    asked, planes, request = form.request()
    assert asked is layer
    assert planes.sides == noisy.shape
    assert (request.task, request.sigma, request.data_range) == ("denoise", "poisson-gaussian", (-0.1, 0.9))
    assert (request.model, request.device, request.own, request.missing) == (None, "cpu", {}, None)

    form.task.value, form.blur.value, form.border.value = "deblur", "microscope", "reflect"
    form.model.value, form.range.value = tmp_path / "own.safetensors", "unit"
    _, _, request = form.request()
    assert "poisson-gaussian" not in form.noise.choices  # it is for denoising alone
    assert (request.sigma, request.data_range, request.model) == ("auto", 1.0, tmp_path / "own.safetensors")
    np.testing.assert_array_equal(
        request.own["psf"], slir.psf.airy_from_aperture(1.4, 520, 100)
    )  # of the layer's units
    assert request.own["border"] == "reflect"

    form.task.value, form.factor.value, form.antialias.value = "upsample", 3, "box"
    _, _, request = form.request()
    assert (request.sigma, request.own) == (0, {"factor": 3, "antialias": "box"})


def test_cancel_stops_the_work_and_adds_nothing(widget, finish, noisy, told, qtbot):
    widget.viewer.add_image(np.stack([noisy] * 500))
    widget.run()
    worker = widget.worker
    with qtbot.waitSignal(worker.bell.rung, timeout=60_000):
        pass
    widget.cancel.click()
    finish()
    assert len(widget.viewer.layers) == 1
    assert not worker.is_running
    assert widget.status.text() == "Cancelled."
    assert widget.start.isEnabled()
    assert told() == []


def test_closing_the_widget_stops_its_work(widget, noisy, told, qtbot):
    viewer = widget.viewer
    viewer.add_image(np.stack([noisy] * 500))
    widget.explain.setChecked(True)
    widget.run()
    worker = widget.worker
    with qtbot.waitSignal(worker.bell.rung, timeout=60_000):
        pass
    viewer.window.remove_dock_widget(widget)
    qtbot.waitUntil(lambda: widget.worker is None, timeout=60_000)
    assert not worker.is_running
    assert not widget.explain.isChecked()
    assert len(viewer.layers) == 1
    assert told() == []


def test_what_is_wrong_is_notified_with_its_remedy(widget, finish, noisy, told):
    widget.run()
    assert "Open an image" in told()[-1]
    layer = widget.viewer.add_image(noisy / 255.0)
    widget.run()
    assert widget.worker is None
    assert "Choose 0 to 1, the contrast limits, or black and white." in told()[-1]
    layer.data = noisy[:10, :10]
    widget.run()
    finish()  # this one slir itself refuses, in the other thread
    assert "image must have at least 16 pixels a side, but it is 10×10. Pad it first." in told()[-1]
    assert widget.start.isEnabled()
    assert len(widget.viewer.layers) == 1
