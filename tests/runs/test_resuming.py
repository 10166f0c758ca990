"""Going on with a run that has come to its end, or was stopped."""

import json

import numpy as np
import pytest

from fedivon_app.cli.main import main
from fedivon_app.core.codec import Payload
from fedivon_app.core.compose import compose
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.posterior import Posterior
from fedivon_app.methods import settings_of
from fedivon_app.runs.checkpoints import Checkpoint
from fedivon_app.runs.folder import Run
from fedivon_app.runs.resuming import MAY_CHANGE, changed, consequence, rounds_done
from tests.golden import prepare_process
from tests.one_process import in_one_process

FALLING = ["client.schedule=linear", "client.learning_rate=0.1", "client.final_learning_rate=0.01"]
STEADY = ["client.schedule=constant", "client.final_learning_rate=null"]
SMALL = ["data.clients=3", "clients_per_round=2", "evaluation.samples=2", "data.max_examples=30"]


def a_run(tmp_path, *words, done=10, rounds=10):
    named = [f"run.folder={tmp_path}", f"rounds={rounds}", *words]
    run = Run.create(compose(settings_of, "demo", overrides=named))
    posterior = Posterior(np.zeros(3, np.float32), np.ones(3, np.float32))
    if done:
        run.save(Checkpoint(round=done, payload=Payload(posterior), state={}))
    return run


def test_what_says_how_long_may_change_and_what_is_learned_may_not(tmp_path):
    run = a_run(tmp_path)
    words = ["rounds=20", "run.stop_after=15", "evaluation.at=[12]"]
    settings = changed(run, words)
    assert (settings.rounds, settings.run.stop_after, settings.evaluation.at) == (20, 15, (12,))
    for word in ("client.learning_rate=1", "seed=1", "data.clients=3", "strategy=fedavg"):
        name = word.partition("=")[0]
        with pytest.raises(SettingsError, match=f"^{name} cannot change in the middle of a run"):
            changed(run, [word])
    with pytest.raises(SettingsError, match="rounds is 5, but .* has done 10"):
        changed(run, ["rounds=5"])
    with pytest.raises(SettingsError, match="the command line: rounds is 'many'"):
        changed(run, ["rounds=many"])
    with pytest.raises(SettingsError, match="not of the form name=value"):
        changed(run, ["rounds"])


def test_all_that_may_change_are_settings(tmp_path):
    run = a_run(tmp_path)
    values = run.settings.model_dump(mode="json")
    for name in MAY_CHANGE:
        section, _, leaf = name.rpartition(".")
        value = (values[section] if section else values)[leaf]
        assert changed(run, [f"{name}={json.dumps(value)}"]) == run.settings


def test_what_becomes_of_the_learning_rate_is_said(tmp_path):
    run = a_run(tmp_path, *FALLING)
    assert consequence(run, run.settings) == ""
    told = consequence(run, changed(run, ["rounds=19"]))
    # linear from 0.1 in round 1 to 0.01 in round 19: 0.1 - 0.09 * 10/18 = 0.05 in round 11
    assert "was 0.01 in round 10 and is 0.05 in round 11" in told and "over 19 rounds" in told
    steady = a_run(tmp_path / "steady", *STEADY, "client.learning_rate=0.25")
    assert consequence(steady, changed(steady, ["rounds=11"])).endswith("stays as it is, 0.25")


def test_a_completed_run_is_left_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    federation = in_one_process(monkeypatch)
    run = a_run(tmp_path)
    assert main(["resume", str(run.folder)]) == 0
    shown = capsys.readouterr().out
    assert f"{run.folder.name} is completed, with 10 of 10 rounds done" in shown
    assert not federation.configs
    assert main(["resume", str(run.folder), "--set", "client.ess=3"]) == 2
    assert "client.ess cannot change" in capsys.readouterr().err


def test_a_completed_run_without_its_checkpoint_is_not_made_anew_over_its_results(
    tmp_path, monkeypatch, capsys
):
    federation = in_one_process(monkeypatch)
    run = a_run(tmp_path, done=0)
    seconds = {"train": 1.0, "evaluate": 1.0}
    run.append({"round": 10, "bytes_up": 1, "bytes_down": 1, "dropped": [], "seconds": seconds})
    run.summarise("completed")
    before = (run.folder / "metrics.jsonl").read_bytes()
    for more in ([], ["--set", "rounds=20"]):
        assert main(["resume", str(run.folder), *more]) == 2
        assert "has no checkpoint to go on from" in capsys.readouterr().err
    assert not federation.configs and (run.folder / "metrics.jsonl").read_bytes() == before


def test_a_run_that_is_extended_is_the_run_that_was_longer_from_the_start(
    tmp_path, monkeypatch, capsys
):
    federation = in_one_process(monkeypatch)
    prepare_process()
    runs = ["--runs", str(tmp_path), "--set", *SMALL, *STEADY]
    assert main(["run", "demo", *runs, "rounds=3"]) == 0
    (longer,) = tmp_path.iterdir()
    assert main(["run", "demo", *runs, "rounds=2"]) == 0
    (shorter,) = set(tmp_path.iterdir()) - {longer}
    assert main(["resume", str(shorter), "--set", "rounds=3"]) == 0
    assert federation.configs[-1]["set"] == "rounds=3"
    assert "2 planned rounds are now 3; the learning rate" in capsys.readouterr().out
    extended = Run.open(shorter)
    assert extended.settings.rounds == 3 and rounds_done(extended) == 3
    losses = [[one["train_loss"] for one in Run.open(f).metrics()] for f in (longer, shorter)]
    assert losses[0] == losses[1] and len(losses[0]) == 3
    assert json.loads((shorter / "summary.json").read_text())["rounds"] == 3


@pytest.mark.parametrize(
    ("file", "says"),
    [("metrics.jsonl", "line 1 is not a record"), ("checkpoint", "is not a readable")],
)
def test_what_keeps_a_run_from_going_on_is_said_before_anything_starts(
    file, says, tmp_path, monkeypatch, capsys
):
    federation = in_one_process(monkeypatch)
    run = a_run(tmp_path, done=2)
    if file == "checkpoint":
        run.checkpoints()[-1].path.joinpath("order.json").write_text("{")
    else:
        (run.folder / file).write_text("[1]\n[2]\n")
    assert main(["resume", str(run.folder)]) == 2
    assert says in capsys.readouterr().err and not federation.configs
