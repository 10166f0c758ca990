"""The names of flwr 1.41 that `fedivon node` rests on, and the way back to the stock node."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

BIN = Path(sys.executable).parent
MAIN = "flwr.supernode.cli.flower_supernode"
LOOP = "flwr.supernode.start_client_internal"
STATE = "flwr.supernode.nodestate"
STORE = "flwr.supercore.object_store"
CLIENT_APP = "flwr.supernode.runtime.run_clientapp"
EXIT = "flwr.supercore.exit.exit_handler"
WORDS_OF_START = (  # those that are read here, of all that the loop is started with
    "state_factory",
    "isolation",
    "runtime_api_address",
    "runtime_certificates",
    "runtime_root_certificates_path",
    "runtime_dependency_install",
)
WORDS_OF_PULL = (
    "state",
    "object_store",
    "node_config",
    "receive",
    "get_run",
    "get_fab",
    "pull_object",
    "confirm_message_received",
    "trusted_entities",
)


@dataclass(frozen=True)
class Name:
    """Something in flwr, by its module and its name there.

    A function takes these parameters; with `more` there may be others beside them. None is for what
    is no function.
    """

    module: str
    name: str
    parameters: tuple[str, ...] | None = None
    more: bool = False

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"

    def complaint(self) -> str:
        """Return what is not as expected, or nothing."""
        try:
            found: Any = reduce(getattr, self.name.split("."), import_module(self.module))
        except (ImportError, AttributeError):
            return f"flwr has no {self}"
        if self.parameters is None:
            return ""
        try:
            given = tuple(inspect.signature(found).parameters)
        except (TypeError, ValueError):
            return f"{self} is no function"
        if self.more:
            given = tuple(name for name in given if name in self.parameters)
        if sorted(given) != sorted(self.parameters):
            return f"{self} does not take ({', '.join(self.parameters)})"
        return ""


IN_NODE = (
    Name(MAIN, "flower_supernode", ()),
    Name(MAIN, "start_client_internal", WORDS_OF_START, more=True),
    Name(LOOP, "time.sleep"),
    Name(LOOP, "_pull_and_store_message", WORDS_OF_PULL),
    Name(LOOP, "_push_messages", ("state", "object_store", "send", "push_object")),
    Name(LOOP, "_insert_message", ("msg", "state", "store")),
    Name(LOOP, "pull_objects", ("initial_backoff",), more=True),
    Name(STATE, "NodeStateFactory.state", ("self",)),
    Name(STATE, "NodeState.object_store"),
    Name(STATE, "NodeState.get_run", ("self", "run_id")),
    Name(STATE, "NodeState.get_fab", ("self", "fab_hash")),
    Name("flwr.cli.install", "install_from_fab", ("fab_file", "skip_prompt"), more=True),
    Name(STATE, "NodeState.claim_task", ("self", "task_id")),
    Name(STATE, "NodeState.finish_task", ("self", "task_id", "sub_status", "details")),
    Name(STATE, "NodeState.get_tasks", ("self", "task_ids", "run_ids", "statuses"), more=True),
    Name(STATE, "NodeState.get_messages_legacy", ("self", "run_ids", "is_reply"), more=True),
    Name(STATE, "NodeState.store_message", ("self", "message")),
    Name(STATE, "NodeState.delete_messages", ("self", "message_ids")),
    Name(STATE, "NodeState.record_message_processing_start", ("self", "message_id")),
    Name(STATE, "NodeState.record_message_processing_end", ("self", "message_id")),
    Name(STORE, "ObjectStore.get", ("self", "object_id")),
    Name(STORE, "ObjectStore.delete", ("self", "object_id")),
    Name(STORE, "ObjectStore.get_object_tree", ("self", "object_id")),
    Name("flwr.supercore.inflatable.inflatable_object", "iterate_object_tree", ("tree",)),
    Name("flwr.supercore.address", "resolve_bind_address", ("address",)),
    Name("flwr.supercore.constant", "TaskType.CLIENT_APP"),
    Name("flwr.common.constant", "ErrorCode.CLIENT_APP_CRASHED"),
    Name("flwr.common.constant", "ISOLATION_MODE_PROCESS"),
    Name("flwr.common.constant", "ISOLATION_MODE_SUBPROCESS"),
    *(Name("flwr.common.constant", f"Status.{one}") for one in ("PENDING", "STARTING", "RUNNING")),
    Name("flwr.common.constant", "Status.FINISHED"),
    Name("flwr.common.constant", "SubStatus.FAILED"),
    Name(EXIT, "add_exit_handler", ("exit_handler",), more=True),
)
IN_CHILD = (
    Name(
        CLIENT_APP,
        "run_clientapp",
        (
            "runtime_api_address",
            "token",
            "insecure",
            "certificates",
            "parent_pid",
            "runtime_dependency_install",
        ),
    ),
    Name(CLIENT_APP, "flwr_exit", ("code", "event_type"), more=True),
    Name(CLIENT_APP, "install_from_fab", ("fab_file", "skip_prompt"), more=True),
    Name(
        "flwr.clientapp.utils",
        "get_load_client_app_fn",
        ("default_app_ref", "app_path", "multi_app"),
    ),
    Name(EXIT, "trigger_exit_handlers", ("run_before_force_exit",)),
    Name("flwr.supercore.app_utils", "start_parent_process_monitor", ("parent_pid",)),
    Name(
        "flwr.supercore.tls",
        "validate_and_resolve_root_certificates",
        ("root_cert_path", "insecure"),
    ),
)


def missing(names: Iterable[Name]) -> str:
    """Return the first complaint about these names, or nothing."""
    return next(filter(None, (name.complaint() for name in names)), "")


def run_stock(words: Sequence[str], why: str = "") -> NoReturn:
    """Become Flower's own SuperNode; what keeps this one from working is told in a line."""
    if why:
        text = f"fedivon node: {why}; Flower's own SuperNode takes over, which is slower"
        print(text, file=sys.stderr, flush=True)
    # It looks for its SuperExec on the path.
    os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    os.execv(BIN / "flower-supernode", ["flower-supernode", *words])
