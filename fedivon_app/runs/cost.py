"""What a run will send, as far as that can be told before it starts."""

from __future__ import annotations

from fedivon_app.core.errors import UserError
from fedivon_app.core.settings import AnySettings
from fedivon_app.core.text import data_size
from fedivon_app.methods import method
from fedivon_app.plurals import counted
from fedivon_app.server.setup import prepare

FLOAT = 4  # bytes


def reporting(settings: AnySettings) -> int:
    """Return how many clients report in a round."""
    return settings.clients_per_round or settings.data.clients or 2


def payload_bytes(settings: AnySettings) -> float:
    """Return the bytes that the server sends to a client in the first round."""
    prepared = prepare(settings)
    strategy = method(settings.strategy).strategy(settings, prepared.architecture)
    first = strategy.begin(prepared.flat.mean(), prepared.flat.buffers)
    mean = first.posterior.mean
    vectors = 1 if first.posterior.precision is None else 2
    extras = sum(array.nbytes for array in first.extras.values())
    return float(FLOAT * len(mean) * vectors + extras)


def prospect(settings: AnySettings, done: int = 0) -> str:
    """Return what a run is about to do, in one line: rounds, clients, bytes.

    `done` are rounds of it that were made before. Where the data are not here, the bytes are not
    known.
    """
    rounds = settings.rounds - done
    more = "more " if done else ""
    told = [counted(rounds, f"{more}round")]
    known = settings.data.clients
    sampled = settings.clients_per_round
    if known and sampled and sampled < known:
        told.append(f"{sampled} of {counted(known, 'client')} in each")
    elif known:
        told.append(f"{counted(known, 'client')} in each")
    if known or sampled:
        try:
            a_round = 2 * payload_bytes(settings) * reporting(settings)
        except (UserError, OSError):  # the data are the server's
            return ", ".join(told)
        most = "at most " if settings.wire.codec != "raw" else "about "
        told.append(
            f"{most}{data_size(a_round)} a round and {data_size(rounds * a_round)} in all, "
            "up and down"
        )
    return ", ".join(told)
