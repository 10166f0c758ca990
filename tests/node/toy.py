"""A ClientApp for the tests of the node: it tells where it runs, or does what harms it."""

import os
import signal
import socket
import sys
import time
from pathlib import Path

import numpy as np
import psutil
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

VERSION = "0.1.0"  # which the tests replace, for another bundle
IMPORTED_BY = os.getpid()
app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Do what the message says, count the messages, and tell."""
    what = message.content["config"]["do"]
    parent = psutil.Process().parent()
    if what == "raise":
        raise RuntimeError("the scale is broken")
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "exit":
        os._exit(3)
    if what == "orphan":
        os.kill(parent.ppid(), signal.SIGKILL)  # the zygote, from which the bundle's process came
        time.sleep(60)
    if what.startswith("reach"):
        return Message(
            RecordDict({"told": ConfigRecord({"reached": reached(what)})}), reply_to=message
        )
    count = int(context.state["kept"]["count"]) + 1 if "kept" in context.state else 1
    context.state["kept"] = ConfigRecord({"count": count})
    told = {
        "version": VERSION,
        "count": count,
        "pid": os.getpid(),
        "imported-by": IMPORTED_BY,
        "parent": parent.pid,
        "threads-of-parents": [threads(parent.pid), threads(parent.ppid())],
        "has-torch": "torch" in sys.modules,
        "has-cuda": "torch" in sys.modules and sys.modules["torch"].cuda.is_initialized(),
        "own-modules": sum(name.startswith("fedivon_app") for name in sys.modules),
        "random": float(np.random.rand()),
    }
    return Message(RecordDict({"told": ConfigRecord(told)}), reply_to=message)


def reached(what: str) -> str:
    """Return what came of dialling the port that follows "reach"."""
    try:
        socket.create_connection(("127.0.0.1", int(what.removeprefix("reach "))), timeout=5).close()
    except OSError as error:
        return str(error)
    return "yes"


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))
