"""A worker of the inline engine: a process that plays one client after the other."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch
from flwr.app import ArrayRecord, Context, Error, Message
from flwr.supercore.task_identity import TaskIdentity
from threadpoolctl import threadpool_limits

from fedivon_app import client_app

POSTERIOR = "posterior"  # the record that all messages of a batch may share
CLIENT_RAISED = 2  # Flower's code for it


@dataclass(frozen=True)
class Order:
    """A message for a client, without the posterior, which is `number` of the batch's.

    A worker is given each posterior of a batch once, as `posterior`, and forgets them all with the
    next batch.
    """

    message: Message
    context: Context
    batch: int
    number: int | None = None
    posterior: ArrayRecord | None = None


@dataclass(frozen=True)
class Done:
    """A client's reply, and what it keeps: None where nothing was ever kept."""

    reply: Message
    context: Context | None


def serve(
    pipe: Connection, threads: int, voice: Connection, inherited: Sequence[Connection] = ()
) -> None:
    """Answer the messages that come through a pipe, until it is closed.

    What the clients print goes to `voice`. What a fork has `inherited` of the grid's is closed.
    """
    for one in inherited:
        one.close()
    speak_into(voice)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started the run ends it
    become_a_task()
    torch.set_num_threads(threads)
    posteriors: dict[int, ArrayRecord] = {}
    batch = -1
    with threadpool_limits(threads), suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            order: Order = pipe.recv()
            if order.batch != batch:
                posteriors.clear()
                batch = order.batch
            if order.number is not None:
                if order.posterior is not None:
                    posteriors[order.number] = order.posterior
                order.message.content[POSTERIOR] = posteriors[order.number]
            pipe.send(answer(order.message, order.context))


def answer(message: Message, context: Context) -> Done:
    """Return the client's reply; one that raises is answered for, as Flower does it."""
    try:
        reply = client_app.app(message, context)
    except Exception as error:
        words = f"Exception {type(error).__name__} occurred. Message: {error}"
        reply = Message(Error(code=CLIENT_RAISED, reason=words), reply_to=message)
    return Done(reply, context if context.state else None)


def speak_into(voice: Connection) -> None:
    """Let all that this process prints from now on go through a pipe."""
    sys.stdout.flush()
    sys.stderr.flush()
    for stream in (sys.stdout, sys.stderr):
        os.dup2(voice.fileno(), stream.fileno())
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    voice.close()


def become_a_task() -> None:
    """Set what Flower sets in its own processes, without which no message can be made."""
    TaskIdentity.task_id = 1
    TaskIdentity.run_id = 1
    TaskIdentity.node_id = 1
