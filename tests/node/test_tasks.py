"""A message is answered, whatever becomes of the ClientApp that is to answer it."""

import importlib

import pytest
from flwr.app import Array, ArrayRecord, Error, Message, RecordDict
from flwr.common.constant import ErrorCode, Status, SubStatus
from flwr.supercore.constant import TaskType
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.supernode.nodestate import NodeStateFactory

from fedivon_app.node import tasks as tasks_module
from fedivon_app.node.flower import LOOP
from fedivon_app.node.orders import Gone
from fedivon_app.node.site_guard import SiteGuard
from fedivon_app.node.supernode import replace_waits
from fedivon_app.node.tasks import RuntimeApi, Tasks

RUN = 1  # as in conftest.py
insert = importlib.import_module(LOOP)._insert_message


class Warm:
    """In place of a warm process: `app` plays the ClientApp, and returns how its process ends."""

    def __init__(self, app, complaint=""):
        self.app = app
        self.text = complaint
        self.starts = 0
        self.there = True
        self.orders = []
        self._gone = []

    def alive(self):
        return self.there

    def start(self):
        self.starts += 1
        self.there = True

    def close(self):
        self.there = False

    def complaint(self):
        return self.text

    def order(self, order):
        self.orders.append(order)
        status = self.app(order)
        if status is not None:
            self._gone.append(Gone(order.task, status))

    def news(self, seconds):
        gone, self._gone = self._gone, []
        return gone


class Node:
    """A node's state with one message in it that has arrived, and its task."""

    def __init__(self, monkeypatch, tmp_path, kind=TaskType.CLIENT_APP):
        monkeypatch.setattr(tasks_module, "install_from_fab", lambda content, skip_prompt: tmp_path)
        self.place = tmp_path
        self.config = {}  # of the node
        self.state = NodeStateFactory(ObjectStoreFactory()).state()
        self.store = self.state.object_store
        run = Run.create_empty(RUN)
        run.fab_id, run.fab_version, run.fab_hash = "fedivon/fedivon", "0.1.0", "abc"
        self.state.store_run(run)
        monkeypatch.setattr(self.state, "get_fab", lambda fab_hash: Fab("abc", b"", {}))
        self.task = self.state.create_task(task_type=kind, run_id=RUN, fab_hash="abc")
        self.message = Message(RecordDict(), 5, "train")
        insert(self.message, self.state, self.store)

    def tasks(self, warm):
        guard = SiteGuard({"state-path": str(self.place), **self.config})
        return Tasks(self.state, warm, RuntimeApi("127.0.0.1:9094", False, None), guard)

    def reply(self):
        """A ClientApp's reply to the message."""
        arrays = ArrayRecord({"mean": Array(shape=(1,), dtype="u1", stype="numpy", data=b"x")})
        return Message(RecordDict({"posterior": arrays}), reply_to=self.message)

    def finish(self, sub_status=SubStatus.COMPLETED):
        self.state.activate_task(self.task)
        assert self.state.finish_task(self.task, sub_status, "")

    def replies(self):
        return list(self.state.get_messages_legacy(is_reply=True))

    def error(self):
        """The error that is the only reply, with its objects."""
        (reply,) = self.replies()
        assert self.store.get(reply.metadata.message_id)
        assert reply.metadata.reply_to_message_id == self.message.metadata.message_id
        assert reply.error.code == ErrorCode.CLIENT_APP_CRASHED
        (task,) = self.state.get_tasks(task_ids=[self.task])
        assert task.status.status == Status.FINISHED
        return reply.error.reason


@pytest.fixture
def node(monkeypatch, tmp_path):
    return Node(monkeypatch, tmp_path)


def test_a_reply_is_there_when_flowers_loop_looks_for_it(node):
    def app(order):
        insert(node.reply(), node.state, node.store)
        node.finish()

    warm = Warm(app)
    node.tasks(warm).see_through(node.message)
    (reply,) = node.replies()
    assert not reply.has_error()
    (order,) = warm.orders
    assert (order.task, order.bundle, order.app) == (node.task, "abc", "fedivon/fedivon")
    assert (order.address, order.secure) == ("127.0.0.1:9094", False)


def test_an_app_that_raises_answers_for_itself(node):
    def app(order):
        error = Message(Error(2, "the scale is broken"), reply_to=node.message)
        insert(error, node.state, node.store)
        node.finish(SubStatus.FAILED)
        return 1

    node.tasks(Warm(app)).see_through(node.message)
    (reply,) = node.replies()
    assert (reply.error.code, reply.error.reason) == (2, "the scale is broken")


def test_a_process_that_is_killed_is_answered_for(node):
    node.tasks(Warm(lambda order: -9)).see_through(node.message)
    assert node.error() == "its process was ended by SIGKILL"


def test_a_reply_counts_only_with_the_word_that_the_app_is_done(node):
    """Its process died in between, so that what it keeps has not come."""

    def app(order):
        node.state.activate_task(node.task)
        insert(node.reply(), node.state, node.store)
        return -11

    before = len(node.store)
    node.tasks(Warm(app)).see_through(node.message)
    assert node.error() == "its process was ended by SIGSEGV"
    assert len(node.store) <= before  # nothing is left of the reply


def test_a_reply_whose_objects_have_not_all_come_is_none(node):
    def app(order):
        reply = node.reply()
        reply.metadata.__dict__["_message_id"] = reply.object_id
        node.state.store_message(reply)
        node.store.preregister(RUN, get_object_tree(reply))
        node.finish()

    node.tasks(Warm(app)).see_through(node.message)
    assert node.error() == "its reply did not come to its end"


def test_an_app_that_ends_without_a_reply_is_answered_for(node):
    node.tasks(Warm(lambda order: node.finish(SubStatus.FAILED))).see_through(node.message)
    assert node.error() == "it ended without a reply"


def test_the_death_of_the_warm_process_is_answered_for_and_another_is_started(node):
    warm = Warm(lambda order: warm.close())
    tasks = node.tasks(warm)
    tasks.see_through(node.message)
    assert node.error() == "the warm process that it came from is gone"
    tasks.look_after()
    assert warm.alive() and warm.starts == 1
    tasks.look_after()
    assert warm.starts == 1


def test_a_warm_process_of_no_use_is_answered_for(node):
    node.tasks(Warm(None, complaint="it has 3 threads")).see_through(node.message)
    assert node.error() == "its process could not be started: it has 3 threads"


def test_a_process_that_never_begins_is_answered_for(node, monkeypatch):
    """Flower makes such a task one that waits again."""

    def app(order):
        node.state.task_token_store.clear()
        node.state.task_store[node.task].status.status = Status.PENDING

    warm = Warm(app)
    node.tasks(warm).see_through(node.message)
    assert node.error() == "its process did not begin in time" and not warm.alive()


def test_a_bundle_that_cannot_be_unpacked_is_answered_for(node, monkeypatch):
    def broken(content, skip_prompt):
        raise ValueError("File hashes couldn't be verified.")

    monkeypatch.setattr(tasks_module, "install_from_fab", broken)
    warm = Warm(None)
    node.tasks(warm).see_through(node.message)
    assert node.error() == "its bundle cannot be unpacked: File hashes couldn't be verified."
    assert not warm.orders


def test_what_is_no_client_app_is_refused(monkeypatch, tmp_path):
    node = Node(monkeypatch, tmp_path, TaskType.AGENT_APP)
    node.tasks(Warm(None)).see_through(node.message)
    assert "runs ClientApps alone" in node.replies()[0].error.reason


def test_flowers_loop_sees_each_message_through_before_it_looks_for_the_reply(node):
    events = []

    class Loop:
        """In place of the module of Flower's loop."""

        @staticmethod
        def _pull_and_store_message(*, receive, state):
            found = receive()
            events.append(("stored", found[0] if found else None))
            return RUN if found else None

        @staticmethod
        def _push_messages(*, state):
            events.append(("pushed", state))

        @staticmethod
        def pull_objects(ids, initial_backoff=1):
            return initial_backoff

    class Told:
        def see_through(self, message):
            events.append(("seen through", message))

        def look_after(self):
            events.append(("looked after", None))

    loop = Loop()
    replace_waits(loop, Told())
    assert loop._pull_and_store_message(receive=lambda: None, state=1) is None
    loop.time.sleep(0)
    assert loop._pull_and_store_message(receive=lambda: ("a message", None), state=1) == RUN
    loop._push_messages(state=1)
    assert events == [
        ("stored", None),
        ("looked after", None),
        ("stored", "a message"),
        ("seen through", "a message"),
        ("pushed", 1),
    ]
    assert loop.pull_objects([]) < 0.1
