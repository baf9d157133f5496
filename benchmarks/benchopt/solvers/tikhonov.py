"""argmin ‖y − Bx‖² + λ²‖∇x‖² by SciPy's LSQR: the smooth baseline, and slir's operators in somebody else's solver."""

import numpy as np
import pylops
from benchopt import BaseSolver
from scipy.sparse.linalg import aslinearoperator, lsqr

from slir.adapters.scipy import to_pylops


class Solver(BaseSolver):
    name = "tikhonov"
    parameters = {"slope": [0.07]}  # root mean square difference of neighbouring pixels of a photograph
    sampling_strategy = "iteration"
    requirements = ["pip::slir[pylops]"]

    def set_objective(self, y, operator, sigma):
        self.shape = operator.x_shape(y.shape)
        gradient = pylops.Gradient(self.shape, edge=True, kind="forward")
        weight = max(sigma, 1e-3) / self.slope
        stacked = pylops.VStack([to_pylops(operator, self.shape), weight * gradient])
        self.system = aslinearoperator(stacked)
        self.wanted = np.concatenate([y.ravel(), np.zeros(gradient.shape[0])])

    def run(self, n_iter):
        self.x = lsqr(self.system, self.wanted, atol=0, btol=0, iter_lim=n_iter)[0]

    def get_result(self):
        return {"x": self.x.reshape(self.shape).astype(np.float32)}
