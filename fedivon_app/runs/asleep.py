"""Which modules a run does not go through, because its settings leave off what they are for.

A run without an attack does not depend on how an attack is made, nor one over the raw wire on how
symbols are coded.
"""

from __future__ import annotations

from fedivon_app.core.settings import AnySettings
from fedivon_app.datasets.loading import is_standardised

_ATTACKS = ("core.trigger", "strategies.attacks")
_COMPACT_WIRE = (
    "core.activity",
    "core.envelope",
    "core.quantise",
    "core.rounding",
    "core.symbols",
    "core.tables",
    "core.vectors",
)
_DEFENCES = (
    "strategies.claims",
    "strategies.portraits",
    "strategies.robust",
    "strategies.robust_merge",
    "strategies.sketch",
    "strategies.taken_back",
    "strategies.trial",
)
_FUSED = ("core.compiled", "core.fused_normals", "core.fused_step")
_LABEL_NOISE = ("datasets.noise",)
_NUMBERS = ("core.number_scores",)
_PRETRAINING = ("server.pretraining",)
_PRIVACY = (
    "clients.private",
    "core.accountant",
    "core.clipped",
    "core.ledger",
    "core.privacy",
    "core.secure_random",
)
_STANDARDS = ("core.standardise",)
_SECURE_SUMS = ("core.secure.columns", "core.secure.fixed_point")


def asleep(settings: AnySettings) -> frozenset[str]:
    """Return the modules of which no function is called in a run with these settings."""
    asked = settings.task == "regression" or settings.client.class_weights == "balanced"
    defended = settings.merge.robust != "none" or settings.keeps_history
    on = {
        _ATTACKS: settings.attack.kind != "none",
        _COMPACT_WIRE: settings.wire.codec != "raw",
        _DEFENCES: defended,
        _FUSED: getattr(settings.client, "noise", None) == "fused",
        _LABEL_NOISE: settings.data.label_noise > 0,
        _NUMBERS: settings.task == "regression",
        _PRETRAINING: settings.pretraining.fraction > 0,
        _PRIVACY: settings.privacy.is_private,
        _SECURE_SUMS: settings.privacy.secure_aggregation,
        _STANDARDS: asked or settings.data.standard is not None or is_standardised(settings.data),
    }
    off = [modules for modules, used in on.items() if not used]
    return frozenset(f"fedivon_app.{module}" for modules in off for module in modules)
