"""Verdicts on hand-made numbers, and what must be true of them whatever the numbers are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedivon_app.tables.quantities import QUANTITIES
from fedivon_app.tables.table_file import Claim, Published
from fedivon_app.tables.verdicts import Entry, Number, State, judge, orders, state_of

NUMBERS = st.floats(0, 100)


def entry(row, ours, paper=None, block="b", column="Accuracy %", score="accuracy"):
    return Entry(
        block=block,
        row=row,
        column=column,
        quantity=QUANTITIES[score],
        ours=None if ours is None else Number(tuple(ours)),
        paper=Published.read(paper),
    )


@pytest.mark.parametrize(
    ("ours", "paper", "score", "agrees"),
    [
        ([70.9], "70.0 ± 0.1", "accuracy", True),  # within a point
        ([71.1], "70.0 ± 0.1", "accuracy", False),
        ([71.9], "70.0 ± 2.0", "accuracy", True),  # within the paper's deviation
        ([69.0, 75.0], "70.0", "accuracy", True),  # within ours, 4.2
        ([0.509], "0.50", "nll", True),  # a point of an NLL is 0.01
        ([0.52], "0.50", "nll", False),
        (None, "70.0", "accuracy", None),
        ([70.0], None, "accuracy", None),
    ],
)
def test_a_number_agrees_within_the_largest_of_both_deviations_and_a_point(
    ours, paper, score, agrees
):
    assert entry("A", ours, paper, score=score).agrees is agrees


def test_the_order_is_that_of_the_rows_that_the_paper_sets_apart():
    entries = [
        entry("A", [80.0], "85.0 ± 0.5"),
        entry("B", [78.0], "80.0 ± 0.5"),
        entry("C", [79.0], "79.5 ± 0.5"),  # the paper has it level with B
        entry("D", [82.0], "70.0"),
        entry("E", None, "60.0"),
    ]
    (order,) = orders(entries)
    assert set(order.right) == {("A", "B"), ("A", "C")}
    assert set(order.wrong) == {("A", "D"), ("B", "D"), ("C", "D")}
    assert not order.agrees and orders(entries[:3])[0].agrees


def test_of_an_nll_the_smaller_is_the_better():
    entries = [entry("A", [0.3], "0.4", score="nll"), entry("B", [0.5], "0.6", score="nll")]
    (order,) = orders(entries)
    assert order.right == (("A", "B"),)


def test_a_claim_holds_where_every_better_row_beats_every_worse_one():
    claim = Claim(says="A and B beat C.", better=("A", "B"), worse=("C",))
    right = [entry("A", [3.0]), entry("B", [2.0]), entry("C", [1.0])]
    wrong = [entry("A", [3.0], block="x"), entry("B", [0.5], block="x"), entry("C", [1], block="x")]
    open_ = [entry("A", [3.0], block="y"), entry("B", None, block="y"), entry("C", [1], block="y")]
    judged = judge(claim, right + wrong + open_)
    assert judged.holds == ("b, Accuracy %",)
    assert judged.fails == ("x, Accuracy %",)
    assert judged.open == ("y, Accuracy %",)
    assert judged.verdict == "does not hold (x, Accuracy %)"
    assert judge(claim, right).verdict == "holds"
    partly = "holds in 1 of 2 places; the others were not measured"
    assert judge(claim, right + open_).verdict == partly
    assert judge(claim, []).verdict == "was not measured"


def test_the_state_of_a_table():
    far = [entry("A", [50.0], "85.0"), entry("B", [40.0], "80.0")]
    assert state_of([entry("A", [85.0], "85.0")], []) is State.AGREES
    assert state_of(far, []) is State.ORDER
    assert state_of([far[0], entry("B", [60.0], "80.0")], []) is State.DIFFERS
    assert state_of([entry("A", None, "85.0")], []) is State.NOT_RUN
    assert state_of([entry("A", [80.0])], []) is State.PARTLY  # and nothing to compare it with
    claim = Claim(says="A beats B.", better=("A",), worse=("B",))
    figure = [entry("A", [2.0]), entry("B", [1.0])]
    assert state_of(figure, [judge(claim, figure)]) is State.ORDER
    turned = Claim(says="B beats A.", better=("B",), worse=("A",))
    assert state_of(figure, [judge(turned, figure)]) is State.DIFFERS


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=2, max_size=6))
def test_the_papers_own_numbers_always_agree_and_are_in_order(pairs):
    entries = [
        entry(str(place), [value], f"{value:.10f} ± {spread:.6f}")
        for place, (value, spread) in enumerate(pairs)
    ]
    assert all(one.agrees for one in entries)
    assert all(order.agrees for order in orders(entries))
    assert state_of(entries, []) is State.AGREES


@pytest.mark.parametrize(
    ("given_text", "value", "deviation"),
    [("70.4 ± 0.9", 70.4, 0.9), (0.5, 0.5, None), ("91", 91.0, None), ("-1.5 ± .2", -1.5, 0.2)],
)
def test_numbers_are_read_as_papers_print_them(given_text, value, deviation):
    assert Published.read(given_text) == Published(value, deviation)


def test_what_is_no_number_is_refused():
    assert Published.read("-") is None and Published.read(None) is None
    with pytest.raises(ValueError, match="'about 70' is not of the form 70.4 ± 0.9"):
        Published.read("about 70")
