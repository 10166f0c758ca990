"""What can be told of planned runs before Flower starts: whether data and models can be made."""

from __future__ import annotations

from collections.abc import Iterable

from fedivon_app.core.errors import SettingsError, UserError
from fedivon_app.core.settings import AnySettings
from fedivon_app.runs.plan import Plan
from fedivon_app.server.setup import prepare


def check(plans: Iterable[Plan], blame: bool = False) -> None:
    """Raise a SettingsError for what is wrong with the data or the model of a plan.

    Each different pair of data and model is looked at once. With `blame`, the complaint begins with
    the plan's values.
    """
    seen: set[str] = set()
    for plan in plans:
        prepared = _prepared(plan.settings)
        if prepared in seen:
            continue
        seen.add(prepared)
        try:
            prepare(plan.settings)
        except UserError as error:
            blamed = f"{plan.label}: " if blame and plan.label else ""
            raise SettingsError(f"{blamed}{error}") from None


def _prepared(settings: AnySettings) -> str:
    """The settings that what is prepared depends on."""
    data = settings.data.model_dump_json()
    model = settings.model.model_dump_json()
    return f"{data}\n{model}\n{settings.seed}"
