"""One message, seen through: its task is claimed, ordered, and answered for if it dies."""

from __future__ import annotations

import json
import signal
from contextlib import suppress
from dataclasses import dataclass
from logging import ERROR, WARN
from pathlib import Path

from flwr.app import Error, Message
from flwr.cli.install import install_from_fab
from flwr.common.constant import ErrorCode, Status, SubStatus
from flwr.proto.task_pb2 import Task
from flwr.supercore import log
from flwr.supercore.constant import TaskType
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.object_store import ObjectStore
from flwr.supernode.nodestate import NodeState
from flwr.supernode.start_client_internal import _insert_message

from fedivon_app.node.orders import Order
from fedivon_app.node.site_guard import (
    FAILED,
    REFUSED,
    SENT,
    Asked,
    SiteGuard,
    leaving,
    settings_in,
)
from fedivon_app.node.warm import WarmProcess

REPLY_WAIT = 0.01  # seconds between two looks for a reply


@dataclass(frozen=True)
class RuntimeApi:
    """Where a ClientApp finds its node."""

    address: str
    secure: bool
    ca: str | None


class Tasks:
    """The tasks of a node, which are done one at a time."""

    def __init__(self, state: NodeState, warm: WarmProcess, api: RuntimeApi, guard: SiteGuard):
        self._state = state
        self._warm = warm
        self._api = api
        self._guard = guard
        self._installed: dict[str, Path] = {}  # where bundles are, by their hashes

    @property
    def _store(self) -> ObjectStore:
        return self._state.object_store

    def look_after(self) -> None:
        """Replace a warm process that is gone."""
        if not self._warm.alive():
            log(WARN, "The warm process of this node is gone; another one is started.")
            self._warm.start()

    def see_through(self, message: Message) -> None:
        """Have a message that has arrived, with its objects, answered; return when it is.

        A reply counts when its objects are all there and the ClientApp has said that it is done,
        with the context that it keeps. Otherwise there is an error in its place. What leaves, and
        what was refused, is in the site's audit log before it goes.
        """
        run_id = message.metadata.run_id
        pending = self._state.get_tasks(run_ids=[run_id], statuses=[Status.PENDING])
        for task in pending:  # none where Flower has refused the bundle, and answered for it
            asked = self._asked(task, message)
            refusal = self._refusal(task, asked)
            if why := refusal or self._attempt(task) or self._unanswered(run_id):
                log(ERROR, "An error is sent in place of the ClientApp's reply: %s.", why)
                self._state.finish_task(task.task_id, SubStatus.FAILED, why)
                self._answer(message, why)
                self._guard.note(REFUSED if refusal else FAILED, asked, why=why)
            else:
                self._note_replies(run_id, asked)

    def _asked(self, task: Task, message: Message) -> Asked:
        """Return what a message that has arrived asks for."""
        values = settings_in(self._store, message.metadata.message_id)
        settings = None
        with suppress(ValueError):
            settings = json.loads(values.get("settings", ""))
        return Asked(
            run=task.run_id,
            bundle=task.fab_hash,
            kind=message.metadata.message_type,
            round=values.get("round"),
            settings=settings if isinstance(settings, dict) else None,
        )

    def _refusal(self, task: Task, asked: Asked) -> str:
        """Return why a task is not to be carried out, or nothing.

        This is asked when the message and the bundle have arrived, and before any line of the
        bundle is executed.
        """
        if task.type != TaskType.CLIENT_APP:
            return f"this node runs ClientApps alone, and the task is a {task.type}"
        fab = self._state.get_fab(task.fab_hash)
        run = self._state.get_run(task.run_id)
        if fab is None or run is None:
            return "its bundle has not come"
        return self._guard.refusal(asked, fab.content, run.override_config)

    def _note_replies(self, run_id: int, asked: Asked) -> None:
        """Have what is about to leave in the audit log."""
        for reply in self._take_replies(run_id):
            self._guard.note(SENT, asked, **leaving(self._store, reply.metadata.message_id))
            self._state.store_message(reply)

    def _attempt(self, task: Task) -> str:
        """Have a ClientApp do a task, and wait for its end; return why it did not end well."""
        if complaint := self._install(task.fab_hash):
            return f"its bundle cannot be unpacked: {complaint}"
        self.look_after()
        if complaint := self._warm.complaint():
            self._warm.close()
            return f"its process could not be started: {complaint}"
        order = self._claim(task)
        if order is None:
            return "its task was taken by somebody else"
        self._warm.order(order)
        return self._await_end(task)

    def _await_end(self, task: Task) -> str:
        """Wait until a ClientApp has said that its task is done; return why it never will."""
        while True:
            news = self._warm.news(REPLY_WAIT)
            (now,) = self._state.get_tasks(task_ids=[task.task_id])
            if now.status.status == Status.FINISHED:
                return ""
            if now.status.status == Status.PENDING:  # again, as Flower has it after half a minute
                self._warm.close()
                return "its process did not begin in time"
            for gone in news:
                if gone.task == task.task_id:
                    return f"its process {_ending(gone.status)}"
            if not self._warm.alive():
                return "the warm process that it came from is gone"

    def _install(self, bundle: str) -> str:
        """Unpack a bundle, unless it is there; return what keeps from it, or nothing.

        No line of the bundle is executed by this.
        """
        if bundle in self._installed and self._installed[bundle].exists():
            return ""
        fab = self._state.get_fab(bundle)
        if fab is None:
            return "it has not come"
        try:
            self._installed[bundle] = install_from_fab(fab.content, skip_prompt=True)
        except Exception as error:
            return str(error)
        return ""

    def _claim(self, task: Task) -> Order | None:
        """Claim a task, as a SuperExec would; return None if somebody else has."""
        run = self._state.get_run(task.run_id)
        token = self._state.claim_task(task.task_id)
        if run is None or token is None:
            return None
        return Order(
            task=task.task_id,
            token=token,
            app=run.fab_id,
            version=run.fab_version,
            bundle=task.fab_hash,
            address=self._api.address,
            secure=self._api.secure,
            ca=self._api.ca,
            secluded=not self._guard.network,
        )

    def _unanswered(self, run_id: int) -> str:
        """Return what is wrong with the reply that a ClientApp has left, or nothing."""
        replies = self._take_replies(run_id)
        for reply in replies:
            self._state.store_message(reply)  # again, for what was looked at counts as fetched
            tree = self._store.get_object_tree(reply.metadata.message_id)
            if not all(self._store.get(one.object_id) for one in iterate_object_tree(tree)):
                return "its reply did not come to its end"
        return "" if replies else "it ended without a reply"

    def _take_replies(self, run_id: int) -> list[Message]:
        """Take the replies of a run out of the state."""
        replies = list(self._state.get_messages_legacy(run_ids=[run_id], is_reply=True))
        self._state.delete_messages(message_ids=[one.metadata.message_id for one in replies])
        return replies

    def _answer(self, message: Message, why: str) -> None:
        """Put an error in the place of what a ClientApp has left of its reply."""
        message_id = message.metadata.message_id
        for reply in self._take_replies(message.metadata.run_id):
            self._store.delete(reply.metadata.message_id)
        self._store.delete(message_id)
        self._state.record_message_processing_start(message_id)
        self._state.record_message_processing_end(message_id)
        error = Message(Error(ErrorCode.CLIENT_APP_CRASHED, why), reply_to=message)
        _insert_message(error, self._state, self._store)


def _ending(status: int) -> str:
    """Return in words how a process ended."""
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended with status {status}"
