"""BayesADMM's figures on scikit-learn's digits: what the curves say, and that they are drawn."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from fedivon_app.cli.main import main
from fedivon_app.core.dense import Diverged
from fedivon_app.core.errors import DataError
from fedivon_app.figures import bayes_admm, small_problems
from fedivon_app.figures import lines_in_the_plane as plane
from fedivon_app.figures.gaussian_families import FULL, Descent
from fedivon_app.figures.small_federations import Problem, Trace, Variant, federate, trace
from fedivon_app.figures.small_problems import ElboPanel


def silent(line: str) -> None:
    pass


def elbos(panel: ElboPanel, rounds: int) -> dict[str, Trace]:
    """Of a panel that is smaller than the figure's, but with the figure's prior precision of 10.

    With 1, BregmanADMM is no slower than damped PVI, or diverges.
    """
    problem = panel.problem(small_problems.reduced("digits", panel.side, panel.per_class))
    return {
        variant.name: trace(federate(problem, variant, panel.client), rounds, problem.negative_elbo)
        for variant in small_problems.VARIANTS
    }


@pytest.fixture(scope="module")
def diagonal():
    return elbos(replace(small_problems.DIAGONAL_PANEL, side=8, per_class=60), rounds=8)


def test_bayes_admm_is_the_fastest_that_converges_and_bregman_admm_the_slowest(diagonal):
    bayes = diagonal["BayesADMM"].values
    damped = diagonal["PVI, damped"].values
    bregman = diagonal["BregmanADMM"].values
    assert bayes[3] < damped[3] < bregman[3]
    for values in (bayes, damped, bregman):
        assert values == sorted(values, reverse=True)


def test_raw_pvi_with_diagonal_covariance_gets_worse_again(diagonal):
    values = diagonal["PVI"].values
    assert values[-1] > 1.5 * min(values)


def test_raw_pvi_with_full_covariance_converges():
    panel = replace(
        small_problems.FULL_PANEL,
        side=3,
        per_class=40,
        draws=4,
        client=Descent(step=0.1, most=10, tolerance=0.0),
    )
    found = elbos(panel, rounds=4)
    values = found["PVI"].values
    assert not found["PVI"].end and values == sorted(values, reverse=True)
    assert values[-1] < min(found["BayesADMM"].values) < min(found["PVI, damped"].values)


def test_the_end_of_a_method_is_told():
    panel = replace(small_problems.FULL_PANEL, draws=4)
    examples = small_problems.reduced("digits", side=3, per_class=30)
    losses = small_problems.by_pairs(examples, panel.loss_of)
    problem = Problem(family=FULL, losses=losses, delta=1.0, size=90)
    wild = Variant("BregmanADMM", rho=1.0, step=50.0, space="expectation")
    few_steps = Descent(step=0.1, most=10)
    found = trace(federate(problem, wild, few_steps), 6, lambda q: q.mean.sum())
    count = len(found.values)
    assert count < 6 and found.end.startswith(f"diverged in round {count + 1}: the ")
    with pytest.raises(Diverged):
        list(federate(problem, wild, few_steps))


def test_ridge_regression_takes_bayes_admm_one_round_and_the_others_many():
    distances = small_problems.ridge_distances("digits", 6, silent)
    found = {name.split(" (")[0]: values for name, values in distances.items()}
    assert found["BayesADMM"][0] < 1e-6
    for name in ("federated ADMM", "BregmanADMM"):
        assert found[name][0] > 1e-2 and found[name][-1] < found[name][1] < found[name][0]


@pytest.mark.parametrize("seed", range(5))
def test_bayes_admm_agrees_on_the_line_in_two_rounds_and_admm_later(seed):
    def furthest(found: plane.LinesByRound) -> list[float]:
        return [
            max(plane.turned(theta, found.pooled) for theta in one.everyone())
            for one in found.rounds
        ]

    data = plane.two_clients(seed)
    admm = furthest(plane.lines_of_admm(data, rounds=5))
    bayes = furthest(plane.lines_of_bayes_admm(data, rounds=5))
    assert bayes[1] < 5 < admm[3] and admm == sorted(admm, reverse=True)


def test_angles():
    upright = np.array([1.0, 0, 5])
    assert plane.turned(upright, np.array([0, 2.0, 1])) == pytest.approx(90)
    assert plane.turned(upright, np.array([-1.0, 0, 5])) == pytest.approx(180)


def test_the_command_draws_three_figures(tmp_path, monkeypatch, capsys):
    small = partial(bayes_admm.figure_3a, rounds=2, scale=0.03)
    monkeypatch.setattr(bayes_admm, "figure_3a", small)
    assert main(["illustrate", "--source", "digits", "--out", str(tmp_path / "new")]) == 0
    lines = capsys.readouterr().out.splitlines()
    paths = [tmp_path / "new" / f"figure-{number}.png" for number in ("3a", "3b", "4")]
    assert lines[-3:] == [str(path) for path in paths]
    curves = len(small_problems.VARIANTS) + 1
    assert sum(line.startswith("3a, ") for line in lines) == 2 * curves
    for path in paths:
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000


def test_other_data_are_refused(tmp_path, capsys):
    assert main(["illustrate", "--source", "digit", "--out", str(tmp_path)]) == 2
    assert "there is no data source 'digit': did you mean digits?" in capsys.readouterr().err
    with pytest.raises(DataError, match="illustrate needs pictures in ten classes"):
        small_problems.reduced("synthetic", side=3, per_class=10)
    assert not list(tmp_path.iterdir())
