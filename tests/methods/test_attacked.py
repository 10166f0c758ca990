"""Every method under attack, with and without a defence; and what the defence is worth."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedivon_app.core.compose import compose
from fedivon_app.core.errors import RunError
from fedivon_app.core.merge_settings import ADVISED
from fedivon_app.methods import METHODS, method, settings_of
from fedivon_app.server.setup import prepare
from fedivon_app.strategies.rounds import Rounds
from tests.attack_table import measured
from tests.golden import InProcess, context_of, run

WITHOUT_A_GLOBAL_MODEL = ("fedper", "fedrep", "local", "local-bnn")


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)


@pytest.mark.parametrize("robust", ADVISED)
@pytest.mark.parametrize("name", METHODS)
def test_every_method_runs_under_attack_with_the_defences_that_are_advised(name, robust):
    words = [f"merge.robust={robust}", "attack.kind=sign-flip", "attack.clients=[1]"]
    words += ["data.clients=6", "clients_per_round=null"]
    words += ["data.per_class=30"]  # of the experiment that has its data in two classes each
    words += ["attack.strength=worst"] if name in ("fedivon", "bayes-admm") else []
    if robust == "held-out":
        words += ["data.holdout=50"]
        if name in WITHOUT_A_GLOBAL_MODEL:
            with pytest.raises(RunError, match=f"strategy {name} has no global model"):
                run(name, *words, grid=InProcess(6))
            return
    records = run(name, *words, grid=InProcess(6))
    assert [record["merged"] for record in records] == [True, True]
    assert all(record["clients"] for record in records)


def test_liars_are_found_and_nobody_honest_is_left_out():
    words = ["rounds=30", "attack.kind=sign-flip", "attack.share=0.2"]
    with_it = measured("demo", "fedivon", [*words, "merge.robust=auto"])
    without = measured("demo", "fedivon", words)
    assert with_it["found"] >= 3 and with_it["honest_left_out"] == 0
    assert with_it["accuracy"] > 85
    assert without["accuracy"] < 30  # it diverges


def test_examples_of_the_servers_own_tell_who_trains_on_flipped_labels():
    words = ["rounds=20", "data.holdout=150", "attack.kind=label-flip", "attack.share=0.3"]
    with_it = measured("demo", "fedivon", [*words, "merge.robust=held-out"])
    by_history = measured("demo", "fedivon", [*words, "merge.robust=auto"])
    assert with_it["accuracy"] > by_history["accuracy"] + 10


@pytest.mark.parametrize(("steep", "merged"), [(0.01, True), (1000, False)])
@pytest.mark.parametrize("name", ["fedavg", "fedivon", "bayes-admm"])
def test_no_merge_is_taken_that_ruins_the_model_on_the_servers_own_examples(name, steep, merged):
    """The loss is the way from what was sent, so that all merges are ruin, or none is."""
    words = ["data.clients=6", "clients_per_round=null", "data.holdout=50", "client.epochs=1"]
    settings = compose(settings_of, "demo", name, [*words, "merge.robust=held-out"])
    prepared = prepare(settings)
    strategy = method(name).strategy(settings, prepared.architecture)
    begin = strategy.begin(prepared.flat.mean(), prepared.flat.buffers)

    def trial(payload):
        return steep * float(np.linalg.norm(payload.posterior.mean - begin.posterior.mean))

    loop = Rounds(strategy, begin, trial=trial)
    records = []
    observer = SimpleNamespace(
        score=lambda number, payload: None, finished=lambda _, record: records.append(record)
    )
    loop.start(InProcess(6), loop.arrays(), 1, observer=observer)
    merged = merged or name == "bayes-admm"  # whose clients step their duals all the same
    assert [record["merged"] for record in records] == [merged]
    same = np.array_equal(loop.standing.payload.posterior.mean, begin.posterior.mean)
    assert same is not merged


ADMM = [  # values with which BayesADMM learns the digits
    "client.learning_rate=0.0595",
    "client.hess_init=0.0922",
    "client.beta1=0.76",
    "client.beta2=0.99999",
    "client.temperature=0.00106",
    "merge.rho=0.222",
    "merge.dual_step=0.13",
    "merge.prior_precision=0.000227",
]


def test_a_large_claim_at_a_few_weights_does_not_end_a_run():
    """Without a defence the precision grows in every round, and in the tenth it is too much."""
    words = [*ADMM, "rounds=12", "attack.kind=poisoned-prior", "attack.share=0.2"]
    with_it = measured("demo", "bayes-admm", [*words, "merge.robust=auto"])
    assert with_it["found"] == 4 and with_it["honest_left_out"] == 0
    assert with_it["accuracy"] > 70
    assert "diverged" in measured("demo", "bayes-admm", words)["failed"]


class Sites(InProcess):
    """Nodes with names, as sites have them."""

    def __init__(self, count):
        super().__init__(count)
        for context in self.contexts.values():
            context.node_config["name"] = f"clinic-{context.node_id}"


def test_sites_refuse_to_take_part_in_an_attack(tmp_path):
    from fedivon_app import server_app

    config = {"experiment": "demo", "strategy": "fedavg", "runs": str(tmp_path)}
    config["set"] = "data.clients=3 clients_per_round=null attack.kind=alie attack.share=0.3"
    with pytest.raises(RunError, match="attacks are for simulations, and this is a site"):
        server_app.main(Sites(3), context_of(config))
