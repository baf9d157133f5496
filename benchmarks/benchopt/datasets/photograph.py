"""The photograph that ships with slir and that none of its models was learnt from, degraded in one of four ways."""

import numpy as np
import torch
from benchopt import BaseDataset

from slir import operators, psf
from slir.kernel.shipped import demo_picture


class Dataset(BaseDataset):
    name = "photograph"
    parameters = {"task": ["denoise", "deblur", "upsample", "inpaint"], "sigma": [0.02], "side": [256], "seed": [0]}
    test_parameters = {"side": [48]}
    requirements = ["pip::slir"]

    def get_data(self):
        generator = np.random.default_rng(self.seed)
        grey = demo_picture()[: self.side, : self.side].astype(np.float32).mean(-1) / 255
        x = torch.from_numpy(grey)
        operator = self._operator(generator, grey.shape)
        y = operator.forward(x)
        noise = torch.from_numpy(generator.standard_normal(y.shape).astype(np.float32))
        noise = noise if self.task != "inpaint" else operator.forward(noise)  # missing pixels have none
        return {"y": (y + self.sigma * noise).numpy(), "x": grey, "operator": operator, "sigma": self.sigma}

    def _operator(self, generator, shape):
        if self.task == "deblur":
            return operators.Blur(psf.motion(9, 30))
        if self.task == "upsample":
            return operators.Downsample(2)
        if self.task == "inpaint":
            return operators.Mask(generator.random(shape) < 0.5)
        return operators.Identity()
