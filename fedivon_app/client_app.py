"""The ClientApp: one message, one call of the method's NumPyClient, one reply."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedivon_app import logs
from fedivon_app.clients.base import PosteriorClient
from fedivon_app.core import heap
from fedivon_app.core.settings import Settings
from fedivon_app.datasets.loading import partition_of
from fedivon_app.methods import method, settings_of

app = ClientApp()


@lru_cache(maxsize=4)
def _settings(text: str) -> Settings:
    return settings_of(json.loads(text)["strategy"]).model_validate_json(text)


def _client(message: Message, context: Context) -> tuple[PosteriorClient, dict[str, Any]]:
    config = dict(message.content["config"])
    settings = _settings(config.pop("settings"))
    own = context.node_config.get("state-path")
    partition = partition_of(settings, context.node_config)
    client = method(settings.strategy).client(
        settings, partition, context.state, Path(own) if own else None
    )
    return client, config


def _parameters(message: Message, config: dict[str, Any]) -> list:
    record = message.content["posterior"]
    config["keys"] = list(record)
    return [array.numpy() for array in record.values()]


def _tell(context: Context, event: str, *words: Any) -> None:
    """A line in the log of a site, which has a name; those of many simulated clients would help nobody."""
    if name := context.node_config.get("name"):
        logs.to_stdout().info(f"%s, {event}", name, *words)


@app.query()
def query(message: Message, context: Context) -> Message:
    """The roll call; what keeps this node from working is told, not raised, so that the server can name it."""
    node = context.node_config
    properties: dict[str, Any] = {
        "partition-id": int(node.get("partition-id", 0)),
        "name": str(node.get("name", "")),
    }
    try:
        client, config = _client(message, context)
        properties |= client.get_properties(config)
    except (ValueError, OSError) as error:
        properties["error"] = " ".join(str(error).split())
    _tell(context, "roll call: %s", properties.get("error", "takes part"))
    return Message(RecordDict({"properties": ConfigRecord(properties)}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    client, config = _client(message, context)
    arrays, num_examples, metrics = client.fit(_parameters(message, config), config)
    keys = (
        config["keys"] if arrays else []
    )  # who trains without being asked to report sends no arrays
    record = ArrayRecord({key: Array(array) for key, array in zip(keys, arrays, strict=True)})
    heap.give_back()
    words = config["round"], num_examples, metrics["loss"], metrics["seconds"]
    sent = "sends its posterior" if arrays else "sends nothing but that it trained"
    _tell(context, f"round %d: trained on %d examples, loss %.4f, %.1f s; {sent}", *words)
    reply = {
        "posterior": record,
        "metrics": MetricRecord({"num-examples": num_examples, **metrics}),
    }
    return Message(RecordDict(reply), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    client, config = _client(message, context)
    _, num_examples, metrics = client.evaluate(_parameters(message, config), config)
    heap.give_back()
    _tell(context, "round %d: scored on %d test examples", config["round"], num_examples)
    return Message(
        RecordDict({"metrics": MetricRecord({"num-examples": num_examples, **metrics})}),
        reply_to=message,
    )
