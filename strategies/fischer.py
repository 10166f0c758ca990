"""Fischer et al.'s Bayesian federated learning."""

from fedivon_app.strategies.base import PosteriorStrategy


class Fischer(PosteriorStrategy):
    """Their server (2024, Algorithm 1): Gaussian networks merged by any rule with any weighting of the clients."""
