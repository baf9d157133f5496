"""Where direct convolution and the FFT cost the same: sets `slir.operators.convolution.DIRECT_TAPS`.

    python benchmarks/convolution.py

Prints, for PSFs of several sizes on a 321×481 image, the time of BᵀBx done directly over that done by FFT, measured
side by side; the crossing is where the ratio passes one.
"""

from __future__ import annotations

import time

import torch

from slir.operators import Blur, convolution


def seconds(blur: Blur, image: torch.Tensor, repeats: int = 9) -> float:
    """Median time of one BᵀBx."""
    blur.normal(image)
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        blur.normal(image)
        times.append(time.perf_counter() - started)
    return sorted(times)[repeats // 2]


def main() -> None:
    image = torch.rand(321, 481, generator=torch.Generator().manual_seed(0))
    print("PSF      direct/FFT")
    for size in (3, 5, 7, 9, 11, 15):
        blur = Blur(torch.full((size, size), 1 / size**2))
        taken = {}
        for name, limit in (("direct", 10**6), ("fft", 0)):
            convolution.DIRECT_TAPS = limit
            taken[name] = seconds(blur, image)
        print(f"{size:2d}×{size:<2d}    {taken['direct'] / taken['fft']:6.2f}")


if __name__ == "__main__":
    main()
