"""Regression: linear models against the exact posterior, and every method on a table."""

import numpy as np
import pytest
import torch
from flwr.app import RecordDict
from torch import nn

from fedivon_app import server_app
from fedivon_app.core.codec import Payload
from fedivon_app.core.errors import RunError
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.standardise import Standard
from fedivon_app.datasets.base import Source
from fedivon_app.datasets.node_data import Partition
from fedivon_app.methods import METHODS, method, settings_of
from fedivon_app.runs.folder import Run
from fedivon_app.runs.uncertainty import assess
from tests.golden import InProcess, context_of

RHO = 0.5413  # softplus of it is 1: the noise of the linear model has the variance 1
FEATURES = 4
ROWS = 64
PRIOR = 2.0  # precision


class KnownNoise(nn.Module):
    """A line through the origin with a noise that is not learned."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(FEATURES, 1, bias=False)

    def forward(self, inputs):
        mean = self.head(inputs)
        return torch.cat([mean, torch.full_like(mean, RHO)], dim=1)


def known_noise(shape, num_outputs):
    return KnownNoise()


def problem():
    """Orthogonal features, so that the exact posterior has a diagonal precision."""
    generator = np.random.default_rng(0)
    x = np.linalg.qr(generator.normal(size=(ROWS, FEATURES)))[0] * np.sqrt(ROWS) * [1, 2, 0.5, 1]
    y = x @ [1.0, -0.5, 2.0, 0.0] + generator.normal(size=ROWS)
    return x.astype(np.float32), y.astype(np.float32)


def trained(name, client):
    x, y = problem()
    settings = settings_of(name).model_validate(
        {
            "experiment": "test",
            "strategy": name,
            "task": "regression",
            "client": client,
            "data": {"clients": 1, "standard": Standard(mean=(), deviation=())},
            "model": {"factory": "tests.methods.test_regression:known_noise"},
        }
    )
    source = Source("line", x, y, x, y, num_classes=0)
    rows = np.arange(ROWS)
    one = method(name).client(settings, Partition(0, source, rows, rows), RecordDict())
    start = Payload(Posterior(np.zeros(FEATURES), np.full(FEATURES, PRIOR)))
    told = Instructions(round=1, learning_rate=client["learning_rate"], first=True)
    return one.work(start, told).payload.posterior


def exact():
    x, y = problem()
    precision = x.T.astype(float) @ x + PRIOR * np.eye(FEATURES)
    return np.linalg.solve(precision, x.T @ y), np.diag(precision)


def test_laplace_is_the_exact_posterior_of_a_linear_model():
    client = {"learning_rate": 0.2, "epochs": 300, "batch_size": ROWS, "first_precision": PRIOR}
    found = trained("fedlaplace", client)
    mean, precision = exact()
    np.testing.assert_allclose(found.mean, mean, atol=1e-3)
    np.testing.assert_allclose(found.precision, precision, rtol=1e-3)


def test_ivon_comes_to_the_exact_posterior_of_a_linear_model():
    client = {
        "learning_rate": 0.5,
        "final_learning_rate": 0.01,
        "schedule": "linear",
        "schedule_over": "steps",
        "epochs": 1500,
        "batch_size": ROWS,
        "ess": ROWS,
        "weight_decay": PRIOR / ROWS,
        "hess_init": 1.0,
        "beta2": 0.995,
        "mc_samples": 2,
        "start": "mean",
    }
    found = trained("fedivon", client)
    mean, precision = exact()
    np.testing.assert_allclose(found.mean, mean, atol=0.05)
    np.testing.assert_allclose(found.precision, precision, rtol=0.2)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    generator = np.random.default_rng(3)
    path = tmp_path_factory.mktemp("table") / "stays.csv"
    lines = ["age,ward,clinic,days"]
    for number in range(150):
        age = generator.uniform(20, 90)
        ward = generator.choice(["a", "b"])
        days = 1000 + 3 * age + 40 * (ward == "b") + generator.normal(0, 10)
        lines.append(f"{age:.1f},{ward},c{number % 3},{days:.2f}")
    path.write_text("\n".join(lines) + "\n")
    return path


def run(table, folder, name, *words):
    settings = [
        "task=regression",
        f"data.path={table}",
        "data.label_column=days",
        "data.client_column=clinic",
        "rounds=2",
        "client.epochs=2",
        "evaluation.samples=4",
        "evaluation.final_samples=4",
        "evaluation.clients_every=1",
        "evaluation.personal=true",
        "run.client_state=run",
        "model.options={sizes: [8]}",
        *words,
    ]
    config = {"experiment": "table", "strategy": name, "runs": str(folder)}
    config["set"] = " ".join(f"'{word}'" for word in settings)
    server_app.main(InProcess(3), context_of(config))
    return Run.open(next(folder.iterdir()))


@pytest.mark.parametrize("name", [name for name in METHODS if name != "bayes-admm-full"])
def test_every_method_predicts_numbers(table, tmp_path, monkeypatch, name):
    monkeypatch.setattr(server_app, "write_report", lambda run: None)
    # its rates are for a summed cross-entropy, and a Gaussian's curvature is higher
    gentle = ["client.head_learning_rate=0.0001", "client.sigma_init=0.1"]
    done = run(table, tmp_path, name, *(gentle if name == "pfedvem" else []))
    last = list(done.metrics())[-1]
    places = last.get("gm", {}) | last.get("pm", {})
    scores = [place["mean"] for place in places.values()]
    assert scores
    for one in scores:
        assert 0 < one["rmse"] < 200 and np.isfinite(one["nll"]) and 0 < one["crps"] < one["rmse"]
        assert 0 <= one["coverage_error"] <= 0.5 and "accuracy" not in one


def test_a_method_for_classes_refuses_by_name(table, tmp_path, monkeypatch):
    monkeypatch.setattr(server_app, "write_report", lambda run: None)
    with pytest.raises(RunError, match="bayes-admm-full is for classes"):
        run(table, tmp_path, "bayes-admm-full", "model.name=linear", "model.options={}")


def test_what_is_learned_explains_the_numbers_and_a_page_shows_the_coverage(table, tmp_path):
    words = ["rounds=12", "client.epochs=10", "client.batch_size=8", "evaluation.every=12"]
    done = run(table, tmp_path, "fedivon", *words)
    scores = list(done.metrics())[-1]["gm"]["test"]["mc"]
    assert scores["rmse"] < 20  # the noise is 10, and who says the mean is off by 65
    assert scores["coverage_error"] < 0.15
    page = (done.folder / "report.html").read_text()
    assert "Coverage of intervals" in page and "Reliability" not in page
    assert (done.folder / "plots" / "coverage.png").is_file()
    judged = assess(done, samples=4)["ways"]["mc"]
    assert judged["scores"]["rmse"] == pytest.approx(scores["rmse"], rel=1e-3)
    assert len(judged["coverage"]["covered"]) == len(judged["coverage"]["levels"])
