"""The headlines of FedIvon, of pFedHB and of Fischer's rules."""

import pytest

from tests.headlines.helpers import NO_FMNIST, records_of, score

SEED = 1
ON_DIGITS = [  # the experiment with personal models, on ten clients that all report
    "dataset=digits",
    "data.clients=10",
    "clients_per_round=10",
    "model.options.sizes=[64]",
]
FAST = ("ws", "wc", "conflation")
SLOW = ("nwa", "lp")


@pytest.mark.skipif(NO_FMNIST, reason="there is no fmnist.npz; the digits stand in for it below")
def test_fedivon_has_a_lower_nll_than_fedavg_with_adam_on_fashion_mnist(tmp_path):
    """Measured under the seeds 0, 1 and 2: 0.881, 0.808 and 0.869, with a constant precision and a
    third of the rate that it has now, and FedAvg 1.069, 1.013 and 0.987.
    """
    nll = {name: fashion_nll(name, tmp_path, seed=SEED) for name in ("fedivon", "fedavg")}
    assert nll["fedivon"] < nll["fedavg"] - 0.05


def fashion_nll(strategy, place, seed):
    words = ["rounds=40", "evaluation.final_samples=0", "data.holdout=0"]
    records = records_of("fmnist-fedivon", strategy, place, words, rounds=[35, 40], seed=seed)
    return score(records, "nll")


def test_fedivon_has_a_lower_nll_than_fedavg_with_adam_on_digits(tmp_path):
    """Measured under the seeds 0, 1 and 2: 0.220, 0.238 and 0.224, and FedAvg 0.540, 0.749 and
    0.350.
    """
    nll = {name: digits_nll(name, tmp_path, seed=SEED) for name in ("fedivon", "fedavg")}
    assert nll["fedivon"] < 0.35
    assert nll["fedivon"] < 0.8 * nll["fedavg"]


def digits_nll(strategy, place, seed):
    return score(records_of("demo", strategy, place, [], rounds=[30, 40], seed=seed), "nll")


def test_the_global_model_of_pfedhb_is_ahead_of_that_of_pfedbayes(tmp_path):
    """Measured under the seeds 0, 1 and 2: 70.7, 87.0 and 85.6 %, and pFedBayes 52.7, 67.9 and
    52.1.
    """
    reached = {name: personal_gm(name, tmp_path, seed=SEED) for name in ("pfedhb", "pfedbayes")}
    assert reached["pfedhb"] > 0.6
    assert reached["pfedhb"] > reached["pfedbayes"] + 0.08


def personal_gm(strategy, place, seed):
    # Small clients take few steps in two epochs, and pFedBayes its twenty minibatches anyway.
    words = [*ON_DIGITS, *(["client.epochs=10"] if strategy == "pfedhb" else [])]
    return score(records_of("personal", strategy, place, words, rounds=[4], seed=seed))


def test_fischers_rules_are_two_groups(tmp_path):
    """NLL after eight rounds under the seeds 0, 1 and 2: ws and wc 1.26, 1.40 and 1.18, conflation
    1.41, 1.53 and 1.40; nwa and lp 1.72, 1.78 and 1.62, and never 0.02 apart from one another.
    """
    nll = {rule: rule_nll(rule, tmp_path, seed=SEED) for rule in (*FAST, *SLOW)}
    slowest = max(nll[rule] for rule in FAST)
    fastest = min(nll[rule] for rule in SLOW)
    assert slowest < fastest - 0.12, nll
    assert abs(nll["nwa"] - nll["lp"]) < 0.05 and abs(nll["ws"] - nll["wc"]) < 0.05, nll


def rule_nll(rule, place, seed):
    words = [f"merge.rule={rule}"]
    records = records_of("digits-fischer", "flipout", place, words, rounds=[8], seed=seed)
    return score(records, "nll")
