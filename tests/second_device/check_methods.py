"""Every method on the second device: whole runs, rounds without waits, and seeds."""

import numpy as np
import pytest
import torch

from fedivon_app.methods import METHODS
from fedivon_app.runs.folder import Run
from fedivon_app.runs.trained_model import Trained
from tests import golden
from tests.clients.helpers import client_of, instructions
from tests.second_device import device
from tests.second_device.places import HERE, THERE, placed

PRIVATE = ["privacy.epsilon=8", "evaluation.personal=false", "evaluation.clients_every=0"]
MORE = {  # settings that no golden run has, and that keep or move tensors of their own
    "fedavg, kept Adam": ["client.optimizer_state=kept", "client.clip_norm=1"],
    "fedavg, kept SGD": [
        "client.optimizer=sgd",
        "client.momentum=0.9",
        "client.optimizer_state=kept",
    ],
    "fedivon, compact wire": ["wire.codec=compact"],
    "bayes-admm, compact wire": ["wire.codec=compact"],
    "fedivon, masked": ["privacy.secure_aggregation=true"],
    "fedlaplace, fisher": ["client.curvature=fisher"],
    "perfedavg, whole": ["client.variant=hessian-free"],
    "pfedhb, batch norm": ["rounds=1", *golden.VARIANTS["fedivon, batch norm"]],
}
SLOW = {"bayes-admm-full": ["rounds=1"], "pfedbayes": ["rounds=1"]}
VARIANTS = [name for name in golden.VARIANTS if "all train" not in name]  # these have more clients
CASES = {name: SLOW.get(name, []) for name in [*METHODS, *VARIANTS]} | MORE


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    golden.prepare_process()
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)


@pytest.mark.parametrize("case", CASES)
def test_a_run_gives_the_numbers_that_it_gives_on_the_cpu(case, monkeypatch):
    """Server, clients, codec and scores; they differ by rounding where samples run together."""
    monkeypatch.setattr(device.module, "shares_stream", True)
    found = []
    for where in (HERE, THERE):
        with placed(where):
            found.append(list(golden.leaves(golden.run(case, *CASES[case]))))
    assert [path for path, _ in found[0]] == [path for path, _ in found[1]]
    for (path, here), (_, there) in zip(*found, strict=True):
        if isinstance(here, float):
            assert there == pytest.approx(here, rel=1e-5, abs=1e-7), path
        else:
            assert there == here, path


@pytest.mark.parametrize("name", ["fedivon", "fedavg"])
def test_a_private_run_is_made_there(name):
    """Its noise comes from the operating system, so that no two runs have the same numbers."""
    with placed(THERE):
        records = golden.run(name, *PRIVATE)
    assert len(records) >= 2 and len(records[-1]["clients"]) == 3
    assert not any(record.get("dropped") for record in records)


@pytest.mark.parametrize("name", METHODS)
def test_more_steps_make_no_more_waits(name, tmp_path):
    """The host sends and fetches once a round, or once an epoch: never in a step."""

    def waits(batch_size):
        words = ["client.epochs=2", f"client.batch_size={batch_size}"]
        asked = client_of(name, tmp_path / str(batch_size), *words)
        client = asked.client
        assert client.flat.vector.device == THERE
        task = client.task(instructions(client), {})
        client.begin_at(asked.start)
        device.waits.clear()
        client.train(asked.start, task)
        return task.steps, dict(device.waits)

    if name == "bayes-admm-full":
        pytest.skip("it works in numpy, and reads its network once")
    with placed(THERE):
        few, waits_of_few = waits(20)
        many, waits_of_many = waits(5)
    assert many > 2 * few
    assert waits_of_many == waits_of_few


@pytest.mark.parametrize("name", ["fedivon", "flipout", "pfedhb", "mc-dropout", "perfedavg"])
def test_a_round_on_the_device_follows_from_its_seed_alone(name, tmp_path):
    replies = []
    with placed(THERE):
        for number in range(2):
            asked = client_of(name, tmp_path / str(number))
            torch.randn(number + 1)  # whatever was drawn before
            torch.randn(number + 1, device=THERE)
            reply = asked.client.work(asked.start, instructions(asked.client))
            replies.append(reply.payload.posterior.mean)
    assert np.array_equal(*replies)


def test_a_trained_model_predicts_there(tmp_path):
    config = {"experiment": "demo", "strategy": "fedivon", "runs": str(tmp_path)}
    words = [*golden.WORDS, *golden.SMALL, "run.client_state=run", "run.checkpoint_every=1"]
    config["set"] = " ".join(f"'{word}'" for word in words)
    said = []
    pixels = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 1)).astype(np.uint8)
    with placed(HERE):
        golden.server_app.main(golden.InProcess(golden.CLIENTS), golden.context_of(config))
    (folder,) = tmp_path.iterdir()
    for where in (HERE, THERE):
        with placed(where):
            trained = Trained.open(Run.open(folder))
            said.append(trained.predict(trained.inputs(pixels), samples=3, seed=0))
    assert trained.flat.vector.device == THERE
    np.testing.assert_allclose(said[0].mean, said[1].mean, rtol=1e-5)
