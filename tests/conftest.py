"""What the tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from torchvision_ops import name_missing_operators

name_missing_operators()

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # the others are at work too

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # kernels then run on the CPU; Triton looks when it is imported


@pytest.fixture
def one_thread() -> Iterator[None]:
    """For tiny tensors, where more threads only wait for each other. `pytest.mark.usefixtures` asks for it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
