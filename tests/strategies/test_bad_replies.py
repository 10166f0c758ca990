"""Replies that no merge may see: dropped by name and reason, the others count."""

import re

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, MetricRecord

from fedivon_app.strategies.replies import to_record
from tests.strategies.nodes import Nodes, arrays_of, fedivon, good, start


def metrics(**values):
    """A reply that is good but for these metrics."""
    return lambda p, m: (
        good(p, m) | {"metrics": MetricRecord({"num-examples": 20, "loss": 0.5} | values)}
    )


def arrays_like(mean):
    """A reply that is good but for the type of its mean."""
    return lambda p, m: (
        good(p, m) | {"posterior": to_record({"mean": mean, "precision": np.ones(4, np.float32)})}
    )


BAD = {
    "an error": (
        lambda p, m: Error(2, "Traceback ...\nValueError: no data here"),
        "ValueError: no data here",
    ),
    "an error of a SuperNode": (
        lambda p, m: Error(2, "<class 'ValueError'>:<'what it kept is gone'>"),
        "^ValueError: what it kept is gone$",
    ),
    "an error of a simulated client": (
        lambda p, m: Error(
            2,
            "<class 'X'>:<'ray::train() ...\n\n"
            "Exception ClientAppException occurred. Message: no data'>",
        ),
        "^no data$",
    ),
    "silence": (lambda p, m: None, "no reply in time"),
    "no posterior": (
        lambda p, m: {"metrics": MetricRecord({"num-examples": 1})},
        "lacks 'posterior'",
    ),
    "no num-examples": (
        lambda p, m: good(p, m) | {"metrics": MetricRecord({"loss": 1.0})},
        "lacks 'num-examples'",
    ),
    "no precision": (
        lambda p, m: good(p, m) | {"posterior": arrays_of(mean=np.zeros(4))},
        "has the arrays mean, not mean, precision",
    ),
    "another model": (
        lambda p, m: good(p, m, mean=np.zeros(3), precision=np.ones(3)),
        r"mean has shape \(3,\)",
    ),
    "NaN": (
        lambda p, m: good(p, m, mean=[np.nan, 0, 0, 0]),
        "mean has 1 values that are not finite",
    ),
    "infinity": (
        lambda p, m: good(p, m, precision=[np.inf, 1, 1, 1]),
        "precision has 1 values that are not finite",
    ),
    "negative precision": (
        lambda p, m: good(p, m, precision=[-1, 1, 1, 0]),
        "precision has 2 values that are not positive",
    ),
    "zero examples": (
        metrics(**{"num-examples": 0}),
        "num-examples is 0, not a whole number of at least 1",
    ),
    "half an example": (
        metrics(**{"num-examples": 2.5}),
        "num-examples is 2.5, not a whole number",
    ),
    "infinitely many": (metrics(**{"num-examples": np.inf}), "num-examples is inf, not finite"),
    "numbers of examples": (
        metrics(**{"num-examples": [1, 2]}),
        r"num-examples is \[1, 2\], not a number",
    ),
    "no loss": (
        lambda p, m: good(p, m) | {"metrics": MetricRecord({"num-examples": 5})},
        "lacks 'loss'",
    ),
    "losses": (metrics(loss=[1.0, 2.0]), r"loss is \[1.0, 2.0\], not a number"),
    "a loss that is NaN": (metrics(loss=np.nan), "loss is nan, not finite"),
    "words for metrics": (
        lambda p, m: good(p, m) | {"metrics": ConfigRecord({"num-examples": "many"})},
        "lacks 'metrics' of the kind MetricRecord",
    ),
    "numbers for arrays": (
        lambda p, m: good(p, m) | {"posterior": MetricRecord({"mean": 1.0})},
        "lacks 'posterior' of the kind ArrayRecord",
    ),
    **{
        f"{kind} for numbers": (
            arrays_like(values),
            re.escape(f"mean holds {values.dtype}, not float32"),
        )
        for kind, values in {
            "letters": np.array(list("abcd")),
            "complex numbers": np.ones(4, np.complex64),
            "truth values": np.ones(4, bool),
            "whole numbers": np.ones(4, int),
            "dates": np.zeros(4, "datetime64[s]"),
            "structures": np.zeros(4, [("a", "f4")]),
        }.items()
    },
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_reply_is_dropped_by_name_and_never_merged(kind):
    bad, reason = BAD[kind]
    loop = fedivon()
    (record,) = start(loop, Nodes(3, lambda p, m: bad(p, m) if p == 1 else good(p, m)))
    (drop,) = record["dropped"]
    assert drop["partition"] == 1
    assert re.search(reason, drop["reason"])
    np.testing.assert_allclose(loop.standing.payload.posterior.mean, 2 * 30 / 40)
