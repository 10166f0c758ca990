"""The ClientApp: one message, one call of the method's NumPyClient, one reply."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedivon_app import logs, secure_client
from fedivon_app.clients.base import PosteriorClient
from fedivon_app.clients.roll_call import column_sums
from fedivon_app.core import heap
from fedivon_app.core.codec import Raw
from fedivon_app.core.errors import FedIvonError, Refused, SettingsError
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.secure import columns
from fedivon_app.core.settings import AnySettings
from fedivon_app.core.site_policy import SitePolicy, is_site, site_ledger
from fedivon_app.core.text import one_line
from fedivon_app.datasets.node_data import partition_of
from fedivon_app.federation.shared_nodes import play
from fedivon_app.methods import method, settings_of
from fedivon_app.strategies.messages import COLUMN_SUMS

app = ClientApp(mods=[play])
SITE = {"name", "data-path"}  # what the node config of a real site has, and a simulated one has not


@lru_cache(maxsize=4)
def _settings(text: str) -> AnySettings:
    return settings_of(json.loads(text)["strategy"]).model_validate_json(text)


def _config(message: Message) -> dict[str, Any]:
    config = message.content["config"]
    assert isinstance(config, ConfigRecord)
    return dict(config)


def _client(config: dict[str, Any], context: Context) -> PosteriorClient[Any, Any]:
    """Return the client of the method that the message's settings name, on this node's data.

    What the site's policy forbids is a Refused.
    """
    node = context.node_config
    if why := SitePolicy.of(node).refusal(json.loads(config["settings"])):  # nothing imported yet
        raise Refused(why)
    settings = _settings(config["settings"])
    if settings.attack.kind != "none" and SITE & set(node):
        raise SettingsError(
            f"attack.kind is {settings.attack.kind}: attacks are for simulations, and this is a "
            "site with a name or a file of its own"
        )
    own = node.get("state-path")
    return method(settings.strategy).client(
        settings,
        partition_of(settings, node),
        context.state,
        Path(str(own)) if own else None,
        site_ledger(node) if is_site(node) else None,
    )


@contextmanager
def _discreetly(config: dict[str, Any]) -> Iterator[None]:
    """Keep the texts of errors here, where the run is private: they may tell of the data."""
    try:
        yield
    except (Refused, SettingsError):
        raise
    except Exception:
        if not _settings(config["settings"]).privacy.is_private:
            raise
        logs.to_stdout().exception("what went wrong here is not told to the server")
        raise Refused("this private client could not do its part; its own log says why") from None


def _parameters(message: Message, config: dict[str, Any]) -> list[np.ndarray]:
    """Return the message's arrays, and note their names in the config."""
    record = message.content["posterior"]
    assert isinstance(record, ArrayRecord)
    config["keys"] = list(record)
    return [array.numpy() for array in record.values()]


def _tell(context: Context, event: str, *words: object) -> None:
    """Write a line to the log of a site, which has a name; simulated clients have none."""
    if name := context.node_config.get("name"):
        logs.to_stdout().info(f"%s, {event}", name, *words)


@app.query()
def query(message: Message, context: Context) -> Message:
    """Answer the roll call, tell the sums of the columns, or what a secure sum needs besides.

    What keeps this node from working is told, not raised, so that the server can name it.
    """
    asked = secure_client.Asked.of(message)
    if "config" in message.content and _config(message).get("ask") == COLUMN_SUMS:
        return _column_sums(message, context, asked)
    if asked:
        _tell(context, "%s: %s", asked.session, asked.stage)
        return secure_client.answer(asked, message, context)
    node = context.node_config
    properties: dict[str, Any] = {
        "partition-id": int(node.get("partition-id", 0)),
        "name": str(node.get("name", "")),
    }
    try:
        config = _config(message)
        with _discreetly(config):
            client = _client(config, context)
            secure = client.settings.privacy.secure_aggregation
            secure_client.check_secure(node, secure=secure)
            properties |= client.get_properties(config)
            properties["name"] = properties["name"] or client.partition.name
    except (FedIvonError, OSError) as error:
        properties["error"] = one_line(error)
    _tell(context, "roll call: %s", properties.get("error", "takes part"))
    return Message(RecordDict({"properties": ConfigRecord(properties)}), reply_to=message)


def _column_sums(message: Message, context: Context, asked: secure_client.Asked | None) -> Message:
    """Tell the sums from which all clients' mean and deviation of every column follow."""
    config = _config(message)
    with _discreetly(config):
        client = _client(config, context)
    privacy = client.settings.privacy
    if privacy.is_private:
        raise Refused("this run is private, and the sums of its columns would have no noise")
    _check_open(context, config, asked, secure=privacy.secure_aggregation)
    own = secure_client.opened(asked, context, _folder(client, config))
    sums = column_sums(client.settings, client.partition, client.likelihood).vector
    if asked and own:
        _tell(context, "sends the sums of its columns masked, among %d sites", len(own.roster.keys))
        layout = columns.layout(len(sums), clients=len(own.roster.keys))
        content = secure_client.masked(asked, own, layout, columns.part(sums), context)
        return Message(content, reply_to=message)
    _tell(context, "tells the sums of its columns")
    record = ArrayRecord({"sums": Array(sums)})
    return Message(RecordDict({"sums": record}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train for a round; who is not asked to report sends no arrays."""
    config = _config(message)
    asked = secure_client.Asked.of(message)
    with _discreetly(config):
        client = _client(config, context)
        secure = client.settings.privacy.secure_aggregation
        _check_open(context, config, asked, secure=secure)
        own = secure_client.opened(asked, context, _folder(client, config))
        received = _parameters(message, config)
        arrays, num_examples, metrics = client.fit(received, config)
    names = config["keys"] if arrays else []
    sent = "sends its posterior" if arrays else "sends nothing but that it trained"
    if own is not None:
        sent = f"sends its posterior masked, among {len(own.roster.keys)} sites"
    if "epsilon" in metrics:
        how = f"privately, epsilon {metrics['epsilon']:.3f} so far in this run"
    else:
        how = f"on {num_examples} examples, loss {metrics['loss']:.4f}, {metrics['seconds']:.1f} s"
    _tell(context, f"round %d: trained {how}; {sent}", config["round"])
    if asked and own:
        start = Raw().decode(dict(zip(config["keys"], received, strict=True)))
        payload = Raw().decode(dict(zip(names, arrays, strict=True)))
        learned = secure_client.Told(payload, num_examples, metrics)
        layout, part = secure_client.training_part(
            asked, client, start, learned, clients=len(own.roster.keys)
        )
        content = secure_client.masked(asked, own, layout, part, context)
        if client.settings.privacy.is_private:
            content["metrics"] = MetricRecord(metrics)
    else:
        told = {} if secure else {"num-examples": num_examples, **metrics}
        record = {name: Array(array) for name, array in zip(names, arrays, strict=True)}
        content = RecordDict({"posterior": ArrayRecord(record), "metrics": MetricRecord(told)})
    heap.give_back_sometimes()
    return Message(content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Score the models that the client has on its test part."""
    config = _config(message)
    asked = secure_client.Asked.of(message)
    with _discreetly(config):
        client = _client(config, context)
        _check_open(context, config, asked, secure=client.settings.privacy.secure_aggregation)
        own = secure_client.opened(asked, context, _folder(client, config))
        _, num_examples, metrics = client.evaluate(_parameters(message, config), config)
    heap.give_back_sometimes()
    _tell(context, "round %d: scored on %d test examples", config["round"], num_examples)
    if asked and own:
        layout, part = secure_client.scores_part(client, metrics, clients=len(own.roster.keys))
        content = secure_client.masked(asked, own, layout, part, context)
        return Message(content, reply_to=message)
    told = MetricRecord({"num-examples": num_examples, **metrics})
    return Message(RecordDict({"metrics": told}), reply_to=message)


def _folder(client: PosteriorClient[Any, Any], config: dict[str, Any]) -> Path:
    """Return where a client keeps what lasts of the run."""
    return client.memory(Instructions.from_config(config)).folder


def _check_open(
    context: Context, config: dict[str, Any], asked: secure_client.Asked | None, *, secure: bool
) -> None:
    """Refuse to send single numbers in a run that is said to sum them, or if the site forbids it.

    Who trains without a report sends nothing.
    """
    if asked is not None or not config.get("report", True):
        return
    if secure:
        raise Refused(
            "this run aggregates securely, and the server asks for this client's own numbers"
        )
    secure_client.check_secure(context.node_config, secure=False)
