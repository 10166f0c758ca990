"""Federated averaging."""

from strategies.base import PosteriorStrategy


class FedAvg(PosteriorStrategy):
    """FedAvg's server (McMahan et al. 2017): points, averaged, weighted by data size (rule `nwa`)."""
