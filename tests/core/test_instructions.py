"""What the server tells a client, and how it travels."""

from dataclasses import fields

import pytest
from flwr.app import ConfigRecord
from hypothesis import given
from hypothesis import strategies as st

from fedivon_app.core.instructions import Instructions

counts = st.integers(0, 10**6)
FULL = Instructions(
    round=7,
    learning_rate=0.25,
    first=True,
    run="2026-11-18-demo",
    client_state="/somewhere/clients",
    total_examples=1234,
    last_merged=6,
    last_saved=5,
    report=False,
    score_gm=False,
    sent="0123456789abcdef",
    held="fedcba9876543210",
)


@given(
    st.builds(
        Instructions,
        round=counts,
        learning_rate=st.floats(0, 1e3, allow_nan=False),
        first=st.booleans(),
        run=st.text(),
        client_state=st.none() | st.text(),
        total_examples=counts,
        last_merged=counts,
        last_saved=counts,
        report=st.booleans(),
        score_gm=st.booleans(),
        sent=st.none() | st.text(),
        held=st.none() | st.text(),
    )
)
def test_instructions_come_out_of_a_message_as_they_went_in(told):
    assert Instructions.from_config(ConfigRecord(told.to_config())) == told


def test_the_names_on_the_wire_stay_as_they_are():
    """Nodes of another version read them."""
    assert FULL.to_config() == {
        "round": 7,
        "learning-rate": 0.25,
        "first": True,
        "run": "2026-11-18-demo",
        "client-state": "/somewhere/clients",
        "total-examples": 1234,
        "last-merged": 6,
        "last-saved": 5,
        "report": False,
        "score-gm": False,
        "sent": "0123456789abcdef",
        "held": "fedcba9876543210",
    }


def test_what_is_none_does_not_travel():
    """Flower's records hold no such value."""
    config = Instructions(round=1).to_config()
    assert "client-state" not in config and None not in config.values()
    assert Instructions.from_config(config) == Instructions(round=1)


def test_what_is_not_said_has_its_default_and_other_keys_are_left_alone():
    config = {"round": 3, "settings": "{}", "keys": ["mean"], "learning_rate": 5.0}
    assert Instructions.from_config(config) == Instructions(round=3)
    told = Instructions(round=3)
    assert told.report and told.score_gm
    assert (told.last_merged, told.last_saved) == (0, 0)


def test_a_message_without_its_round_is_refused():
    with pytest.raises(TypeError, match="round"):
        Instructions.from_config({"learning-rate": 0.1})


@pytest.mark.parametrize("name", [field.name for field in fields(Instructions)])
def test_every_instruction_is_one_of_those_tried_here(name):
    assert getattr(FULL, name) != getattr(Instructions(round=0), name)
