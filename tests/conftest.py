"""What the tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import hypothesis
import pytest
import torch

from torchvision_ops import name_missing_operators

name_missing_operators()

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # the others are at work too

# What starts the tests in the background has Ctrl-C ignored, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples every time, and no deadlines, since machines are busy otherwise too. To look for new ones:
# pytest --hypothesis-profile default
hypothesis.settings.register_profile("steady", deadline=None, derandomize=True)
hypothesis.settings.load_profile("steady")

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # kernels then run on the CPU; Triton looks when it is imported


@pytest.fixture
def one_thread() -> Iterator[None]:
    """For tiny tensors, where more threads only wait for each other. `pytest.mark.usefixtures` asks for it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
