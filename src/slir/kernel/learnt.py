"""The learnt kernel as it ships: one network for every task, and how its errors were calibrated for each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from slir.kernel.network import KernelNetwork
from slir.kernel.noise_level import NoiseNetwork
from slir.kernel.stage import STAGES, stages
from slir.model import Model
from slir.trust.examples import Examples
from slir.trust.record import Trust

CALIBRATED = dict.fromkeys(("deblur", "upsample2", "upsample3", "upsample4", "inpaint"), STAGES) | {"denoise": 1}
"""Stages by the name under which errors are calibrated (`Operator.calibration`)."""


@dataclass(frozen=True)
class LearntKernel:
    """A network with the calibrated errors of each task.

    trust: by the name of the calibration. examples: patches of its training pictures, for explanations. provenance:
    how it was learnt, as JSON. noise: what tells the noise of a picture. camera: the network for noise as cameras and
    JPEG leave it, which differs from `network` in its fine layers.
    """

    network: KernelNetwork
    trust: dict[str, Trust] = field(default_factory=dict)
    examples: Examples | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    noise: NoiseNetwork | None = None
    camera: KernelNetwork | None = None

    def model(self, name: str) -> Model:
        """The estimator for operators of a calibration: one stage where B is the identity, several elsewhere."""
        chain = stages(self.network, CALIBRATED.get(name, STAGES))
        return Model(chain, self.provenance, trust=self.trust.get(name), examples=self.examples)

    @property
    def camera_model(self) -> Model:
        """The estimator for noise as cameras and JPEG leave it. Its errors are those of white noise, uncalibrated."""
        network = self.camera or self.network
        return Model(stages(network, 1), self.provenance, trust=self.trust.get("denoise"), examples=self.examples)
