"""What a site allows, whoever asks: limits from its node config, which no run can override."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.files import default_state_root
from fedivon_app.core.ledger import Ledger, Limit
from fedivon_app.core.registry import is_import_path

NO_PATHS = frozenset({"path", "root", "folder", "ood_path"})  # of files, in which a colon may be


@dataclass(frozen=True)
class SitePolicy:
    """The limits of a site; a run that goes beyond one of them is refused by name.

    `largest_epsilon` is what a run may ask for: a run without differential privacy is refused too.
    `epsilon_limit` is what all runs together may spend of one data set's privacy, at
    `epsilon_delta`. `smallest_cohort` is with how many clients a round must be planned at least.
    Without `import_paths` no setting may name code by its import path, as model.factory does.
    Without `network` a ClientApp reaches its node and nothing else, which `fedivon node` sees to.
    """

    largest_epsilon: float | None = None
    epsilon_limit: float | None = None
    epsilon_delta: float = 1e-5
    smallest_cohort: int = 1
    import_paths: bool = True
    network: bool = True

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> SitePolicy:
        """Read the policy from a node config, where names have hyphens."""
        given = {}
        for one in fields(cls):
            key = one.name.replace("_", "-")
            if key in node:
                given[one.name] = _checked(key, node[key])
        return cls(**given)

    @property
    def limit(self) -> Limit:
        """Return what may be spent of the privacy of one data set."""
        return Limit(self.epsilon_limit, self.epsilon_delta)

    @property
    def limits_runs(self) -> bool:
        """Tell whether there are runs that would be refused for their settings."""
        return replace(self, network=True) != SitePolicy()

    def refusal(self, settings: Mapping[str, Any]) -> str:
        """Return why a run of these settings, as they travel, is refused, or nothing."""
        privacy = settings.get("privacy") or {}
        epsilon = privacy.get("epsilon")
        bound = self.largest_epsilon
        if bound is not None and epsilon is None:
            return (
                f"this site's largest-epsilon is {bound:g}, and the run is not private: "
                "set privacy.epsilon"
            )
        if bound is not None and epsilon is not None and epsilon > bound:
            return f"this site's largest-epsilon is {bound:g}, and privacy.epsilon is {epsilon:g}"
        if bound is not None and privacy.get("delta", 1.0) > self.epsilon_delta:
            return (
                f"this site's epsilon-delta is {self.epsilon_delta:g}, and privacy.delta is "
                f"{privacy.get('delta', 1.0):g}"
            )
        cohort = settings.get("clients_per_round") or (settings.get("data") or {}).get("clients")
        if self.smallest_cohort > 1 and (cohort or 0) < self.smallest_cohort:
            return (
                f"this site's smallest-cohort is {self.smallest_cohort}, and a round of the run "
                f"has {cohort or 'an unknown number of'} clients"
            )
        if not self.import_paths and (found := next(_import_paths(settings), "")):
            return f"this site allows no import paths, and the run names {found}"
        return ""

    def lines(self) -> list[str]:
        """Return the policy in words, a line for each limit."""
        spend = "anything" if self.epsilon_limit is None else f"epsilon {self.epsilon_limit:g}"
        ask = "none" if self.largest_epsilon is None else f"epsilon {self.largest_epsilon:g}"
        return [
            f"largest-epsilon: {ask} of a run"
            + ("" if self.largest_epsilon is None else ", and no run without it"),
            f"epsilon-limit: {spend} of one data set by all runs, "
            f"at epsilon-delta {self.epsilon_delta:g}",
            f"smallest-cohort: {self.smallest_cohort} clients in a round",
            f"import-paths: {'allowed' if self.import_paths else 'refused'}",
            "network: " + ("as the node has it" if self.network else "the node alone"),
        ]


def is_site(node: Mapping[str, Any]) -> bool:
    """Tell whether a node keeps a ledger of its own; simulated clients have one of the run."""
    return any(key in node for key in ("data-path", "ledger-path", "epsilon-limit"))


def site_ledger(node: Mapping[str, Any]) -> Ledger:
    """Return the ledger of a site: in `ledger-path` of its node config, or with its state."""
    own = node.get("ledger-path")
    folder = Path(str(own)) if own else state_root(node) / "ledger"
    return Ledger(folder.expanduser(), SitePolicy.of(node).limit)


def state_root(node: Mapping[str, Any]) -> Path:
    """Return where a node keeps files: `state-path` of its config, or where nodes do."""
    own = node.get("state-path")
    return Path(str(own)) if own else default_state_root()


def _checked(key: str, value: Any) -> Any:
    """Return a value of the node config, if it is of the kind that its name asks for."""
    if key in ("import-paths", "network"):
        if not isinstance(value, bool):
            raise SettingsError(f"the node config's {key} is {value!r}; say true or false")
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if key == "smallest-cohort":
        if not (is_number and value >= 1 and value % 1 == 0):
            raise SettingsError(
                f"the node config's smallest-cohort is {value!r}; it is a whole number from 1 on"
            )
        return int(value)
    if not (is_number and 0 < value < (1 if key == "epsilon-delta" else float("inf"))):
        bounds = "between 0 and 1" if key == "epsilon-delta" else "above 0"
        raise SettingsError(f"the node config's {key} is {value!r}; it is a number {bounds}")
    return float(value)


def _import_paths(settings: Mapping[str, Any], place: str = "") -> Iterator[str]:
    """Yield the settings that name code by its import path, each with its value."""
    for key, value in settings.items():
        name = f"{place}{key}"
        if isinstance(value, Mapping):
            yield from _import_paths(value, f"{name}.")
            continue
        for text in value if isinstance(value, list | tuple) else [value]:
            if isinstance(text, str) and key not in NO_PATHS and is_import_path(text):
                yield f"{name} {text}"
