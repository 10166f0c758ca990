"""The chapter with the settings, and the command that runs the same again."""

from __future__ import annotations

import shlex

import yaml

from fedivon_app.core.compose import compose
from fedivon_app.core.dotted import flat
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.settings import AnySettings
from fedivon_app.methods import settings_of
from fedivon_app.report import html
from fedivon_app.report.grouping import shared, written
from fedivon_app.report.html import Chapter
from fedivon_app.report.view import PageView

MISSING = object()
SITES = ["--superlink", "HOST:PORT"]  # a run on sites' own files is not to be simulated


def chapter(view: PageView) -> Chapter:
    """Show all settings: of a run with the command that runs it again, in a comparison by group."""
    if view.compares:
        body = "".join(html.folded(group.label, _all(group.settings)) for group in view.groups)
    else:
        (group,) = view.groups
        again = command(group.settings)
        body = html.paragraph("To do the same run again:") + html.code(again) if again else ""
        body += html.folded("All settings", _all(group.settings))
    return Chapter("settings", "Settings", body)


def _all(settings: AnySettings) -> str:
    return html.code(yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False))


def command(settings: AnySettings) -> str | None:
    """Return the command line that runs the same again.

    It is None where the experiment is no longer there.
    """
    try:
        plain = compose(settings_of, settings.experiment, settings.strategy)
    except SettingsError:
        return None
    usual = flat(plain.model_dump(mode="json"))
    given = flat(shared(settings))
    changed = {key: value for key, value in given.items() if usual.get(key, MISSING) != value}
    words = ["fedivon", "run", settings.experiment, "--strategy", settings.strategy]
    words += ["--seed", str(settings.seed)]
    words += SITES if settings.data.source == "nodes" else []
    words += ["--set"] if changed else []
    return shlex.join([*words, *(f"{key}={written(value)}" for key, value in changed.items())])
