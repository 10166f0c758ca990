"""Settings explained: meaning, type, default, origin, and only what means something for the run."""

import pytest

from fedivon_app.cli.main import main
from fedivon_app.core.compose import composed
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.setting_words import setting_fields
from fedivon_app.methods import METHODS, settings_of
from fedivon_app.runs.explain import CONDITIONS, explained, meaningless


def explain(*sets: str, strategy: str | None = None, asked: str = "") -> str:
    return explained(composed(settings_of, "demo", strategy, sets), asked)


def test_a_setting_has_its_meaning_type_default_and_origin():
    assert explain("client.learning_rate=0.7", asked="client.learning_rate").splitlines() == [
        "client.learning_rate: 0.7",
        "    in the first round",
        "    number, above 0; default 0.1",
        "    set by the command line",
    ]
    assert "set by conf/experiment/demo.yaml" in explain(asked="rounds")
    assert "set by conf/strategy/fedivon.yaml" in explain(asked="client.schedule")
    assert "not set: the default" in explain(asked="server.min_replies")
    assert "constant, linear, cosine, exponential" in explain(asked="client.schedule")


def names_in(text: str) -> set[str]:
    return {line.partition(":")[0] for line in text.splitlines() if not line.startswith(" ")} - {""}


def test_what_means_nothing_for_the_run_is_left_out():
    shards = names_in(explain())
    assert "data.shard_sizes" in shards and "data.alpha" not in shards
    dirichlet = names_in(explain("data.partition=dirichlet"))
    assert "data.alpha" in dirichlet and "data.shard_sizes" not in dirichlet
    assert not any(name.startswith("wire.") for name in shards - {"wire.codec"})
    compact = names_in(explain("wire.codec=compact"))
    assert "wire.mean_step" in compact and "wire.remembered" in compact
    assert "pretraining.fraction" in shards and "pretraining.epochs" not in shards
    assert "pretraining.epochs" in names_in(explain("pretraining.fraction=0.1"))
    assert "client.ess" in shards and "client.ess" not in names_in(explain(strategy="fedavg"))
    off = {"attack.share", "privacy.delta", "privacy.size_epsilon", "merge.robust_share"}
    off |= {"data.label_column", "model.lora_rank"}
    assert not off & shards
    on = ["attack.kind=sign-flip", "privacy.epsilon=2", "evaluation.clients_every=0"]
    assert {"attack.share", "privacy.delta", "privacy.size_epsilon"} <= names_in(explain(*on))
    assert {"privacy.epsilon", "privacy.secure_aggregation", "attack.kind"} <= shards
    asked = explain(asked="data.alpha")
    assert "means nothing for this run: data.partition is shards" in asked
    assert "data.alpha" not in names_in(explain(asked="data"))


@pytest.mark.parametrize("name", METHODS)
def test_every_setting_of_every_method_is_explained(name):
    made = composed(settings_of, "demo", name)
    fields = [one.name for one in setting_fields(made.settings)]
    left_out = {one for one in fields if meaningless(one, made.settings)}
    assert names_in(explained(made)) == set(fields) - left_out
    assert all(one.description for one in setting_fields(made.settings))


def test_conditions_are_about_settings_that_exist():
    from fnmatch import fnmatchcase

    fields = [
        one.name
        for name in METHODS
        for one in setting_fields(composed(settings_of, "demo", name).settings)
    ]
    for pattern in CONDITIONS:
        assert any(fnmatchcase(name, pattern) for name in fields), pattern


def test_a_name_that_does_not_exist_is_told(capsys):
    with pytest.raises(SettingsError, match=r"no setting 'data.alpa': did you mean data.alpha"):
        explain(asked="data.alpa")
    assert main(["settings", "demo", "--explain", "clint"]) == 2
    assert "did you mean client?" in capsys.readouterr().err
    assert main(["settings", "demo", "--explain", "nope"]) == 2
    assert "choose from attack, client, clients_per_round, data," in capsys.readouterr().err
    assert main(["settings", "demo", "--explain", "client.ess"]) == 0
    assert capsys.readouterr().out.startswith("client.ess: ")
