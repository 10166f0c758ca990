"""Clients for tests of the inline engine, which do what their message says."""

import os
import signal
import time
from unittest import mock

from flwr.app import ConfigRecord, Message, RecordDict

from fedivon_app.federation import inline_worker

KEEP = "keep"


def client(message, context):
    task = message.content["config"]["do"]
    if task == "raise":
        raise ValueError("the scale is broken")
    if task == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if task == "sleep":
        time.sleep(1)
    facts = {"partition": context.node_config["partition-id"], "pid": os.getpid()}
    if task == "sum" and "posterior" in message.content:
        facts["sum"] = float(message.content["posterior"]["mean"].numpy().sum())
        time.sleep(0.05)  # so that both workers get something to do
    if task == KEEP:
        kept = context.state.get("kept", ConfigRecord({"count": 0}))
        facts["kept"] = kept["count"] + 1
        context.state["kept"] = ConfigRecord({"count": facts["kept"]})
    return Message(RecordDict({"told": ConfigRecord(facts)}), reply_to=message)


def serve(pipe):
    voice = os.fdopen(os.dup(1), "w")
    with mock.patch.object(inline_worker.client_app, "app", client):
        inline_worker.serve(pipe, 1, voice)
