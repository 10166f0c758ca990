"""Which hyper-parameters a step of IVON is defined for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

_VALID: dict[str, tuple[Callable[[float], bool], str]] = {
    "lr": (lambda x: x >= 0, "at least 0"),
    "ess": (lambda x: x > 0, "above 0"),
    "hess_init": (lambda x: x >= 0, "at least 0"),
    "beta1": (lambda x: 0 <= x < 1, "at least 0 and below 1"),
    "beta2": (lambda x: 0 <= x <= 1, "between 0 and 1"),
    "weight_decay": (lambda x: x >= 0, "at least 0"),
    "clip_radius": (lambda x: x > 0, "above 0"),
    "step_bound": (lambda x: x > 0, "above 0"),
    "gradient_noise": (lambda x: x >= 0, "at least 0"),
    "mc_samples": (lambda x: x >= 1, "at least 1"),
}


def check_options(options: Mapping[str, float]) -> None:
    """Raise a ValueError that names the first of these that is out of its bounds."""
    for name, value in options.items():
        holds, rule = _VALID[name]
        if not holds(value):
            raise ValueError(f"IVON: {name} is {value}; it must be {rule}")
