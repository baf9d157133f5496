"""How far apart the pixels of a file are, as its metadata say: on a slide, or on the sky."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping

from slir.io import fits, omezarr, tiff_meta, tiff_text
from slir.io.picture import Meta

Step = tuple[float, str]
"""A distance and its unit."""

_INCH, _SHORT = 25.4, 0.05  # mm


def pixel_size(meta: Meta) -> dict[str, Step]:
    """The distance of neighbouring pixels along x, y and, of stacks, z; nothing where the file does not say it."""
    for found in (_of_zarr(meta), _of_fits(meta), _of_description(meta), _of_resolution(meta)):
        if found:
            return {axis: found[axis] for axis in "xyz" if axis in found}
    return {}


def _of_zarr(meta: Meta) -> Mapping[str, Step]:
    private = meta.private.get(omezarr.NAME)
    return private.image.steps if isinstance(private, omezarr.Private) else {}


def _of_fits(meta: Meta) -> Mapping[str, Step]:
    """Of a picture of the sky, by its world coordinates."""
    private = meta.private.get(fits.NAME)
    if not isinstance(private, fits.Private):
        return {}
    from astropy.io.fits import Header
    from astropy.wcs import WCS
    from astropy.wcs.utils import proj_plane_pixel_scales

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sky = WCS(Header.fromstring(private.header)).celestial
            across, down = (float(degrees) * 3600 for degrees in proj_plane_pixel_scales(sky))
    except Exception:  # a header without world coordinates, or with damaged ones
        return {}
    return _known({"x": (across, "arcsec"), "y": (down, "arcsec")})


def _of_description(meta: Meta) -> Mapping[str, Step]:
    """Of TIFF files, as OME and ImageJ describe them."""
    text = meta.text.get("ImageDescription", "")
    if tiff_text.is_ome(text):
        return _known(tiff_text.ome_steps(text))
    unit = tiff_text.imagej_unit(text)
    if unit is None or meta.resolution is None:
        return {}
    steps = {"x": (1 / meta.resolution.x, unit), "y": (1 / meta.resolution.y, unit)}
    return _known(steps | {axis: (step, unit) for axis, step in tiff_text.imagej_spacing(text).items()})


def _of_resolution(meta: Meta) -> Mapping[str, Step]:
    """Of TIFF files, by their resolution. In other formats it mostly says how to print a photograph."""
    lengths = None if meta.resolution is None else meta.resolution.per_inch()
    if lengths is None or tiff_meta.NAME not in meta.private:
        return {}
    steps = [_INCH / length for length in lengths]
    scale, unit = (1.0, "mm") if max(steps) >= _SHORT else (1000.0, "µm")
    return _known({axis: (scale * step, unit) for axis, step in zip("xy", steps)})


def _known(steps: Mapping[str, Step]) -> dict[str, Step]:
    return {axis: step for axis, step in steps.items() if math.isfinite(step[0]) and step[0] > 0}
