"""Before round 1: what inputs are standardised by, from sums that all clients tell."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedivon_app.core.errors import BadReply, DataError, RunError, SettingsError
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.secure import columns
from fedivon_app.core.secure.messages import Session
from fedivon_app.core.settings import AnySettings
from fedivon_app.core.standardise import ColumnSums, Standard
from fedivon_app.datasets.loading import is_standardised
from fedivon_app.server.setup import Preparation, ServerData, with_facts
from fedivon_app.strategies.messages import COLUMN_SUMS, Contents
from fedivon_app.strategies.receive import gather
from fedivon_app.strategies.replies import reason, record_of
from fedivon_app.strategies.roll_call import RollCall
from fedivon_app.strategies.secure_sum import SECURE, SecureSum

log = logging.getLogger("fedivon")
NAMED = 5  # columns at most that a line names


@dataclass(frozen=True, eq=False)
class Agreed:
    """What the clients agreed on, and the roll call by which they were asked, if they were."""

    prepared: Preparation
    roll_call: RollCall | None = None


def agree(
    grid: Grid,
    settings: AnySettings,
    prepared: Preparation,
    kept: ServerData | None,
    folder: Path,
) -> Agreed:
    """Return what a run starts with, with what its inputs are standardised by, if they are.

    That is what the settings say, or what was `kept` of a run that goes on, or what follows from
    the sums of all clients.
    """
    data = prepared.data
    standard = settings.data.standard or (kept.standard if kept else None)
    weights = kept.class_weights if kept else None
    balanced = settings.client.class_weights == "balanced"
    scaled = is_standardised(settings.data)
    check_standardising(settings, data.shape)
    regression = settings.task == "regression"
    lacking = (standard is None and (scaled or regression)) or (balanced and weights is None)
    if not lacking:
        missing = kept.missing if kept else {}
        known = replace(data, standard=standard, class_weights=weights, missing=missing)
        return Agreed(replace(prepared, data=known))
    contents = Contents(with_facts(settings, data))
    roll_call = RollCall(settings, prepared.architecture)
    roll_call.assemble(grid, contents(Instructions(round=0)))
    shared = settings.run.client_state == "run"
    told = Instructions(
        round=0, run=folder.name, client_state=str(folder / "clients") if shared else None
    )
    question = contents(told, ask=COLUMN_SUMS)
    if settings.privacy.secure_aggregation:
        size = 3 * (prod(data.shape) + regression) + data.num_classes + 1
        total = _secure_total(grid, roll_call, question, settings, run=folder.name, size=size)
    else:
        total = _total(grid, roll_call, question, settings)
    sums = ColumnSums.from_vector(total, data.num_classes)
    if standard is None and (scaled or regression):
        standard = _standard(sums, data, scaled=scaled, regression=regression)
    known = replace(
        data,
        standard=standard,
        class_weights=sums.balanced_weights if balanced else None,
        missing=_missing(sums, data),
    )
    _tell(known, sums)
    return Agreed(replace(prepared, data=known), roll_call)


def check_standardising(settings: AnySettings, shape: tuple[int, ...]) -> None:
    """Raise a SettingsError if inputs of this shape are to be standardised and cannot be."""
    standard = settings.data.standard
    if standard is not None and standard.mean:
        _check_known(standard, settings.data.scaling, shape)
    if not is_standardised(settings.data):
        return
    if len(shape) != 1 and standard is None:
        raise SettingsError(
            f"data.standardise is for tables, and inputs have shape {shape}: pictures are scaled "
            "by data.scaling, or by a mean and a deviation for each channel in data.standard"
        )
    if settings.privacy.is_private and standard is None:
        raise SettingsError(
            "privacy.epsilon is set, and sums of the columns have no noise: give means and "
            "deviations by data.standard, or leave inputs as they are (data.standardise=false)"
        )


def _check_known(standard: Standard, scaling: str, shape: tuple[int, ...]) -> None:
    """Complain of means and deviations that are not those of inputs of this shape."""
    of = "features" if len(shape) == 1 else "channels"
    if len(standard.mean) != shape[-1]:
        raise SettingsError(
            f"data.standard has {len(standard.mean)} means, and inputs of shape {shape} have "
            f"{shape[-1]} {of}: give one for each"
        )
    if len(shape) > 1 and scaling != "unit":
        raise SettingsError(
            f"data.standard is that of pixels from 0 to 1, and data.scaling is {scaling}: leave "
            "one of the two out"
        )


def _standard(sums: ColumnSums, data: ServerData, *, scaled: bool, regression: bool) -> Standard:
    """Return what the sums say of the features, if these are scaled, and of a number."""
    label = data.table.label if data.table else "target"
    size = len(sums.count) - regression
    is_number = data.is_number if scaled else np.zeros(size, bool)
    names = [*data.features, label] if len(data.shape) == 1 else [*map(str, range(size)), label]
    try:
        standard = sums.standard(names, is_number, target=regression)
        return standard if scaled else standard.model_copy(update={"mean": (), "deviation": ()})
    except DataError as error:
        raise RunError(f"the clients' sums: {error}") from None


def _missing(sums: ColumnSums, data: ServerData) -> dict[str, int]:
    """Return how many values are missing by column, of those that lack any."""
    if data.table is None:
        return {}
    found = {}
    for column in data.table.columns:
        place = data.features.index(column.features[0])
        if count := int(sums.missing[place]):
            found[column.name] = count
    return found


def _secure_total(
    grid: Grid,
    roll_call: RollCall,
    question: RecordDict,
    settings: AnySettings,
    *,
    run: str,
    size: int,
) -> np.ndarray:
    """Return the same sum by secure aggregation: no client's own vector is seen."""
    nodes = roll_call.nodes
    session = Session(run=run, round=1, what="columns")
    now = SecureSum(grid, session, list(nodes.values()), settings.server)
    now.begin()
    messages = []
    for partition in now.boxes:
        content = RecordDict(dict(question))
        content[SECURE] = now.record(partition)
        messages.append(Message(content, nodes[partition].node_id, MessageType.QUERY))
    replies = gather(grid, messages, settings.server.round_timeout)
    summed = now.end(replies, columns.layout(size, now.clients))
    if now.dropped:
        who = ", ".join(f"{nodes[p]} ({why})" for p, why in now.dropped.items())
        raise RunError(f"no sums of columns came from {who}")
    if summed.clipped:
        raise RunError("the sums of some column are beyond 2^64: give it in a larger unit")
    return columns.read(summed.values)


def _total(
    grid: Grid, roll_call: RollCall, question: RecordDict, settings: AnySettings
) -> np.ndarray:
    """Return the sum of all clients' vectors; a run does not begin without one of them."""
    nodes = {node.node_id: node for node in roll_call.nodes.values()}
    messages = [Message(question, node_id, MessageType.QUERY) for node_id in sorted(nodes)]
    vectors: dict[int, np.ndarray] = {}
    for reply in gather(grid, messages, settings.server.round_timeout):
        node = nodes.get(reply.metadata.src_node_id)
        if node is None:
            continue
        if reply.has_error():
            raise RunError(f"{node} cannot tell the sums of its columns: {reason(reply)}")
        try:
            vectors[node.partition] = record_of(reply, "sums", ArrayRecord)["sums"].numpy()
        except (BadReply, KeyError) as error:
            raise RunError(f"{node} told no sums of its columns: {error}") from None
    if silent := [str(node) for node in nodes.values() if node.partition not in vectors]:
        raise RunError(f"no sums of columns came from {', '.join(silent)}")
    shapes = {vector.shape for vector in vectors.values()}
    total: np.ndarray = np.sum([vectors[p] for p in sorted(vectors)], axis=0)
    if len(shapes) > 1 or not np.isfinite(total).all():
        raise RunError(f"the clients' sums of columns do not fit together: {sorted(shapes)}")
    return total


def _tell(known: ServerData, sums: ColumnSums) -> None:
    """Log what was missing, the worst first, and how much the classes count."""
    worst = sorted(known.missing.items(), key=lambda item: -item[1])
    if worst:
        told = ", ".join(f"{name} {count:,}" for name, count in worst[:NAMED])
        more = f" and {len(worst) - NAMED} more columns" if len(worst) > NAMED else ""
        log.info(
            "missing values among %d rows, replaced by the mean: %s%s", int(sums.rows), told, more
        )
    if known.class_weights is not None:
        log.info("class weights %s", ", ".join(f"{one:.3g}" for one in known.class_weights))
