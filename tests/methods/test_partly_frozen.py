"""Every method on a network of which only the head is learned, and on tokens."""

import numpy as np
import pytest

from fedivon_app import server_app
from fedivon_app.core.errors import RunError
from fedivon_app.methods import METHODS
from fedivon_app.runs.folder import Run
from fedivon_app.runs.trained_model import Trained
from tests import golden


@pytest.fixture(autouse=True)
def no_page(monkeypatch):
    monkeypatch.setattr(server_app, "write_report", lambda run: None)


@pytest.mark.parametrize("name", [name for name in METHODS if name != "bayes-admm-full"])
def test_every_method_learns_a_part(name):
    words = ["model.trainable=head", "rounds=1", "wire.codec=raw"]
    (record,) = golden.run(name, *words)
    assert not record["dropped"] and record["merged"]
    assert record["bytes_up"] <= 3 * 4 * 3 * 200  # a head of 16 x 10 + 10, at most three vectors


def test_a_node_with_other_frozen_weights_is_refused(monkeypatch):
    monkeypatch.setattr("fedivon_app.clients.base.frozen_digest", lambda module: "other")
    with pytest.raises(RunError, match="frozen weights are others than the server's"):
        golden.run("fedivon", "model.trainable=head")


def test_tokens_stay_whole_numbers_up_to_the_embedding(tmp_path):
    generator = np.random.default_rng(0)
    y = np.arange(240) % 2
    x = generator.integers(0, 20, (240, 12)) + 20 * y[:, None]  # each class has its own words
    x[:, ::2] = generator.integers(40, 60, (240, 6))
    path = tmp_path / "texts.npz"
    np.savez(path, x_train=x[:180], y_train=y[:180], x_test=x[180:], y_test=y[180:])
    words = [
        "data.source=npz",
        f"data.path={path}",
        "data.clients=3",
        "data.scaling=tokens",
        "model.name=tokens",
        "model.options={vocabulary: 60, width: 8, sizes: [8]}",
        "rounds=4",
        "client.epochs=15",
        "client.batch_size=8",
        "evaluation.samples=4",
        "evaluation.final_samples=4",
    ]
    config = {"experiment": "table", "runs": str(tmp_path / "runs")}
    config["set"] = " ".join(f"'{word}'" for word in words)
    server_app.main(golden.InProcess(3), golden.context_of(config))
    run = Run.open(next((tmp_path / "runs").iterdir()))
    assert list(run.metrics())[-1]["gm"]["test"]["mc"]["accuracy"] > 0.9
    inputs = Trained.open(run).inputs(x[:3].astype(np.float32))
    assert inputs.dtype.is_floating_point is False and (inputs.numpy() == x[:3]).all()
