"""The node: Flower's SuperNode, with three names of its loop replaced while it runs."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from logging import INFO
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from fedivon_app.core.errors import SettingsError
from fedivon_app.node.flower import IN_NODE, LOOP, MAIN, missing, run_stock
from fedivon_app.node.seclusion import obstacle
from fedivon_app.node.waits import Clock
from fedivon_app.node.warm import Mode, WarmProcess

if TYPE_CHECKING:  # flwr is imported while the warm process starts, and not before
    from flwr.app import Message

    from fedivon_app.node.tasks import Tasks

TRUST_PATH = "trust-path"  # the key of a node config that names the file of what a site runs
NO_NETWORK = re.compile(r"\bnetwork\s*=\s*false")  # as it stands in the words of a node config
UNGUARDED = (
    f"the node config has {TRUST_PATH} or network=false, by which a site checks bundles before "
    "they run, or keeps them from the network: Flower's own SuperNode and SuperExec cannot do "
    "that, so that the node does not start"
)
OBJECTS_WAIT = 0.05  # seconds after which objects that were not there are asked for again


def mode_of(text: str) -> Mode:
    """Return what FEDIVON_NODE asks for; it is `fork` where it is empty."""
    try:
        return Mode(text or Mode.FORK)
    except ValueError:
        known = ", ".join(Mode)
        raise SettingsError(f"FEDIVON_NODE is {text!r}; it is one of {known}") from None


def run_node(words: Sequence[str], mode: Mode) -> None:
    """Run a SuperNode with these words of `flower-supernode`, until it is told to end."""
    if mode is Mode.STOCK:
        become_stock(words)
    leave_signals_to_flower()
    warm = WarmProcess(mode)  # its imports go on beside those of this process
    if complaint := missing(IN_NODE):
        warm.close()
        become_stock(words, complaint)
    if complaint := warm.complaint():
        warm.close()
        become_stock(words, f"the warm process is of no use, for {complaint}")
    main = import_module(MAIN)
    start = partial(_start, main.start_client_internal, warm)
    setattr(main, "start_client_internal", start)  # noqa: B010
    sys.argv = ["flower-supernode", *words]
    main.flower_supernode()


def become_stock(words: Sequence[str], why: str = "") -> NoReturn:
    """Become Flower's own SuperNode, unless the site has a list of what it runs."""
    if any(TRUST_PATH in word or NO_NETWORK.search(word) for word in words):
        raise SettingsError(f"{why}; {UNGUARDED}" if why else UNGUARDED)
    run_stock(words, why)


def leave_signals_to_flower() -> None:
    """Undo what `fedivon` does about signals: Flower's node ends in order by itself."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def _start(stock: Callable[..., None], warm: WarmProcess, **words: Any) -> None:
    """Start Flower's loop such that tasks go to the warm process, and there is no SuperExec.

    Where somebody wants a SuperExec of their own, or an app's packages installed for every run,
    the loop is Flower's as it is.
    """
    from flwr.common.constant import ISOLATION_MODE_PROCESS, ISOLATION_MODE_SUBPROCESS
    from flwr.supercore import log
    from flwr.supercore.address import resolve_bind_address
    from flwr.supercore.exit.exit_handler import add_exit_handler

    from fedivon_app.node.site_guard import SiteGuard
    from fedivon_app.node.tasks import RuntimeApi, Tasks

    node_config = words["node_config"]
    secluded = node_config.get("network") is False
    if words["isolation"] != ISOLATION_MODE_SUBPROCESS or words["runtime_dependency_install"]:
        if TRUST_PATH in node_config or secluded:
            warm.close()
            raise SettingsError(UNGUARDED)
        log(INFO, "ClientApps are started by Flower's own SuperExec, as the options ask for.")
        warm.close()
        stock(**words)
        return
    if secluded and (why := obstacle()):
        warm.close()
        raise SettingsError(
            f"the node config has network=false, and this machine cannot keep it: {why}; see the "
            "site's own word in docs/privacy.md"
        )
    api = RuntimeApi(
        address=resolve_bind_address(words["runtime_api_address"]),
        secure=words["runtime_certificates"] is not None,
        ca=words["runtime_root_certificates_path"],
    )
    add_exit_handler(warm.close)
    guard = SiteGuard(node_config)
    replace_waits(import_module(LOOP), Tasks(words["state_factory"].state(), warm, api, guard))
    log(INFO, "ClientApps come from the warm process %d.", warm.pid)
    stock(**words | {"isolation": ISOLATION_MODE_PROCESS})


def replace_waits(loop: ModuleType, tasks: Tasks) -> None:
    """Let Flower's loop see each message through before it looks for the reply.

    `loop` is the module of that loop. It asks for messages, stores one with its objects, and then
    waits for a reply that may never come; now the reply is there when it looks.
    """
    clock = Clock(meanwhile=tasks.look_after)
    pull = loop._pull_and_store_message
    push = loop._push_messages
    received: list[Message] = []  # the message that came last

    def pull_and_note(*, receive: Callable[[], Any], **words: Any) -> int | None:
        def receive_and_note() -> Any:
            found = receive()
            received[:] = [] if found is None else [found[0]]
            return found

        run_id: int | None = pull(receive=receive_and_note, **words)
        return run_id

    def see_through_and_push(**words: Any) -> None:
        clock.restart()
        for message in received:
            tasks.see_through(message)
        push(**words)
        clock.restart()

    replacements = {
        "time": clock,
        "_pull_and_store_message": pull_and_note,
        "_push_messages": see_through_and_push,
        "pull_objects": partial(loop.pull_objects, initial_backoff=OBJECTS_WAIT),
    }
    for name, value in replacements.items():
        setattr(loop, name, value)


def main(words: Sequence[str]) -> None:
    """Run a node in the way that the environment asks for."""
    run_node(words, mode_of(os.environ.get("FEDIVON_NODE", "")))
