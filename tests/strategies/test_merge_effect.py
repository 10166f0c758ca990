"""How far a merge by precisions is from the plain average."""

import numpy as np
import pytest

from fedivon_app.core.posterior import Posterior
from fedivon_app.strategies.aggregation import RULES, aggregate
from fedivon_app.strategies.merge_effect import shift_from_average
from tests.strategies.nodes import Nodes, fedivon, good, start

WEIGHTS = np.array([0.5, 0.5])


def test_the_shift_by_hand():
    """Precisions 1 and 3: the product's mean is 0.75, the average 0.5, and sigma is 1/sqrt(2)."""
    two = [Posterior([0.0], [1.0]), Posterior([1.0], [3.0])]
    merged = aggregate("product", two, WEIGHTS)
    assert shift_from_average(merged, two, WEIGHTS) == pytest.approx(0.25 * 2**0.5)


def test_rules_that_average_say_so_and_have_no_shift():
    rng = np.random.default_rng(0)
    three = [Posterior(rng.standard_normal(9), rng.gamma(2.0, size=9)) for _ in range(3)]
    weights = np.array([0.2, 0.3, 0.5])
    flat = Posterior(np.zeros(9), np.full(9, 1e-3))
    for rule, kind in RULES.items():
        shift = shift_from_average(aggregate(rule, three, weights, flat), three, weights)
        assert (shift < 1e-5) == kind.averages, rule


def test_the_shift_is_noted_in_rounds_that_are_scored_and_only_there():
    def records(rule: str) -> list[dict]:
        loop = fedivon(
            rounds=3, evaluation={"every": 2}, merge={"rule": rule, "weighting": "equal"}
        )
        nodes = Nodes(2, lambda p, m: good(p, m, precision=np.full(4, 1.0 + 2 * p)))
        return start(loop, nodes, rounds=3)

    product = records("product")
    assert ["merge_shift" in record for record in product] == [False, True, True]
    assert product[1]["merge_shift"] > 0
    assert not any("merge_shift" in record for record in records("nwa"))
