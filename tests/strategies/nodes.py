"""Hand-made nodes for a strategy, and the strategy that asks them."""

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from fedivon_app.core.codec import Payload
from fedivon_app.core.network import Architecture
from fedivon_app.core.posterior import Posterior
from fedivon_app.methods import method, settings_of
from fedivon_app.strategies.rounds import Rounds


def arrays_of(**named) -> ArrayRecord:
    return ArrayRecord(
        {name: Array(np.asarray(value, np.float32)) for name, value in named.items()}
    )


class Nodes:
    """A grid of hand-made nodes.

    `reply(partition, message)` gives a node's records, an Error, or None for silence.
    """

    def __init__(self, count: int, reply, first_id: int = 100, properties=None):
        self.reply = reply
        self.properties = properties or {}
        self.ids = {first_id + 7 * partition: partition for partition in range(count)}
        self.queried: list[int] = []

    def get_node_ids(self):
        return reversed(list(self.ids))

    def push_messages(self, messages):
        self.replies = [self._answer(message) for message in messages]
        return [message.metadata.message_id for message in messages]

    def pull_messages(self, message_ids):
        there = (reply for reply in reversed(self.replies) if reply is not None)
        return [reply for reply in there if reply.metadata.reply_to_message_id in message_ids]

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))

    def _answer(self, message):
        node_id = message.metadata.dst_node_id
        partition = self.ids[node_id]
        message.metadata._message_id = f"message-{node_id}"  # what a SuperLink would set
        if message.metadata.message_type == "query":
            self.queried.append(partition)
            known = {
                "partition-id": partition,
                "num-train": 10 * (partition + 1),
                "num-test": 5,
                "shape": [4],
            }
            content = {
                "properties": ConfigRecord(
                    known | {"num-classes": 3} | self.properties.get(partition, {})
                )
            }
        else:
            content = self.reply(partition, message)
        if content is None:
            return None
        if isinstance(content, Error):
            return Message(content, reply_to=message)
        return Message(RecordDict(content), reply_to=message)


def good(partition, message, **changes):
    mean = np.full(4, partition, np.float32)
    arrays = {"mean": mean, "precision": np.ones(4)} | changes
    metrics = {"num-examples": 10 * (partition + 1), "loss": 0.5 * partition, "seconds": 0.1}
    return {"posterior": arrays_of(**arrays), "metrics": MetricRecord(metrics)}


def strategy_of(name, **values):
    """The strategy of a method, for inputs of four numbers and three classes."""
    common = {"experiment": "test", "strategy": name, "rounds": 3}
    settings = settings_of(name).model_validate(common | values)
    return method(name).strategy(settings, Architecture((4,), 3))


FIRST = Payload(Posterior(np.zeros(4), np.ones(4)))


def fedivon(first=FIRST, standing=None, **values):
    """The rounds of FedIvon, from a posterior of four weights."""
    return Rounds(strategy_of("fedivon", **values), first, standing=standing)


class Notes:
    """An observer that keeps the records of the rounds, and does something after each."""

    def __init__(self, saves, after):
        self.records = []
        self.saves = saves
        self.after = after

    def score(self, server_round, payload):
        return None

    def finished(self, standing, record):
        self.records.append(record)
        self.after(standing.round)
        return self.saves


def start(loop, nodes, rounds=1, saves=False, after=lambda server_round: None):
    """The records of these rounds."""
    notes = Notes(saves, after)
    loop.start(nodes, loop.arrays(), rounds, 0.2, observer=notes)
    return notes.records
