"""The settings of a run, explained: what each means, what it may be, and who said what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

import yaml

from fedivon_app.core.compose import Composed
from fedivon_app.core.data_settings import DataSettings
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.setting_words import SettingField, default_of, field_type, setting_fields
from fedivon_app.core.settings import AnySettings
from fedivon_app.core.text import did_you_mean
from fedivon_app.datasets.loading import TABLE_SETTINGS
from fedivon_app.datasets.partition import RULES, options_of

Means = Callable[[AnySettings], str]  # why a setting means nothing for a run; "" if it does


def _partition(name: str) -> Means:
    def means(settings: AnySettings) -> str:
        taken = name in options_of(settings.data.partition)
        return "" if taken else f"data.partition is {settings.data.partition}"

    return means


def _unless(condition: Callable[[AnySettings], bool], why: str) -> Means:
    return lambda settings: "" if condition(settings) else why


_by_rule = {name for rule in RULES for name in options_of(rule)} & set(DataSettings.model_fields)
# Settings that mean something under a condition only, by pattern.
CONDITIONS: dict[str, Means] = {
    **{f"data.{name}": _partition(name) for name in _by_rule},
    **dict.fromkeys(
        [f"data.{name}" for name in TABLE_SETTINGS],
        _unless(lambda s: s.data.source in ("table", "nodes"), "the data are not a table"),
    ),
    "data.shape": _unless(lambda s: s.data.source == "nodes", "the data themselves tell it"),
    "wire.[!c]*": _unless(lambda s: s.wire.codec == "compact", "wire.codec is raw"),
    "client.decay*": _unless(
        lambda s: s.client.schedule == "exponential", "client.schedule is not exponential"
    ),
    "client.final_learning_rate": _unless(
        lambda s: s.client.schedule in ("linear", "cosine"),
        "client.schedule is neither linear nor cosine",
    ),
    "client.schedule_over": _unless(
        lambda s: s.client.schedule != "constant", "client.schedule is constant"
    ),
    "pretraining.[!f]*": _unless(
        lambda s: s.pretraining.fraction > 0, "pretraining.fraction is 0: there is none"
    ),
    "evaluation.ood_*": _unless(
        lambda s: s.evaluation.ood is not None, "evaluation.ood names no data"
    ),
    "evaluation.sets": _unless(
        lambda s: s.evaluation.clients_every > 0, "evaluation.clients_every is 0"
    ),
    "evaluation.select_by": _unless(
        lambda s: s.data.holdout > 0, "data.holdout is 0: no examples are held out"
    ),
    "server.grace": _unless(lambda s: s.server.quorum is not None, "server.quorum is not set"),
    "model.name": _unless(lambda s: s.model.factory is None, "model.factory is set"),
    "model.dropout_logits": _unless(
        lambda s: s.model.dropout is not None, "model.dropout is not set"
    ),
    "model.lora_rank": _unless(
        lambda s: s.model.trainable == "lora", "model.trainable is not lora"
    ),
    "attack.[!k]*": _unless(lambda s: s.attack.kind != "none", "attack.kind is none"),
    "merge.robust_*": _unless(lambda s: s.merge.robust != "none", "merge.robust is none"),
    "privacy.[!es]*": _unless(lambda s: s.privacy.is_private, "privacy.epsilon is not set"),
    "privacy.size_epsilon": _unless(lambda s: s.privacy.is_private, "privacy.epsilon is not set"),
}


def explained(made: Composed, asked: str = "") -> str:
    """Return the settings of a run with what each of them means, a paragraph each.

    `asked` is a setting's dotted name, or a section's; without it there are all. Those that mean
    nothing for this run are left out, unless one is asked for by its name. A name that does not
    exist is a SettingsError.
    """
    fields = list(setting_fields(made.settings))
    meant = [one for one in fields if not asked or f"{one.name}.".startswith(f"{asked}.")]
    if not meant:
        known = {one.name for one in fields}
        sections = {name.partition(".")[0] for name in known}
        names = {*known, *sections}
        near = did_you_mean(asked, names if get_close_matches(asked, names) else sections)
        raise SettingsError(f"there is no setting {asked!r}: {near}")
    chosen = [one for one in meant if one.name == asked or not meaningless(one.name, made.settings)]
    return "\n\n".join("\n".join(_lines(one, made)) for one in chosen)


def meaningless(name: str, settings: AnySettings) -> str:
    """Return why a setting means nothing for a run with these settings, or "" if it does."""
    for pattern, means in CONDITIONS.items():
        if fnmatchcase(name, pattern):
            return means(settings)
    return ""


def _lines(one: SettingField, made: Composed) -> Iterator[str]:
    origin = _origin(one.name, made)
    yield f"{one.name}: {_written(one.value)}"
    if one.description:
        yield f"    {one.description}"
    default = default_of(one.field)
    told = default if one.field.is_required() else f"default {default}"
    yield f"    {field_type(one.field)}; {told}".replace("`", "")
    yield f"    set by {origin}" if origin else "    not set: the default"
    if why := meaningless(one.name, made.settings):
        yield f"    means nothing for this run: {why}"


def _origin(name: str, made: Composed) -> str:
    """Who gave the setting, or, of a mapping, one of its values."""
    if name in made.origins:
        return made.origins[name]
    inside = [who for key, who in made.origins.items() if key.startswith(f"{name}.")]
    return ", ".join(dict.fromkeys(inside))


def _written(value: Any) -> str:
    plain = list(value) if isinstance(value, tuple) else value
    text = yaml.safe_dump(plain, default_flow_style=True, width=10**6).strip()
    return text.removesuffix("\n...").removesuffix("...").strip()
