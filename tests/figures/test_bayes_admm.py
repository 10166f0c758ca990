"""BayesADMM's figures on the digits of scikit-learn: what the curves say, and that they are drawn."""

from functools import partial

import numpy as np
import pytest

from fedivon_app.cli.main import main
from fedivon_app.core.dense import Diverged
from fedivon_app.core.regression import SoftmaxRegression
from fedivon_app.datasets.sources import DataError
from fedivon_app.figures import bayes_admm as module
from fedivon_app.figures.small_problems import (
    DIAGONAL,
    FULL,
    STRETCH,
    VARIANTS,
    DiagonalSoftmax,
    Variant,
    by_pairs,
    federate,
    negative_elbo,
    reduced,
    ridge_distances,
    toy_rounds,
    trace,
    turned,
    two_clients,
)


def silent(line: str) -> None:
    pass


def elbos(family, kind, side, per_class, rounds, **von):
    delta = 10.0  # as in the figure: with 1, BregmanADMM is no slower than damped PVI, or diverges
    x, labels = reduced("digits", side, per_class)
    losses = by_pairs(x, labels, labels, lambda a, b: kind(a, b, 10, 4))
    size = 10 * x.shape[1]
    prior = family.prior(size, delta)
    score = partial(negative_elbo, losses=losses, prior=prior)
    return {
        v.name: trace(federate(family, losses, v, delta, size, **von), rounds, score)
        for v in VARIANTS
    }


@pytest.fixture(scope="module")
def diagonal():
    return elbos(DIAGONAL, DiagonalSoftmax, 8, 60, 8, **STRETCH)


def test_bayes_admm_is_the_fastest_that_converges_and_bregman_admm_the_slowest(diagonal):
    bayes, damped, bregman = (
        diagonal[name][0] for name in ("BayesADMM", "PVI, damped", "BregmanADMM")
    )
    assert bayes[3] < damped[3] < bregman[3]
    for values in (bayes, damped, bregman):
        assert values == sorted(values, reverse=True)


def test_raw_pvi_with_diagonal_covariance_gets_worse_again(diagonal):
    values, _ = diagonal["PVI"]
    assert values[-1] > 1.5 * min(values)


def test_raw_pvi_with_full_covariance_converges():
    found = elbos(FULL, SoftmaxRegression, 3, 40, 4, step=0.1, most=10, tolerance=0.0)
    values, end = found["PVI"]
    assert not end and values == sorted(values, reverse=True)
    assert values[-1] < min(found["BayesADMM"][0]) < min(found["PVI, damped"][0])


def test_the_end_of_a_method_is_told():
    x, labels = reduced("digits", 3, 30)
    losses = by_pairs(x, labels, labels, lambda a, b: SoftmaxRegression(a, b, 10, 4))
    wild = Variant("BregmanADMM", 1.0, 50.0, space="expectation")
    values, end = trace(
        federate(FULL, losses, wild, 1.0, 90, step=0.1, most=10), 6, lambda q: q.mean.sum()
    )
    assert len(values) < 6 and end.startswith(f"diverged in round {len(values) + 1}: the ")
    with pytest.raises(Diverged):
        list(federate(FULL, losses, wild, 1.0, 90, step=0.1, most=10))


def test_ridge_regression_takes_bayes_admm_one_round_and_the_others_many():
    found = {
        name.split(" (")[0]: values for name, values in ridge_distances("digits", 6, silent).items()
    }
    assert found["BayesADMM"][0] < 1e-6
    for name in ("federated ADMM", "BregmanADMM"):
        assert found[name][0] > 1e-2 and found[name][-1] < found[name][1] < found[name][0]


@pytest.mark.parametrize("seed", range(5))
def test_bayes_admm_agrees_on_the_line_in_two_rounds_and_admm_later(seed):
    found = toy_rounds(two_clients(seed), 5)
    (points, mode) = found["Federated ADMM"]
    (posteriors, mean) = found["BayesADMM"]
    admm = [max(turned(theta, mode) for theta in one) for one in points]
    bayes = [max(turned(q.mean, mean) for q in one) for one in posteriors]
    assert bayes[1] < 5 < admm[3] and admm == sorted(admm, reverse=True)


def test_angles():
    assert turned(np.array([1.0, 0, 5]), np.array([0, 2.0, 1])) == pytest.approx(90)
    assert turned(np.array([1.0, 0, 5]), np.array([-1.0, 0, 5])) == pytest.approx(180)


def test_the_command_draws_three_figures(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "figure_3a", partial(module.figure_3a, rounds=2, scale=0.03))
    assert main(["illustrate", "--source", "digits", "--out", str(tmp_path / "new")]) == 0
    lines = capsys.readouterr().out.splitlines()
    paths = [tmp_path / "new" / f"figure-{number}.png" for number in ("3a", "3b", "4")]
    assert lines[-3:] == [str(path) for path in paths]
    assert sum(line.startswith("3a, ") for line in lines) == 2 * (len(VARIANTS) + 1)
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000


def test_other_data_are_refused(tmp_path, capsys):
    assert main(["illustrate", "--source", "digit", "--out", str(tmp_path)]) == 2
    assert "there is no source 'digit'; did you mean 'digits'?" in capsys.readouterr().err
    with pytest.raises(DataError, match="illustrate needs pictures in ten classes"):
        reduced("synthetic", 3, 10)
    assert not list(tmp_path.iterdir())
