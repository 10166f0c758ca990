"""Before round 1: what inputs are standardised by, from sums that all clients tell."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import numpy as np
from flwr.app import ArrayRecord, Message, MessageType
from flwr.serverapp import Grid

from fedivon_app.core.errors import BadReply, DataError, RunError, SettingsError
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.settings import AnySettings
from fedivon_app.core.standardise import ColumnSums
from fedivon_app.datasets.loading import is_standardised
from fedivon_app.server.setup import Preparation, ServerData, with_facts
from fedivon_app.strategies.messages import COLUMN_SUMS, Contents
from fedivon_app.strategies.receive import gather
from fedivon_app.strategies.replies import reason, record_of
from fedivon_app.strategies.roll_call import RollCall

log = logging.getLogger("fedivon")


@dataclass(frozen=True, eq=False)
class Agreed:
    """What the clients agreed on, and the roll call by which they were asked, if they were."""

    prepared: Preparation
    roll_call: RollCall | None = None


def agree(
    grid: Grid, settings: AnySettings, prepared: Preparation, kept: ServerData | None
) -> Agreed:
    """Return what a run starts with, with what its inputs are standardised by, if they are.

    That is what the settings say, or what was `kept` of a run that goes on, or what follows from
    the sums of all clients.
    """
    data = prepared.data
    standard = settings.data.standard or (kept.standard if kept else None)
    if standard is not None:
        missing = kept.missing if kept else {}
        known = replace(data, standard=standard, missing=missing)
        return Agreed(replace(prepared, data=known))
    if not (is_standardised(settings.data) or settings.task == "regression"):
        return Agreed(prepared)
    if is_standardised(settings.data) and len(data.shape) != 1:
        raise SettingsError(
            f"data.standardise is for tables, and inputs have shape {data.shape}: pictures are "
            "scaled by data.scaling"
        )
    contents = Contents(with_facts(settings, data))
    roll_call = RollCall(settings, prepared.architecture)
    roll_call.assemble(grid, contents(Instructions(round=0)))
    sums = ColumnSums.from_vector(_total(grid, roll_call, contents, settings))
    regression = settings.task == "regression"
    label = data.table.label if data.table else "target"
    names = [*data.features, label]
    is_number = data.is_number if is_standardised(settings.data) else np.zeros(data.shape, bool)
    try:
        standard = sums.standard(names, is_number, target=regression)
    except DataError as error:
        raise RunError(f"the clients' sums: {error}") from None
    missing = {
        name: int(count) for name, count in zip(names, sums.missing, strict=False) if count > 0
    }
    _tell(missing, sums)
    return Agreed(
        replace(prepared, data=replace(data, standard=standard, missing=missing)), roll_call
    )


def _total(
    grid: Grid, roll_call: RollCall, contents: Contents, settings: AnySettings
) -> np.ndarray:
    """Return the sum of all clients' vectors; a run does not begin without one of them."""
    content = contents(Instructions(round=0), ask=COLUMN_SUMS)
    nodes = {node.node_id: node for node in roll_call.nodes.values()}
    messages = [Message(content, node_id, MessageType.QUERY) for node_id in sorted(nodes)]
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


def _tell(missing: dict[str, int], sums: ColumnSums) -> None:
    """Log what was missing, the worst first."""
    if not missing:
        return
    worst = sorted(missing.items(), key=lambda item: -item[1])
    told = ", ".join(f"{name} {count:,}" for name, count in worst[:5])
    more = f" and {len(worst) - 5} more columns" if len(worst) > 5 else ""
    log.info("missing values in %d rows, taken for the mean: %s%s", int(sums.rows), told, more)
