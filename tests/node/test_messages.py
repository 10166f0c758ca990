"""Messages on their way through the node: a real warm process, and Flower's own Runtime API.

There is no SuperLink: messages are put into the node's state, and replies are taken from there.
"""

import importlib
import os
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.cli.build import build_fab_from_files
from flwr.supercore.constant import TaskType
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.supernode.main import create_app
from flwr.supernode.nodestate import NodeStateFactory

from fedivon_app.federation.keys import make_keys
from fedivon_app.federation.local_federation import free_port
from fedivon_app.node.flower import LOOP
from fedivon_app.node.seclusion import obstacle
from fedivon_app.node.site_guard import SiteGuard
from fedivon_app.node.tasks import RuntimeApi, Tasks
from fedivon_app.node.warm import Mode, WarmProcess

RUN = 1  # as in conftest.py
FIRST = "0.1.0"  # the version in toy.py
TOY = (Path(__file__).parent / "toy.py").read_text()
PROJECT = """
[project]
name = "toy"
version = "{version}"
[tool.flwr.app]
publisher = "tests"
[tool.flwr.app.components]
serverapp = "toy:app"
clientapp = "toy:app"
"""
why_not = obstacle()
insert = importlib.import_module(LOOP)._insert_message


@contextmanager
def served(factory: NodeStateFactory, **options: Any):
    """Flower's Runtime API of a node's state; gives its address."""
    port = free_port()
    app = create_app(state_factory=factory)
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error", **options)
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)


class Node:
    """A node without a SuperLink."""

    def __init__(
        self, factory: NodeStateFactory, warm: WarmProcess, api: RuntimeApi, config: Any = None
    ):
        self.state = factory.state()
        self.store = self.state.object_store
        self.warm = warm
        self.tasks = Tasks(self.state, warm, api, SiteGuard(config or {}))
        self.install(FIRST)

    def install(self, version: str, line: str = "") -> None:
        """Let the run's bundle be of this version from now on, with this line at its end."""
        code = f"{TOY.replace(FIRST, version)}\n{line}\n"
        files = {
            "pyproject.toml": PROJECT.format(version=version).encode(),
            "toy.py": code.encode(),
            "README.md": b"A toy.",
            "LICENSE": b"Apache-2.0",
        }
        content, _ = build_fab_from_files(files)
        fab_hash = self.state.store_fab(Fab(sha256(content).hexdigest(), content, {}))
        run = replace(
            Run.create_empty(RUN), fab_id="tests/toy", fab_version=version, fab_hash=fab_hash
        )
        self.state.store_run(run)
        self.state.set_node_id(1)
        context = Context(run_id=RUN, node_id=1, node_config={}, state=RecordDict(), run_config={})
        self.state.set_run_series_context(run.series_id, context)
        self.hash = fab_hash

    def ask(self, what: str) -> Message:
        """Return the reply to a message that says what to do, error or not."""
        message = Message(RecordDict({"config": ConfigRecord({"do": what})}), 1, "train")
        insert(message, self.state, self.store)
        self.state.create_task(task_type=TaskType.CLIENT_APP, run_id=RUN, fab_hash=self.hash)
        self.tasks.see_through(message)
        (reply,) = self.state.get_messages_legacy(is_reply=True)
        reply_id = reply.metadata.message_id
        tree = self.store.get_object_tree(reply_id)
        ids = [one.object_id for one in iterate_object_tree(tree)]
        whole = inflate_object_from_contents(reply_id, {one: self.store.get(one) for one in ids})
        self.state.delete_messages()
        self.store.delete(reply_id)
        assert len(self.store) == 0  # nothing is left of either message
        return whole

    def told(self, what: str = "tell") -> dict[str, Any]:
        return dict(self.ask(what).content["told"])


@contextmanager
def node_of(mode: Mode, home: Path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLWR_HOME", str(home))
        patch.setenv("FLWR_TELEMETRY_ENABLED", "0")
        patch.delenv("OPENBLAS_NUM_THREADS", raising=False)
        patch.delenv("OMP_NUM_THREADS", raising=False)
        factory = NodeStateFactory(ObjectStoreFactory())
        warm = WarmProcess(mode)
        try:
            with served(factory) as address:
                yield Node(factory, warm, RuntimeApi(address, False, None))
        finally:
            warm.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with node_of(Mode.FORK, tmp_path_factory.mktemp("fork")) as started:
        yield started


def test_every_message_has_a_process_of_its_own_which_has_not_imported_the_app_itself(node):
    first, second = node.told(), node.told()
    assert (first["count"], second["count"]) == (1, 2)  # what an app keeps is there the next time
    assert first["pid"] != second["pid"] and first["random"] != second["random"]
    for told in (first, second):
        assert told["imported-by"] == told["parent"] != told["pid"]
        assert told["has-torch"] and not told["has-cuda"]
        assert told["threads-of-parents"] == [1, 1]  # where it was forked, and where that was
        assert told["own-modules"] == 0  # those of the run's bundle would be imported


def test_an_app_that_raises_answers_with_its_words_and_the_next_message_works(node):
    assert "the scale is broken" in node.ask("raise").error.reason
    assert not node.ask("tell").has_error()


@pytest.mark.parametrize(("what", "how"), [("die", "by SIGKILL"), ("exit", "status 3")])
def test_a_process_that_dies_is_answered_for_and_the_next_message_works(node, what, how):
    reply = node.ask(what)
    assert how in reply.error.reason and reply.error.code == 8
    assert not node.ask("tell").has_error()


def test_two_versions_of_the_app_may_come_one_after_the_other(node):
    versions = []
    for version in ("0.1.0", "0.2.0", "0.1.0"):
        node.install(version)
        versions.append(node.told()["version"])
    assert versions == ["0.1.0", "0.2.0", "0.1.0"]


def test_an_app_that_starts_threads_is_imported_by_every_process_itself(node):
    """What has threads is not forked."""
    threads = "import threading\nthreading.Thread(target=time.sleep, args=(60,)).start()"
    node.install("0.3.0", threads)
    for told in (node.told(), node.told()):
        assert told["version"] == "0.3.0" and told["imported-by"] == told["pid"]
        assert told["threads-of-parents"] == [1, 1]


def test_the_death_of_the_warm_process_costs_the_message_under_way_alone(node):
    before = node.warm.pid
    assert node.ask("orphan").error.code == 8
    assert not node.ask("tell").has_error()
    assert node.warm.pid != before


def test_the_runtime_api_may_speak_tls(node, tmp_path):
    make_keys(tmp_path, ["127.0.0.1"], [])
    keys = tmp_path / "server"
    factory = NodeStateFactory(ObjectStoreFactory())
    files = {"ssl_certfile": keys / "server.crt", "ssl_keyfile": keys / "server.key"}
    with served(factory, **files) as address:
        secured = Node(factory, node.warm, RuntimeApi(address, True, str(keys / "ca.crt")))
        assert secured.told()["count"] == 1


@pytest.mark.skipif(bool(why_not), reason=f"no namespaces here: {why_not}")
def test_a_site_without_network_keeps_the_app_from_everything_but_its_node(node, tmp_path):
    factory = NodeStateFactory(ObjectStoreFactory())
    with served(factory) as address, socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert node.told(f"reach {port}")["reached"] == "yes"
        api = RuntimeApi(address, False, None)
        secluded = Node(factory, node.warm, api, {"network": False, "state-path": str(tmp_path)})
        secluded.install("0.4.0")
        assert "refused" in secluded.told(f"reach {port}")["reached"]
        assert secluded.told()["count"] == 1


def test_a_worker_that_is_kept_takes_message_after_message_of_its_bundle(tmp_path):
    with node_of(Mode.WORKER, tmp_path) as node:
        first, second = node.told(), node.told()
        assert first["pid"] == second["pid"] == first["imported-by"]
        assert (first["count"], second["count"]) == (1, 2)
        assert "the scale is broken" in node.ask("raise").error.reason
        assert node.told()["pid"] == first["pid"]
        assert "SIGKILL" in node.ask("die").error.reason
        assert node.told()["pid"] != first["pid"]
        node.install("0.2.0")
        assert node.told()["version"] == "0.2.0"
        pid = node.warm.pid
    wait_for_end(pid)


def wait_for_end(pid: int) -> None:
    """The warm process ends when its node closes the socket."""
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        ended, _ = os.waitpid(pid, os.WNOHANG)
        if ended:
            return
        time.sleep(0.05)
    pytest.fail("the warm process is still there")
