"""Ranges: those that methods declare, those that are given, and what a trial's values become."""

import pytest

from fedivon_app.core.compose import compose
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.search_range import (
    Choices,
    Range,
    choices,
    declared,
    even_range,
    log_range,
    search,
)
from fedivon_app.methods import METHODS, settings_of
from fedivon_app.tuning.fields import fields_of, value_of
from fedivon_app.tuning.space import (
    at_the_edge,
    contains,
    current,
    overrides_of,
    range_text,
    read_ranges,
    rounded,
    space_of,
    stretched,
    words_of,
)

RATE = "client.learning_rate"
FINAL = "client.final_learning_rate"


def composed(strategy, *words, experiment="digits-regression"):
    return compose(settings_of, experiment, strategy, words)


@pytest.mark.parametrize("strategy", METHODS)
def test_every_method_declares_ranges_of_valid_values(strategy):
    settings = composed(strategy)
    space = space_of(settings, {})
    assert RATE in space and current(space, settings) is not None
    for name, option in space.items():
        ends = option.values if isinstance(option, Choices) else (option.low, option.high)
        for end in ends:
            values = overrides_of({name: end}, settings)
            changed = composed(strategy, *words_of(values))
            assert value_of(changed, name) == end


@pytest.mark.parametrize("strategy", METHODS)
def test_every_declared_range_is_of_a_number_that_a_method_has(strategy):
    for name, info in fields_of(settings_of(strategy)).items():
        for option in declared(info):
            if isinstance(option, Range):
                assert option.low < option.high and not (option.log and option.low <= 0), name
            section = name.rpartition(".")[0]
            known = fields_of(settings_of(strategy))
            assert all(f"{section}.{key}" in known for key in option.where), name


def test_what_is_declared_is_read_back():
    options = [log_range(0.1, 1.0, optimizer="sgd"), choices(1, "a"), even_range(0, 1)]
    info = type("Info", (), {"json_schema_extra": search(*options)})()
    assert declared(info) == options


def test_rates_go_by_the_optimizer_and_by_both_where_that_is_searched():
    adam = space_of(composed("fedavg"), {})
    assert adam[RATE] == log_range(1e-4, 0.03, optimizer="adam")
    assert "client.momentum" not in adam
    sgd = space_of(composed("fedavg", "client.optimizer=sgd"), {})
    assert (sgd[RATE].low, sgd[RATE].high) == (pytest.approx(1e-3 / 3), 1.0)  # 0.001 is there
    assert "client.momentum" in sgd
    both = space_of(composed("fedavg"), read_ranges(["client.optimizer=adam,sgd"]))
    assert (both[RATE].low, both[RATE].high) == (1e-4, 1.0)
    assert both["client.optimizer"] == Choices(("adam", "sgd"))


def test_what_is_off_or_fixed_is_not_searched():
    space = space_of(composed("fedavg", "client.weight_decay=0"), {})
    assert "client.weight_decay" not in space and "client.proximal" not in space
    assert "client.proximal" in space_of(composed("fedprox"), {})
    assert "model.dropout" in space_of(composed("mc-dropout"), {})
    assert "model.dropout" not in space_of(composed("fedavg"), {})
    assert RATE not in space_of(composed("fedavg"), {}, fixed={RATE})
    given = read_ranges([f"{RATE}=1:2"])
    assert space_of(composed("fedavg"), given, fixed={RATE})[RATE] == Range(1.0, 2.0)


def test_whole_numbers_stay_whole():
    space = space_of(composed("fedavg"), read_ranges(["client.epochs=1:5"]))
    assert space["client.epochs"] == Range(1.0, 5.0, whole=True)
    assert rounded(3, space["client.epochs"]) == 3


def test_a_range_is_stretched_to_the_value_that_is_there():
    rate = log_range(1e-3, 1.0)
    assert stretched(rate, 0.1) == rate
    assert stretched(rate, 3e-5).low == pytest.approx(1e-5)
    assert stretched(rate, 2.0).high == 6.0 and stretched(rate, 2.0, highest=5.0).high == 2.0
    assert stretched(even_range(0.0, 0.5), 0.8, highest=1.0) == even_range(0.0, 0.8)
    assert stretched(choices(1, 2), 3) == choices(1, 2, 3)


def test_ranges_on_the_command_line():
    given = read_ranges(["client.ess=1e3:1e5:log", "client.beta2=0.9:0.99", "merge.rule=nwa,ws"])
    assert given == {
        "client.ess": Range(1e3, 1e5, log=True),
        "client.beta2": Range(0.9, 0.99),
        "merge.rule": Choices(("nwa", "ws")),
    }
    assert [range_text(option) for option in given.values()] == [
        "1000:100000:log",
        "0.9:0.99",
        "nwa,ws",
    ]


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("client.ess", "is not of the form"),
        ("client.ess=", "is not of the form"),
        ("client.ess=a:b", "not two numbers"),
        ("client.ess=1:2:lin", ":log after its two ends"),
        ("client.ess=1:2:log:3", ":log after its two ends"),
        ("client.ess=2:1", "from a number to a larger one"),
        ("client.ess=nan:1", "from a number to a larger one"),
        ("client.ess=0:1:log", "must begin above 0"),
        ("client.ess=5", "leaves no choice"),
        ("client.ess=[1],[2]", "words or numbers"),
    ],
)
def test_wrong_ranges_are_told(word, says):
    with pytest.raises(SettingsError, match=says):
        read_ranges([word])


def test_a_range_may_be_given_once():
    with pytest.raises(SettingsError, match="given twice"):
        read_ranges(["client.ess=1:2", "client.ess=3:4"])


def test_the_last_rate_keeps_its_ratio_to_the_first():
    settings = composed("fedivon", experiment="demo")  # 0.3 to 0.03
    assert overrides_of({RATE: 0.2}, settings) == {RATE: 0.2, FINAL: 0.02}
    assert overrides_of({RATE: 0.3}, settings) == {RATE: 0.3}
    assert overrides_of({RATE: 0.2, FINAL: 0.1}, settings) == {RATE: 0.2, FINAL: 0.1}
    assert overrides_of({RATE: 0.2}, settings, fixed={FINAL}) == {RATE: 0.2}
    constant = composed("scaffold")
    assert overrides_of({RATE: 0.2}, constant) == {RATE: 0.2}


def test_a_value_at_the_edge_of_its_range_is_told():
    space = {"a": log_range(0.01, 1.0), "b": even_range(0.0, 1.0), "c": choices(1, 2)}
    assert at_the_edge({"a": 0.1, "b": 0.5, "c": 1}, space) == []
    assert at_the_edge({"a": 0.95, "b": 0.04, "c": 1}, space) == ["a", "b"]
    assert at_the_edge({"a": 0.011, "b": 0.06, "c": 1}, space) == ["a"]


def test_numbers_are_short_and_within_their_range():
    option = log_range(0.012345, 1.0)
    assert rounded(0.0123451, option) == 0.012345 and rounded(0.123456, option) == 0.123
    assert contains(option, 0.5) and not contains(option, 2) and not contains(option, True)
    assert words_of({"client.learning_rate": 1e-05}) == ["client.learning_rate=1.0e-05"]
