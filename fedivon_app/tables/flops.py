"""What a client's training costs: floating-point operations, counted while the client trains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from fedivon_app.core.codec import Payload
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.sampling import sampled
from fedivon_app.core.settings import AnySettings
from fedivon_app.datasets.loading import division
from fedivon_app.datasets.node_data import Partition, partition_of
from fedivon_app.methods import method
from fedivon_app.server.setup import num_clients_of, prepare, with_facts

BILLION = 1e9
FIRST_ROUND = 1
BACKWARD = torch.ops.aten.convolution_backward


def gigaflops(settings: AnySettings, clients: int = 10) -> float:
    """Return the 10^9 floating-point operations of a client's training in a round, on average.

    The method's own clients train in round 1 from what the server would send them, in this process
    and without Flower: as many as `clients` says, or all where there are fewer, drawn by the run's
    seed. Torch's counter knows the products of matrices and the convolutions, forward and
    backward, in which a multiplication and an addition are two operations. Elementwise operations,
    such as those of an optimizer, are not counted, and neither is what a client does in numpy:
    `bayes-admm-full` does all of its work there, and so costs 0 by this count. What the clients
    keep goes to a temporary folder, and torch's random numbers go on as if nothing had been drawn.
    """
    with torch.random.fork_rng(), TemporaryDirectory() as folder:
        counts = _counts(settings, clients, Path(folder))
    return sum(counts) / len(counts) / BILLION


def _counts(settings: AnySettings, clients: int, folder: Path) -> Sequence[int]:
    """The operations of each of the drawn clients."""
    prepared = prepare(settings)
    known = with_facts(settings, prepared.data)
    strategy = method(known.strategy).strategy(known, prepared.architecture)
    first = strategy.begin(prepared.flat.mean(), prepared.flat.buffers)
    everyone = range(num_clients_of(known))
    drawn = sampled(everyone, clients, seed=known.seed, server_round=FIRST_ROUND)
    partitions = [partition_of(known, {"partition-id": number}) for number in drawn]
    told = Instructions(
        round=FIRST_ROUND,
        learning_rate=known.client.rate_in(FIRST_ROUND, known.rounds),
        first=True,
        client_state=str(folder),
        total_examples=_num_examples(known),
    )
    return [_operations(known, partition, first, told) for partition in partitions]


def _num_examples(settings: AnySettings) -> int:
    """The training examples of all clients."""
    divided = division(settings.data, num_clients_of(settings), settings.seed, settings.task)
    return sum(len(part) for part in divided.split.train)


def _operations(
    settings: AnySettings, partition: Partition, start: Payload, told: Instructions
) -> int:
    """The operations of one client's round."""
    client = method(settings.strategy).client(settings, partition)
    formulas = {BACKWARD: _convolution_backward}
    with FlopCounterMode(display=False, custom_mapping=formulas) as counter:
        client.work(start, told)
    return int(counter.get_total_flops())


def _convolution_backward(*args: Any, out_shape: Any) -> int:
    """The operations of a convolution's gradients, those of its weights group by group.

    Torch's formula takes every group's outputs with all groups' inputs. Per-example gradients,
    by which Laplace's methods find the curvature of some networks, are convolutions with a group an
    example.
    """
    *given, groups, wanted = args
    count = flop_registry[BACKWARD]
    of_inputs = count(*given, groups, (wanted[0], False, False), out_val=out_shape)
    of_weights = count(*given, groups, (False, wanted[1], False), out_val=out_shape)
    return int(of_inputs + of_weights // groups)
