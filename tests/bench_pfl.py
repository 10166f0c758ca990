"""The inline engine beside pfl-research 0.6, the fastest public simulator, on its kind of task.

FedAvg on 1000 clients of 50 pictures, 50 a round, one epoch in batches of 10, SGD, two processes
each. They take turns. `python -m tests.bench_pfl` measures it alone. pfl's side is left out where
pfl is not installed: no other part of the project needs it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fedivon_app.core.models import build
from fedivon_app.datasets.scaling import inputs
from fedivon_app.federation.local_federation import free_port
from fedivon_app.federation.run_queue import Engine, Where
from tests.bench_nodes import cpu_seconds
from tests.bench_runs import NO_SCORES, random_pictures

CLIENTS = 1000
PICTURES = 50
A_ROUND = 50
BATCH = 10
RATE = 0.05
SHAPE = (32, 32, 3)
WARM = 3  # rounds that do not count
PROCESSES = 2


@dataclass(frozen=True)
class Pace:
    """When rounds ended, in seconds since the command, and the CPU seconds used until then."""

    ends: list[float]
    cpu: list[float]

    @property
    def first(self) -> float:
        """Return the seconds until the first round was done."""
        return self.ends[0]

    @property
    def a_second(self) -> float:
        """Return the clients a second, by the median round."""
        return A_ROUND / float(np.median(np.diff(self.ends[WARM:])))

    @property
    def cpu_a_client(self) -> float:
        """Return the CPU milliseconds a client, of all processes together."""
        rounds = len(self.cpu) - 1 - WARM
        return 1e3 * (self.cpu[-1] - self.cpu[WARM]) / (rounds * A_ROUND)

    def __str__(self) -> str:
        return (
            f"first round after {self.first:.1f} s, {self.a_second:.0f} clients a second, "
            f"{self.cpu_a_client:.1f} ms of CPU a client"
        )


def pace_of(folder: Path, engine: Engine, rounds: int = 30) -> Pace:
    """Return the pace of `fedivon run` with an engine."""
    words = [
        "dataset=null",
        "data.source=npz",
        f"data.path={pictures_in(folder)}",
        f"data.root={folder}",
        "data.partition=iid",
        "data.holdout=0",
        f"data.clients={CLIENTS}",
        f"clients_per_round={A_ROUND}",
        f"rounds={rounds}",
        "client.epochs=1",
        f"client.batch_size={BATCH}",
        "client.optimizer=sgd",
        "client.weight_decay=0",
        f"client.learning_rate={RATE}",
        f"client.final_learning_rate={RATE}",
        *NO_SCORES,
        "evaluation.clients_every=0",
        "run.checkpoint_every=1000",
        "run.client_state=run",
    ]
    with tempfile.TemporaryDirectory(dir=folder) as runs:
        config = {"experiment": "cifar10-fedivon", "strategy": "fedavg", "runs": runs}
        pace = Pace([], [])
        began = time.monotonic()

        def note(line: str) -> None:
            if line.startswith("round "):
                pace.ends.append(time.monotonic() - began)
                pace.cpu.append(cpu_seconds([os.getpid()]))

        with Where(engine=engine, cores=PROCESSES).federation() as federation:
            end = federation.run({**config, "set": shlex.join(words)}, CLIENTS, show=note)
    if end.failed:
        raise RuntimeError(end.text)
    return pace


def pace_of_pfl(folder: Path, rounds: int) -> Pace:
    """Return the pace of pfl's simulation in two processes that speak by torch.distributed."""
    common = {
        "WORLD_SIZE": str(PROCESSES),
        "LOCAL_WORLD_SIZE": str(PROCESSES),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
        "PFL_PYTORCH_DEVICE": "cpu",
    }
    began = time.time()
    processes = []
    for rank in range(PROCESSES):
        command = [sys.executable, "-m", "tests.bench_pfl", str(folder), str(rounds), str(began)]
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        processes.append(subprocess.Popen(command, env={**os.environ, **common, **own}))
    if any([process.wait() for process in processes]):
        raise RuntimeError("pfl's simulation failed")
    paces = [json.loads((folder / f"pfl-{rank}.json").read_text()) for rank in range(PROCESSES)]
    return Pace(paces[0]["ends"], np.sum([one["cpu"] for one in paces], axis=0).tolist())


def pfl_process(folder: Path, rounds: int, began: float) -> None:
    """Be one of pfl's processes, and write its pace to a file."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    class Network(nn.Module):
        """The network of our side, with what pfl asks of one."""

        def __init__(self) -> None:
            super().__init__()
            self.inside = build("lenet", SHAPE, 10)

        def loss(self, x: Tensor, y: Tensor) -> Tensor:
            self.train()
            loss: Tensor = nn.functional.cross_entropy(self.inside(x), y)
            return loss

        def metrics(self, x: Tensor, y: Tensor) -> dict[str, object]:
            return {}

    class Note(TrainingProcessCallback):  # type: ignore[misc]  # pfl may be absent
        """Notes the end of every round."""

        def after_central_iteration(self, *given: object, **named: object) -> object:
            pace["ends"].append(time.time() - began)
            pace["cpu"].append(time.process_time())
            return False, Metrics()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    pace: dict[str, list[float]] = {"ends": [], "cpu": []}
    with np.load(pictures_in(folder)) as arrays:
        x = inputs(arrays["x_train"], "signed")
        y = torch.from_numpy(arrays["y_train"].astype(np.int64))
    parts = {
        user: [
            x[PICTURES * user : PICTURES * (user + 1)],
            y[PICTURES * user : PICTURES * (user + 1)],
        ]
        for user in range(CLIENTS)
    }
    data = FederatedDataset.from_slices(parts, get_user_sampler("random", list(parts)))
    network = Network()
    model = PyTorchModel(
        network, torch.optim.SGD, central_optimizer=torch.optim.SGD(network.parameters(), lr=1.0)
    )
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=10**6,
            train_cohort_size=A_ROUND,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=data, val_data=data),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=RATE, local_batch_size=BATCH
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=BATCH),
        callbacks=[Note()],
        send_metrics_to_platform=False,
    )
    (folder / f"pfl-{os.environ['RANK']}.json").write_text(json.dumps(pace))


def pictures_in(folder: Path) -> Path:
    """Return the file with the pictures of all clients, which is made if it is not there."""
    own = folder / "many"
    own.mkdir(exist_ok=True)
    path = own / f"noise-{SHAPE[0]}.npz"
    return path if path.exists() else random_pictures(own, SHAPE, CLIENTS * PICTURES)


def beside_pfl(folder: Path, rounds: int = 30, turns: int = 2) -> Iterator[str]:
    """Give the paces of both simulators in turn, as lines of text."""
    pictures_in(folder)
    there = importlib.util.find_spec("pfl") is not None
    for _ in range(turns):
        yield f"inline  {pace_of(folder, 'inline', rounds)}"
        if there:
            yield f"pfl     {pace_of_pfl(folder, rounds)}"
    if not there:
        yield "pfl     is not installed: pip install 'pfl[pytorch]==0.6.0'"


def main() -> None:
    """Measure both, and print the lines; with three words this is one of pfl's processes."""
    if len(sys.argv) == 4:
        pfl_process(Path(sys.argv[1]), rounds=int(sys.argv[2]), began=float(sys.argv[3]))
        return
    with tempfile.TemporaryDirectory() as folder:
        for line in beside_pfl(Path(folder)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
