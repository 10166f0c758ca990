"""What clients tell for prediction sets is what their data give, and holds for one model only."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedivon_app import server_app
from fedivon_app.cli.main import main
from fedivon_app.core.errors import SettingsError
from fedivon_app.runs.calibration import CALIBRATION, Calibration, calibration_of
from fedivon_app.runs.folder import Run
from fedivon_app.runs.trained_model import Trained
from tests.golden import CLIENTS, SMALL, WORDS, InProcess, context_of
from tests.runs.helpers import make_run


@pytest.fixture(scope="module", params=["fedivon", "fedavg"])
def run(request, tmp_path_factory) -> Run:
    """Two real rounds, in which the clients tell their histograms."""
    place = tmp_path_factory.mktemp("calibrated")
    words = [*WORDS, *SMALL, "evaluation.sets=true", "run.client_state=run"]
    config = {"experiment": "demo", "strategy": request.param, "runs": str(place)}
    config["set"] = " ".join(f"'{word}'" for word in words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_app, "write_report", lambda run: None)
        server_app.main(InProcess(CLIENTS), context_of(config))
    (folder,) = Path(place).iterdir()
    return Run.open(folder)


def test_clients_tell_what_their_data_give(run):
    told = Calibration.read(run)
    assert told is not None and told.round == 2 and len(told.clients) == CLIENTS
    trained = Trained.open(run)
    anew = calibration_of(run, trained, samples=3)  # another number than they were asked with
    if run.settings.strategy == "fedavg":  # a point says the same with any
        for partition, counts in told.clients.items():
            np.testing.assert_array_equal(counts, anew.clients[partition])
    (run.folder / CALIBRATION).rename(run.folder / "kept.json")
    computed = calibration_of(run, trained)
    (run.folder / "kept.json").rename(run.folder / CALIBRATION)
    for partition, counts in told.clients.items():
        np.testing.assert_array_equal(counts, computed.clients[partition])
    assert calibration_of(run, trained).coverage(0.9) == computed.coverage(0.9)


def test_the_line_of_a_round_stays_short(run):
    assert all(CALIBRATION.removesuffix(".json") not in record for record in run.metrics())


def test_sets_are_printed_with_what_they_came_to(run, tmp_path, capsys):
    np.savez(tmp_path / "new.npz", x=np.random.default_rng(0).integers(0, 256, (5, 8, 8), np.uint8))
    words = ["predict", str(run.folder), str(tmp_path / "new.npz"), "--coverage", "0.8"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "with a probability of 80 % or more" in shown and "worst tenth" in shown
    assert main([*words, "--json"]) == 0
    told = capsys.readouterr()
    said = [json.loads(line) for line in told.out.splitlines()]
    trained = Trained.open(run)
    threshold = calibration_of(run, trained).coverage(0.8).threshold
    for one in said:
        inside = 1 - one["probability"] <= threshold
        assert (one["top"] in one["set"]) == inside and one["set"][:1] == [one["top"]] * inside
    assert "worst tenth" in told.err


def test_a_deployment_needs_what_its_sites_told(tmp_path):
    run = make_run(tmp_path / "a")
    trained = Trained.open(run)
    values = run.settings.model_copy(
        update={"data": run.settings.data.model_copy(update={"source": "nodes"})}
    )
    sites = Trained(values, trained.flat, trained.payload, 3, (8, 8, 1), 10)
    with pytest.raises(SettingsError, match=r"make the run with evaluation\.sets=true"):
        calibration_of(run, sites)
    counts = np.zeros((2, 1002))
    counts[0, 5] = counts[1, 5] = 30
    Calibration(3, 32, {0: counts}).write(run)
    assert calibration_of(run, sites).samples == 32
    with pytest.raises(SettingsError, match=r"ask with --samples 32"):
        calibration_of(run, sites, samples=5)


def test_a_damaged_file_is_told(tmp_path):
    run = make_run(tmp_path)
    for text, why in (
        ('{"bins": 7}', "other bins"),
        ('{"bins": 1002, "round": 1}', "is damaged"),
        (
            '{"bins": 1002, "round": 1, "samples": 1, "clients": {"0": [[[5000, 1]], []]}}',
            "damaged",
        ),
    ):
        run.write(CALIBRATION, text)
        with pytest.raises(SettingsError, match=why):
            Calibration.read(run)


def test_a_model_of_numbers_has_no_sets(tmp_path):
    run = make_run(tmp_path)
    trained = Trained.open(run)
    numbers = replace(trained, settings=run.settings.model_copy(update={"task": "regression"}))
    with pytest.raises(SettingsError, match="prediction sets are sets of classes"):
        calibration_of(run, numbers)
