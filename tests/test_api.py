"""FedIvon from Python: one run by a plain script, opened and asked."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import fedivon_app as fedivon
from fedivon_app.core.errors import DataError, RunError, SettingsError

SCRIPT = """
import fedivon_app as fedivon

run = fedivon.run(
    "demo", "fedivon", runs="made", show=print, rounds=3, clients_per_round=None,
    data={"clients": 4}, evaluation={"final_samples": 4}, run={"checkpoint_every": 1},
)
print(run.folder)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run made by a script that guards nothing, as a beginner writes it."""
    place = tmp_path_factory.mktemp("api")
    (place / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=place, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    *lines, folder = done.stdout.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("round ")] == ["1/3", "2/3", "3/3"]
    return fedivon.Run.open(folder)


@pytest.fixture(scope="module")
def pictures():
    return (load_digits().images[:20] * 255 / 16).astype(np.uint8)


def test_a_run_knows_its_settings_its_metrics_and_its_scores(made):
    assert made.settings.rounds == 3 and made.settings.data.clients == 4
    rows = made.metrics
    assert [row["round"] for row in rows] == [1, 2, 3]
    assert rows[-1]["gm.test.mc.nll"] == made.scores["nll"]
    assert repr(made) == "Run(demo, fedivon, seed 0)"


def test_metrics_are_a_data_frame_where_pandas_is_there(made, monkeypatch):
    class Pandas:
        DataFrame = staticmethod(lambda rows: ("frame", len(rows)))

    monkeypatch.setattr(fedivon.api, "find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "pandas", Pandas)
    assert made.metrics == ("frame", 3)


def test_a_model_is_the_network_at_the_mean(made, pictures):
    inputs = made._trained.inputs(pictures)
    with torch.no_grad():
        expected = made.model()(inputs).softmax(1).numpy()
    found = made.predict(pictures, samples=0)
    np.testing.assert_allclose(found.probabilities, expected, rtol=1e-5)
    np.testing.assert_allclose(found.epistemic, 0, atol=1e-6)
    assert (found.labels == expected.argmax(1)).all()


def test_predictions_say_how_sure_they_are(made, pictures):
    found = made.predict(pictures, samples=16)
    assert found.probabilities.shape == (20, 10) and (found.epistemic > 0).all()
    np.testing.assert_allclose(found.probabilities.sum(1), 1, rtol=1e-5)
    again = made.predict(made._trained.inputs(pictures), samples=16)
    np.testing.assert_array_equal(again.probabilities, found.probabilities)
    assert (made.predict(pictures, samples=16, seed=1).probabilities != found.probabilities).any()


def test_inputs_that_do_not_fit_are_told(made):
    with pytest.raises(DataError, match="its inputs are 5 .* the model takes 8 x 8 x 1"):
        made.predict(np.zeros((3, 5), np.float32))


def test_a_posterior_has_the_networks_names_and_shapes(made):
    model = made.model()
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    assert {name: part.mean.shape for name, part in made.posterior.items()} == shapes
    for name, parameter in model.named_parameters():
        assert torch.equal(made.posterior[name].mean, parameter.cpu())
    precision = torch.cat([part.precision.flatten() for part in made.posterior.values()])
    drawn = made.posterior.sample(seed=3)
    assert {name: part.shape for name, part in drawn.items()} == shapes
    away = torch.cat([(drawn[name] - part.mean).flatten() for name, part in made.posterior.items()])
    assert (away * precision.sqrt()).std() == pytest.approx(1, abs=0.05)
    assert torch.equal(drawn["head.bias"], made.posterior.sample(seed=3)["head.bias"])


def test_wrong_settings_are_told_before_anything_starts(tmp_path):
    with pytest.raises(SettingsError, match="no setting 'client.es': did you mean ess"):
        fedivon.run("demo", "fedivon", runs=tmp_path, client={"es": 3})
    with pytest.raises(SettingsError, match="run folders cannot be made both in"):
        fedivon.run("demo", runs=tmp_path, run={"folder": str(tmp_path / "other")})
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_fails_says_why_and_where(tmp_path, monkeypatch):
    from fedivon_app.federation.run_maker import RunEnd
    from fedivon_app.runs.status import RunStatus

    def fails(self, config, nodes, cpus, show):
        (tmp_path / "x").touch()
        return RunEnd(RunStatus.FAILED, "round 2: the run diverged")

    monkeypatch.setattr("fedivon_app.federation.inline_federation.InlineFederation.run", fails)
    with pytest.raises(RunError, match="round 2: the run diverged"):
        fedivon.run("demo", runs=tmp_path / "runs")
