"""What is written of a finished round: its line, the checkpoints, the best one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch import nn

from fedivon_app.core.codec import Payload
from fedivon_app.core.flat import Flat
from fedivon_app.core.posterior import Posterior
from fedivon_app.runs.checkpoints import BestRound
from fedivon_app.runs.folder import Run
from fedivon_app.server.evaluation import Evaluator
from fedivon_app.server.newcomers import Newcomers
from fedivon_app.server.recorder import Recorder, progress
from fedivon_app.server.setup import prepare
from fedivon_app.strategies.standing import Standing
from tests.server.helpers import demo

SCORES = {"accuracy": 0.5, "nll": 1.25, "ece": 0.125, "brier": 0.6}
MODULE = """
from fedivon_app.core.scores import Score

GAIN = Score("gain", "Gain", True, value=lambda tally: 0.0)
REGRET = Score("regret", "Regret", False, value=lambda tally: 0.0)
"""


def recorder_in(folder, *overrides: str) -> Recorder:
    """Return the recorder of a new run whose server has no data of its own."""
    run = Run.create(demo(f"run.folder={folder}", *overrides))
    return recorder_of(run, Evaluator(run.settings, Flat(nn.Linear(2, 1)), {}))


def recorder_of(run: Run, evaluator: Evaluator, has_global_model: bool = True) -> Recorder:
    return Recorder(run, evaluator, num_classes=10, has_global_model=has_global_model)


def standing(server_round: int) -> Standing:
    posterior = Posterior(np.full(3, server_round), np.full(3, server_round + 1))
    return Standing(
        round=server_round,
        payload=Payload(posterior),
        state={"sum": np.full(3, -server_round, np.float32)},
        last_merged={0: server_round, 4: 1},
    )


def record(server_round: int, **gm: dict[str, Any]) -> dict[str, Any]:
    """Return a round's line, with these scores of the global model."""
    return {
        "round": server_round,
        "gm": gm,
        "train_loss": 0.75,
        "dropped": [],
        "bytes_up": 10,
        "bytes_down": 20,
        "seconds": {"train": 1.0, "evaluate": 0.5},
    }


def held_out(server_round: int, name: str, value: float) -> dict[str, Any]:
    """Return a line whose held-out score is this by Monte Carlo, and the opposite at the mean."""
    ways = {"mean": SCORES | {name: -value}, "mc": SCORES | {name: value, "samples": 4}}
    return record(server_round, holdout=ways)


def assert_is(checkpoint, expected: Standing) -> None:
    assert checkpoint.round == expected.round
    saved = Standing.of(checkpoint.round, checkpoint.payload, checkpoint.state)
    assert saved.last_merged == expected.last_merged
    np.testing.assert_array_equal(saved.state["sum"], expected.state["sum"])
    posterior = saved.payload.posterior
    np.testing.assert_array_equal(posterior.mean, expected.payload.posterior.mean)
    np.testing.assert_array_equal(posterior.precision, expected.payload.posterior.precision)


HIGHER = [1, 2, 2, 2]  # the best of the rounds so far
LOWER = [1, 1, 3, 3]


@pytest.mark.parametrize(
    ("name", "best_so_far"),
    [("accuracy", HIGHER), ("gain", HIGHER), ("nll", LOWER), ("regret", LOWER)],
)
def test_the_best_checkpoint_is_that_of_the_best_held_out_score(
    tmp_path, monkeypatch, name, best_so_far
):
    """Whether higher or lower is better is the score's own to say, the user's scores included."""
    (tmp_path / "scores_of_somebody.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    own = "evaluation.scores=[scores_of_somebody:GAIN, scores_of_somebody:REGRET]"
    recorder = recorder_in(tmp_path / "runs", own, f"evaluation.select_by={name}")
    run = recorder.run
    values = [0.5, 0.8, 0.3, 0.4]
    found = []
    for number, value in enumerate(values, 1):
        recorder.finished(standing(number), held_out(number, name, value))
        found.append(run.best().round)
    assert found == best_so_far
    best = best_so_far[-1]
    sign = -1 if best_so_far is HIGHER else 1
    assert run.best() == BestRound(best, sign * values[best - 1])
    assert_is(run.load(run.best_folder), standing(best))


def test_equally_good_rounds_leave_the_first_as_the_best(tmp_path):
    recorder = recorder_in(tmp_path)
    for number in (1, 2):
        recorder.finished(standing(number), held_out(number, "nll", 0.5))
    assert recorder.run.best().round == 1


def test_a_round_without_held_out_scores_has_no_part_in_the_best(tmp_path):
    recorder = recorder_in(tmp_path)
    recorder.finished(standing(1), record(1, test={"mean": SCORES}))
    assert recorder.run.best() is None
    recorder.finished(standing(2), held_out(2, "nll", 0.5))
    recorder.finished(standing(3), record(3, test={"mean": SCORES | {"nll": 0.1}}))
    assert recorder.run.best() == BestRound(2, 0.5)


def test_a_resumed_run_goes_on_with_the_best_that_it_had(tmp_path):
    recorder = recorder_in(tmp_path)
    recorder.finished(standing(1), held_out(1, "nll", 0.5))
    later = recorder_of(Run.open(recorder.run.folder), recorder.evaluator)
    later.finished(standing(2), held_out(2, "nll", 0.6))
    assert later.run.best().round == 1
    later.finished(standing(3), held_out(3, "nll", 0.4))
    assert later.run.best().round == 3


def test_finished_tells_whether_a_checkpoint_was_written(tmp_path):
    words = ["rounds=7", "run.checkpoint_every=3", "run.stop_after=5"]
    recorder = recorder_in(tmp_path, *words)
    run = recorder.run
    told = {}
    written = []
    for number in range(1, 8):
        told[number] = recorder.finished(standing(number), record(number))
        if number in {saved.round for saved in run.checkpoints()}:
            written.append(number)
            assert_is(run.load(run.checkpoints()[-1].path), standing(number))
    assert written == [3, 5, 6, 7]
    assert [number for number, due in told.items() if due is True] == written
    assert [number for number, due in told.items() if due is False] == [1, 2, 4]
    assert [line["round"] for line in run.metrics()] == list(range(1, 8))


def test_the_best_checkpoint_is_no_checkpoint_to_go_on_from(tmp_path):
    """Clients must keep what the last one of the others counts on, so `finished` says no."""
    recorder = recorder_in(tmp_path, "run.checkpoint_every=10")
    assert recorder.finished(standing(1), held_out(1, "nll", 0.5)) is False
    assert recorder.run.best().round == 1 and recorder.run.checkpoints() == []


def test_the_last_round_is_kept_where_it_is_not_yet(tmp_path, monkeypatch):
    recorder = recorder_in(tmp_path, "run.checkpoint_every=2")
    run = recorder.run
    recorder.keep_last()
    assert run.checkpoints() == []
    for number in (1, 2, 3):
        recorder.finished(standing(number), record(number))
    assert [saved.round for saved in run.checkpoints()] == [2]
    recorder.keep_last()
    assert [saved.round for saved in run.checkpoints()] == [2, 3]
    assert_is(run.resume(), standing(3))
    monkeypatch.setattr(run, "save", lambda checkpoint: pytest.fail("it was there already"))
    recorder.keep_last()


def test_the_global_model_is_scored_when_it_is_due_and_where_there_is_one(tmp_path):
    settings = demo(f"run.folder={tmp_path}", "evaluation.every=2", "evaluation.samples=2")
    prepared = prepare(settings)
    evaluator = Evaluator(settings, prepared.flat, prepared.data.parts)
    payload = Payload(Posterior(prepared.flat.mean()))
    run = Run.create(settings)
    able = recorder_of(run, evaluator)
    assert able.score(1, payload) is None
    assert able.score(2, payload) == evaluator(2, payload)
    assert recorder_of(run, evaluator, has_global_model=False).score(2, payload) is None
    without_data = Evaluator(settings, prepared.flat, {})
    assert recorder_of(run, without_data).score(2, payload) is None


def test_a_round_is_shown_in_one_line(tmp_path, caplog):
    ways = {"mean": SCORES, "mc": SCORES | {"samples": 4}}
    line = progress(record(10, test=ways) | {"dropped": [1]}, 100)
    expected = "round 10/100  train loss 0.7500  mean: acc 50.00 nll 1.2500 ece 0.1250"
    expected += "  mc: acc 50.00 nll 1.2500 ece 0.1250"
    assert line == f"{expected}  dropped 1  1.50 s"
    with caplog.at_level("INFO", logger="fedivon"):
        recorder_in(tmp_path).finished(standing(10), record(10, test=ways) | {"dropped": [1]})
    assert [one.getMessage() for one in caplog.records] == [line]


def test_where_the_server_has_no_test_data_the_clients_scores_are_shown():
    ways = {"mean": SCORES, "mc": SCORES | {"samples": 4}, "by_client": [SCORES]}
    shown = "mean: acc 50.00 nll 1.2500 ece 0.1250  mc: acc 50.00 nll 1.2500 ece 0.1250  1.50 s"
    own = {"pm": {"clients_after_training": ways}}
    both = own | {"gm": {"clients_before_training": ways}}
    start = "round 2/9  train loss 0.7500  "
    assert progress(record(2) | both, 9) == f"{start}clients' test parts, {shown}"
    assert progress(record(2) | own, 9) == f"{start}PMs, clients' test parts, {shown}"


def test_scored_rounds_tell_how_the_precision_spreads(tmp_path):
    recorder = recorder_in(tmp_path, "evaluation.every=2")
    for number in (1, 2):
        recorder.finished(standing(number), record(number))
    first, second = recorder.run.metrics()
    assert "precision" not in first
    assert second["precision"]["all"]["p50"] == 3
    assert set(second["precision"]) == {"all", "weight", "bias"}


def test_what_was_learned_and_lost_is_told_at_once(tmp_path, monkeypatch, caplog):
    settings = demo(f"run.folder={tmp_path}", "evaluation.every=1")
    prepared = prepare(settings)
    evaluator = Evaluator(settings, prepared.flat, prepared.data.parts)
    recorder = recorder_of(Run.create(settings), evaluator)
    payload = Payload(Posterior(prepared.flat.mean()))
    for number, nll in enumerate((2.4, 0.5, 2.5), start=1):
        scores = {"test": {"mean": SCORES | {"nll": nll}}}
        monkeypatch.setattr(Evaluator, "__call__", lambda self, at, what, found=scores: found)
        recorder.score(number, payload)
        assert (recorder.unlearned is None) == (nll < 2)
    (line,) = [one.getMessage() for one in caplog.records]
    assert line.startswith("round 3: what was learned is lost; hardly better than guessing")


def scored_round(server_round: int, accuracy: float | None, *partitions: int) -> dict[str, Any]:
    gm = {} if accuracy is None else {"test": {"mean": SCORES | {"accuracy": accuracy}}}
    return record(server_round, **gm) | {"clients": [{"partition": p} for p in partitions]}


def test_a_newcomer_after_whom_the_model_is_worse_is_named(tmp_path, caplog):
    """With the round before last scored, and who came in between counted."""
    recorder = recorder_in(tmp_path)
    rounds = [
        scored_round(1, 0.5, 0, 1, 2),
        scored_round(2, 0.89, 0, 1, 2),
        scored_round(3, None, 0, 3),
        scored_round(4, 0.64, 0, 1, 2),
        scored_round(5, 0.3, 0, 1, 2),
    ]
    for one in rounds:
        recorder.finished(standing(one["round"]), one)
    told = [line.getMessage() for line in caplog.records if line.levelname == "WARNING"]
    assert len(told) == 1 and told[0].startswith(
        "round 4: accuracy fell from 89.0 % (round 2) to 64.0 %, and partition 3 took part"
    )


def test_who_took_part_is_known_after_a_resume():
    before = [scored_round(1, 0.9, 0, 1, 2)]
    named = scored_round(2, 0.7) | {"clients": [{"partition": 3, "name": "west"}]}
    assert "and partition 3 (west) took part" in Newcomers.of(before).fall(named)
    assert Newcomers.of(before).fall(scored_round(2, 0.7, 3))
    assert not Newcomers.of(before).fall(scored_round(2, 0.7, 2))  # nobody is new
    assert not Newcomers.of(before).fall(scored_round(2, 0.81, 3))  # not by much
    assert not Newcomers().fall(scored_round(2, 0.1, 3))
    assert not Newcomers.of([scored_round(1, 0.9, 0)]).fall(scored_round(2, 0.7, 1, 2))
