"""The PSF of a picture of which nothing else is known: `estimate_psf`. Not public yet: the confidence does not tell a
wrong kernel from a right one (`docs/experiments.md`).

part, torus          which pixels, and their Fourier domain
edges, kernel        the two steps: a picture of sharp edges, and the kernel that makes the blurred one of it
support, scales      what a kernel looks like; from coarse to fine
joint                slir's restoration in place of the edges
shapes, softness     blurs of known shape
choice, verdict      which kernel, and whether it can be trusted
estimate             all of it
"""

from slir.psf.blind.estimate import PsfEstimate, estimate_psf

__all__ = ["PsfEstimate", "estimate_psf"]
