"""FedIvon: federated learning with Gaussian posteriors, as a Flower app."""

from pathlib import Path
from typing import TYPE_CHECKING

# In a checkout, and in the bundle that Flower ships, the folders strategies/, clients/, datasets/
# and conf/ lie beside this one and belong to this package; in an installed wheel they lie inside of
# it, and what lies beside is other people's. They have no __init__.py, so that no package of that
# name, such as Hugging Face's `datasets`, is ever hidden by them.
_package = Path(__file__).resolve().parent
if not (_package / "datasets").is_dir():
    __path__.append(str(_package.parent))

__version__: str

if not TYPE_CHECKING:  # a type checker would believe that every name exists

    def __getattr__(name: str) -> str:
        """Return the version of this very code, read from its pyproject.toml when somebody asks."""
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import tomllib

        places = (Path(folder) / "pyproject.toml" for folder in __path__)
        text = next(place for place in places if place.is_file()).read_text(encoding="utf-8")
        return tomllib.loads(text)["project"]["version"]
