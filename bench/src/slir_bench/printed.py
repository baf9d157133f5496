"""The figures that the paper prints, in dB, copied from its four tables. None of them was measured here.

The paper took the HL and EPLL figures of the deblurring table from Zoran and Weiss (2011), so they are of another
protocol. Its bicubic, KSVD and ANR figures for upsampling are those known for bicubic, not Gaussian, decimation.
"""

from __future__ import annotations

DEBLURRING = {
    "kernel 1": {"HL": 25.84, "EPLL": 27.17, "paper (MSE)": 25.68, "paper (ℓ2)": 27.21},
    "kernel 2": {"HL": 26.38, "EPLL": 27.70, "paper (MSE)": 26.31, "paper (ℓ2)": 27.96},
}
"""Mean over BSD68: kernel, then method."""

UPSAMPLING = {
    "baby": {"bicubic": 37.07, "KSVD": 38.25, "ANR": 38.44, "paper (ℓ2)": 38.29},
    "bird": {"bicubic": 36.81, "KSVD": 39.93, "ANR": 40.04, "paper (ℓ2)": 38.88},
    "butterfly": {"bicubic": 27.43, "KSVD": 30.65, "ANR": 30.48, "paper (ℓ2)": 29.97},
    "head": {"bicubic": 34.86, "KSVD": 35.59, "ANR": 35.66, "paper (ℓ2)": 35.63},
    "woman": {"bicubic": 32.14, "KSVD": 34.49, "ANR": 34.55, "paper (ℓ2)": 34.03},
    "mean": {"bicubic": 33.66, "KSVD": 35.78, "ANR": 35.83, "paper (ℓ2)": 35.36},
}
"""Image of Set5, then method."""

COMPOSITION = {
    "penguin": {"penguin": 29.64, "tiger": 29.51, "bear": 29.31, "building": 28.68, "hybrid": 29.69},
    "tiger": {"penguin": 26.91, "tiger": 26.90, "bear": 26.81, "building": 26.74, "hybrid": 26.89},
    "bear": {"penguin": 30.92, "tiger": 30.81, "bear": 30.61, "building": 29.59, "hybrid": 30.94},
    "building": {"penguin": 24.44, "tiger": 24.49, "bear": 24.46, "building": 24.81, "hybrid": 24.49},
    "mean": {"penguin": 27.98, "tiger": 27.93, "bear": 27.80, "building": 27.46, "hybrid": 28.00},
}
"""Test image, then training set."""

DENOISING = {
    "σ=15": {"KSVD": 31.98, "BM3D": 32.36, "EPLL": 32.10, "paper (ℓ2)": 29.39},
    "σ=25": {"KSVD": 29.33, "BM3D": 29.91, "EPLL": 29.62, "paper (ℓ2)": 27.31},
    "σ=50": {"KSVD": 24.82, "BM3D": 26.20, "EPLL": 26.32, "paper (ℓ2)": 24.44},
}
"""Mean over Set12: noise level, then method."""
