"""FedIvon: federated learning with Gaussian posteriors, as a Flower app."""

__version__ = "0.1.0"
