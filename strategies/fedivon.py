"""FedIvon."""

import numpy as np

from fedivon_app.core.posterior import Posterior
from strategies.base import PosteriorStrategy


class FedIvon(PosteriorStrategy):
    """FedIvon's server (Pal et al. 2025, Algorithm 2): posteriors multiplied, weighted by size (rule `product`)."""

    def initial(self, mean: np.ndarray) -> Posterior:
        """s = ess (hess_init + weight_decay) everywhere."""
        client = self.settings.client
        return Posterior(mean, np.full_like(mean, client.ess * (client.hess_init + client.weight_decay)))
