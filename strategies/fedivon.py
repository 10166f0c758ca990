"""FedIvon."""

from fedivon_app.strategies.base import PosteriorStrategy


class FedIvon(PosteriorStrategy):
    """FedIvon's server (Pal et al. 2025, Algorithm 2): posteriors multiplied, weighted by size (rule `product`)."""
