"""Hand-made nodes for a strategy, and the strategy that asks them."""

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from fedivon_app.core.codec import Payload
from fedivon_app.core.posterior import Posterior
from fedivon_app.methods import method, settings_of


def arrays_of(**named) -> ArrayRecord:
    return ArrayRecord(
        {name: Array(np.asarray(value, np.float32)) for name, value in named.items()}
    )


class Nodes:
    """A grid of hand-made nodes; `reply(partition, message)` gives a node's records, an Error, or None for silence."""

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


def fedivon(**values):
    common = {
        "experiment": "test",
        "strategy": "fedivon",
        "merge": {"rule": "product"},
        "rounds": 3,
    }
    return method("fedivon").strategy(
        settings_of("fedivon").model_validate(common | values), (4,), 3
    )


def start(strategy, nodes, rounds=1, **options):
    records = []
    strategy.payload = Payload(Posterior(np.zeros(4), np.ones(4)))
    strategy.start(
        nodes,
        strategy.arrays(),
        rounds,
        0.2,
        on_round=lambda r, p, record: records.append(record),
        **options,
    )
    return records
