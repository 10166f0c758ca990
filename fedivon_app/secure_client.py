"""A site's half of secure aggregation, between Flower's messages and core/secure.

What it keeps from one message of a sum to the next is in Flower's state, which is in the node's
memory: after a restart of the node it is gone, and the site counts as one that dropped out.
Simulated clients, which any node may play, keep it on disk. That a round was answered is on disk as
well, for training is deterministic: who had two sums over a round, with and without a site, would
have the site's own vector.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

from fedivon_app.clients.base import PosteriorClient
from fedivon_app.core.client_scores import from_metrics
from fedivon_app.core.codec import Payload
from fedivon_app.core.errors import Refused, RunError, SettingsError
from fedivon_app.core.files import default_state_root, written_aside
from fedivon_app.core.network import Architecture
from fedivon_app.core.scores import chosen_scores
from fedivon_app.core.secure import site, tallies
from fedivon_app.core.secure.fixed_point import Layout
from fedivon_app.core.secure.messages import (
    Advertised,
    Boxes,
    Masked,
    Roster,
    Session,
    Shared,
    Survivors,
    Value,
)
from fedivon_app.core.secure.signing import read_signer, read_verifiers
from fedivon_app.core.secure.site import SMALLEST_COHORT, Conditions
from fedivon_app.datasets.loading import classes
from fedivon_app.methods import method
from fedivon_app.strategies.secure_parts import TrainingSum
from fedivon_app.strategies.secure_sum import NARROW, SECURE, VECTOR, WIDE

KEPT = "secure-sum"  # in Flower's state
ANSWERED = "secure-rounds.json"  # in the folder of what a client keeps in a run
V = TypeVar("V", bound=Value)


@dataclass(frozen=True, eq=False)
class Told:
    """What a client would tell of its training in the open."""

    payload: Payload
    num_examples: int
    metrics: Mapping[str, Any]


@dataclass(frozen=True)
class Asked:
    """What a message asks of a site for a secure sum."""

    stage: str
    session: Session
    body: str
    largest: int = 0
    client_state: str | None = None  # where simulated clients keep things

    @classmethod
    def of(cls, message: Message) -> Asked | None:
        """Return what a message asks, or None for one that belongs to no secure sum."""
        record = message.content.get(SECURE)
        if not isinstance(record, ConfigRecord):
            return None
        return cls(
            stage=str(record["stage"]),
            session=Session.from_json(str(record["session"])),
            body=str(record["body"]),
            largest=int(str(record.get("largest", 0))),
            client_state=str(record["client-state"]) if "client-state" in record else None,
        )


def answer(asked: Asked, message: Message, context: Context) -> Message:
    """Answer a message that only the sum itself needs: keys, shares or unmask."""
    conditions = conditions_of(context.node_config)
    answers: dict[str, Callable[[], Value]] = {
        "keys": lambda: _keys(asked, context, conditions),
        "shares": lambda: _shares(asked, context, conditions),
        "unmask": lambda: _unmask(asked, context, conditions),
    }
    if asked.stage not in answers:
        raise Refused(f"there is no stage {asked.stage!r} of a secure sum")
    body = answers[asked.stage]()
    content = RecordDict({SECURE: ConfigRecord({"body": body.to_json()})})
    return Message(content, reply_to=message)


def opened(asked: Asked | None, context: Context, folder: Path) -> Shared | None:
    """Return what this site kept of the sum for which a vector is asked, or None for no such sum.

    `folder` is where the client keeps what lasts of the run. From here on the round is answered,
    whatever comes of it.
    """
    if asked is None:
        return None
    own = _taken(asked, context, Shared)
    note_answered(folder, asked.session)
    return own


def masked(
    asked: Asked,
    own: Shared,
    layout: Layout,
    values: Mapping[str, np.ndarray],
    context: Context,
) -> RecordDict:
    """Return a masked vector as it is sent."""
    boxes = Boxes.from_json(asked.body)
    conditions = conditions_of(context.node_config)
    after, words = site.mask(own, boxes, layout.encode(values), conditions)
    _keep(asked, context, after)
    arrays = {NARROW: Array(words.narrow), WIDE: Array(words.wide)}
    return RecordDict({VECTOR: ArrayRecord(arrays)})


def training_part(
    asked: Asked, client: PosteriorClient[Any, Any], start: Payload, learned: Told, clients: int
) -> tuple[Layout, Mapping[str, np.ndarray]]:
    """Return the layout of a sum over so many clients, and what this one learned as its part."""
    if fault := learned.payload.fault():
        raise RunError(f"what this client learned cannot be summed: {fault}")
    settings = client.settings
    source = client.partition.source
    architecture = Architecture(source.shape, classes(settings.data, source), client.flat.slices)
    strategy = method(settings.strategy).strategy(settings, architecture)
    what = TrainingSum(strategy, start, asked.largest)
    part = what.part(learned.payload, learned.num_examples, learned.metrics)
    return what.layout(clients), part


def scores_part(
    client: PosteriorClient[Any, Any], metrics: Mapping[str, Any], clients: int
) -> tuple[Layout, Mapping[str, np.ndarray]]:
    """Return the layout of the sum of so many clients' scores, and this one's part."""
    settings = client.settings
    scores = chosen_scores(settings.evaluation.scores)
    sizes = tallies.sizes_of(scores, settings.data.num_classes)
    return tallies.layout(sizes, clients), tallies.part(from_metrics(metrics), sizes)


def check_secure(node: Mapping[str, Any], *, secure: bool) -> None:
    """Refuse to send anything that is no part of a secure sum, where the node config asks for it.

    That is so where it has a `smallest-cohort`: a reply in the open is a sum over one site.
    """
    if not secure and "smallest-cohort" in node:
        raise Refused(
            f"this site takes part in sums over at least {node['smallest-cohort']} sites alone "
            "(`smallest-cohort` in its node config), and this run would send its own numbers in "
            "the open: set privacy.secure_aggregation=true"
        )


def conditions_of(node: Mapping[str, Any]) -> Conditions:
    """Return on which conditions a site takes part, as its node config says.

    `smallest-cohort` is the fewest sites of a sum, `signing-key` the file of the site's private
    key, and `site-keys` the folder with the public keys of the sites that it works with.
    """
    smallest = node.get("smallest-cohort", SMALLEST_COHORT)
    if not isinstance(smallest, int) or smallest < SMALLEST_COHORT:
        raise SettingsError(
            f"smallest-cohort in the node config is {smallest!r}, not a whole number of at least "
            f"{SMALLEST_COHORT}: in a sum over two, each knows the other's part"
        )
    signer = node.get("signing-key")
    keys = node.get("site-keys")
    return Conditions(
        smallest_cohort=smallest,
        signer=read_signer(Path(str(signer)).expanduser()) if signer else None,
        verifiers=read_verifiers(Path(str(keys)).expanduser()) if keys else None,
    )


def note_answered(folder: Path, session: Session) -> None:
    """Note on disk that a round is answered; one that was answered before is refused."""
    path = folder / ANSWERED
    try:
        known = json.loads(path.read_text()) if path.is_file() else {}
    except ValueError:
        raise Refused(f"{path} cannot be read, so that nobody knows what was answered") from None
    if session.round <= known.get(session.what, 0):
        raise Refused(
            f"{session} was answered before: with two sums over one round, a single site's part "
            "could be known; the run goes on with the next round"
        )
    with written_aside(path, sync=True) as aside:
        Path(aside).write_text(json.dumps(known | {session.what: session.round}))


def _keys(asked: Asked, context: Context, conditions: Conditions) -> Value:
    after = site.advertise(asked.session, _number(context), conditions)
    _keep(asked, context, after)
    return after.public


def _shares(asked: Asked, context: Context, conditions: Conditions) -> Value:
    own = _taken(asked, context, Advertised)
    after, boxes = site.share(own, Roster.from_json(asked.body), conditions)
    _keep(asked, context, after)
    return boxes


def _unmask(asked: Asked, context: Context, conditions: Conditions) -> Value:
    own = _taken(asked, context, Masked)
    return site.unmask(own, Survivors.from_json(asked.body).numbers, conditions)


def _number(context: Context) -> int:
    return int(str(context.node_config.get("partition-id", 0)))


def _file(asked: Asked, context: Context) -> Path | None:
    """Return where a simulated client keeps its part of a sum; None for a site.

    Of a simulated client nothing is known but its number.
    """
    if set(context.node_config) - {"partition-id", "num-partitions"}:
        return None
    shared = asked.client_state
    root = Path(shared) if shared else default_state_root() / asked.session.run
    return root / f"partition-{_number(context)}" / f"{KEPT}.json"


def _keep(asked: Asked, context: Context, value: Value) -> None:
    if (path := _file(asked, context)) is None:
        context.state[KEPT] = ConfigRecord({"value": value.to_json()})
        return
    with written_aside(path) as aside:
        Path(aside).write_text(value.to_json())


def _taken(asked: Asked, context: Context, kind: type[V]) -> V:
    """Return what this site kept of a sum, which it has no longer after that.

    So nothing can be asked twice, whatever comes of it.
    """
    session = asked.session
    if (path := _file(asked, context)) is None:
        kept = context.state.get(KEPT)
        text = str(kept.get("value", "")) if isinstance(kept, ConfigRecord) else ""
        context.state[KEPT] = ConfigRecord({"value": ""})
    else:
        text = path.read_text() if path.is_file() else ""
        path.unlink(missing_ok=True)
    try:
        value = kind.from_json(text)
    except ValueError:
        raise Refused(
            f"{session}: this site is not at this stage of the sum; it answers each stage once, in "
            "their order, and forgets all of them when its node restarts"
        ) from None
    if value.session != session:  # type: ignore[attr-defined]
        raise Refused(f"{session}: this site is in the midst of another sum")
    return value
