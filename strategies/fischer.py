"""Fischer et al.'s Bayesian federated learning."""

from strategies.base import PosteriorStrategy


class Fischer(PosteriorStrategy):
    """Their server (2024, Algorithm 1): Gaussian networks merged by any rule with any weighting of the clients."""
