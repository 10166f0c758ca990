"""FedIvon: federated learning with Gaussian posteriors, as a Flower app."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

# In a checkout, and in the bundle that Flower ships, the folders strategies/, clients/, datasets/
# and conf/ lie beside this one and belong to this package; in an installed wheel they lie inside of
# it, and what lies beside is other people's. They have no __init__.py, so that no package of that
# name, such as Hugging Face's `datasets`, is ever hidden by them.
_package = Path(__file__).resolve().parent
if not (_package / "datasets").is_dir():
    __path__.append(str(_package.parent))

if TYPE_CHECKING:  # for a type checker, which would else believe that every name exists
    from fedivon_app.api import Prediction as Prediction
    from fedivon_app.api import Run as Run
    from fedivon_app.api import run as run

    __version__: str
else:

    def __getattr__(name: str) -> Any:
        """Return what Python's users call, or the version, when somebody asks for it."""
        if name in ("Prediction", "Run", "run"):
            from fedivon_app import api

            return getattr(api, name)
        if name == "__version__":
            return _version()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _version() -> str:
    """Return the version of this very code, as its pyproject.toml has it.

    That lies inside of an installed package, and above it in a checkout and in a bundle.
    """
    import tomllib

    for place in (_package, _package.parent):
        if (file := place / "pyproject.toml").is_file():
            project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
            if project.get("name") == "fedivon":
                return str(project["version"])
    return ""
