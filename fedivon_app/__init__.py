"""FedIvon: federated learning with Gaussian posteriors, as a Flower app."""

from pathlib import Path

__version__ = "0.1.0"

# In a checkout, and in the bundle that Flower ships, the folders strategies/, clients/, datasets/ and conf/ lie beside
# this one and belong to this package; in an installed wheel they lie inside of it. They have no __init__.py, so that
# no package of that name, such as Hugging Face's `datasets`, is ever hidden by them.
__path__.append(str(Path(__file__).resolve().parents[1]))
