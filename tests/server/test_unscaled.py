"""A run that diverged is told where its inputs are not scaled."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from fedivon_app import server_app
from fedivon_app.core.errors import RunError
from fedivon_app.server.unscaled import unscaled
from tests.golden import InProcess, context_of

ONES = np.ones((5, 3), np.float32)


@pytest.mark.parametrize(
    ("x", "scaling", "says"),
    [
        (ONES * (1, 1000, 0), "unit", "features differ by a factor of 1e+03 in scale (from 1 to"),
        (ONES * (300, 1000, 0), "unit", "inputs have a scale of 1e+03, not of about 1"),
        (np.full((2, 4, 4), 255, np.uint8), "raw", "try data.scaling=unit"),
        (np.full((2, 4, 4), 255, np.uint8), "unit", ""),
        (np.diag((1e-6, 1)).reshape(1, 2, 2), "unit", ""),  # a picture has dark corners
        (ONES * (0.1, 5, 0), "unit", ""),
        (0 * ONES, "unit", ""),
        (ONES[:0], "unit", ""),
    ],
)
def test_scales(x, scaling, says):
    told = unscaled(x, scaling)
    assert says in told and bool(told) == bool(says)


def test_a_raw_table_diverges_and_the_error_says_why(tmp_path, monkeypatch):
    table = load_breast_cancer()
    x = table.data.astype(np.float32)
    test = np.arange(len(x)) % 5 == 0
    np.savez(
        tmp_path / "raw.npz",
        x_train=x[~test],
        y_train=table.target[~test],
        x_test=x[test],
        y_test=table.target[test],
    )
    monkeypatch.setattr(server_app, "write_report", lambda run: None)
    words = ["dataset=null", "data.source=npz", f"data.path={tmp_path / 'raw.npz'}", "rounds=8"]
    words += ["data.clients=2", "clients_per_round=null", "data.partition=iid", "client.epochs=4"]
    config = {"experiment": "demo", "runs": str(tmp_path), "set": " ".join(words)}
    with pytest.raises(RunError, match="diverged.*features differ by a factor of .* standardise"):
        server_app.main(InProcess(2), context_of(config))
