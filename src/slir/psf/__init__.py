"""Point spread functions: of the usual blurs, of a lens, and out of files and images of a bead or a star.

All are float64, odd-sized, non-negative and sum to one. Their light is centred on the middle pixel, or `offset` pixels
(down, right) from it where the builder takes an offset; `camera_shake` centres the box around its path unless asked
otherwise, and `from_array` and `from_file` leave the light where it is unless asked otherwise.

    gaussian, motion, defocus       by their widths in pixels
    airy, airy_from_aperture        by the dark ring in pixels, or by aperture, wavelength and pixel size
    camera_shake                    at random
    gaussian_volume, widefield      of volumes (z, y, x): by widths, or by aperture, wavelength, indices and voxel size
    from_image                      a bead or a star on a dark background, or the stack of a bead
    from_array, from_file           a kernel that exists
    centroid, fwhm                  what a kernel measures
"""

from slir.psf.analytic import airy, airy_from_aperture, defocus, gaussian, motion
from slir.psf.measured import from_array, from_file, from_image
from slir.psf.measures import centroid, fwhm
from slir.psf.shake import camera_shake
from slir.psf.volume import gaussian_volume, widefield

__all__ = [
    "gaussian",
    "motion",
    "defocus",
    "airy",
    "airy_from_aperture",
    "camera_shake",
    "gaussian_volume",
    "widefield",
    "from_image",
    "from_array",
    "from_file",
    "centroid",
    "fwhm",
]
