"""The site's own word: what it lets in before a line of it runs, and what it notes of what leaves.

The node asks here when a message and its bundle have arrived. A file or a limit that cannot be read
lets nothing in.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, MessageType, MetricRecord
from flwr.supercore.inflatable.inflatable_object import (
    get_object_type_from_object_content,
    iterate_object_tree,
)
from flwr.supercore.object_store import ObjectStore

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.site_policy import SitePolicy, state_root
from fedivon_app.node.trust import UsedSignatures, trust_of

SIGNATURE = "signature"  # the key of a run config in which a signature comes
AUDIT_PATH = "audit-path"  # of a node config
OF_SITES = (AUDIT_PATH, "trust-path", "data-path", "state-path", "name")
REFUSED = "refused"
SENT = "sent"
FAILED = "failed"


@dataclass(frozen=True)
class Asked:
    """What a message asks for: of which run, with which bundle, and by which settings."""

    run: int
    bundle: str
    kind: str
    round: int | None = None
    settings: Mapping[str, Any] | None = None

    @property
    def method(self) -> str | None:
        """Return the method that the settings name."""
        return None if self.settings is None else self.settings.get("strategy")


@dataclass(frozen=True)
class SiteGuard:
    """The policy of a site, by its node config, and its audit log."""

    node: Mapping[str, Any]

    @property
    def network(self) -> bool:
        """Tell whether ClientApps may reach more than their node; not so if that is unreadable."""
        try:
            return SitePolicy.of(self.node).network
        except SettingsError:
            return False

    def refusal(self, asked: Asked, bundle: bytes, run_config: Mapping[str, Any]) -> str:
        """Return why a message is not to be answered by a ClientApp, or nothing."""
        try:
            trust = trust_of(self.node)
            policy = SitePolicy.of(self.node)
        except SettingsError as error:
            return f"this site's policy cannot be read, and so it runs nothing: {error}"
        if trust is not None:
            used = UsedSignatures(state_root(self.node) / "used-signatures.jsonl")
            signature = str(run_config.get(SIGNATURE) or "")
            if why := trust.refusal(bundle, signature, asked.run, used):
                return why
        if not policy.limits_runs:
            return ""
        if asked.settings is None and asked.kind == MessageType.QUERY:
            return ""  # the keys and shares of a secure sum, which say nothing of the data
        if asked.settings is None:
            return "the message has no settings, which this site's limits are for"
        return policy.refusal(asked.settings)

    def note(self, event: str, asked: Asked, **more: Any) -> None:
        """Add a line to the audit log, which is on the disk when this returns.

        A node whose config names nothing of a site's keeps none.
        """
        if not set(OF_SITES) & set(self.node):
            return
        line = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "event": event,
            "run": asked.run,
            "bundle": asked.bundle,
            "message": asked.kind,
            "round": asked.round,
            "method": asked.method,
            **more,
        }
        path = audit_path(self.node)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, json.dumps(line).encode() + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def audit_path(node: Mapping[str, Any]) -> Path:
    """Return the audit log of a site: `audit-path` of its node config, or with its state."""
    own = node.get(AUDIT_PATH)
    return Path(str(own)).expanduser() if own else state_root(node) / "audit.jsonl"


def settings_in(store: ObjectStore, message_id: str) -> Mapping[str, Any]:
    """Return the values of a message's ConfigRecord that has settings; nothing if there is none."""
    for content in _objects(store, message_id):
        if get_object_type_from_object_content(content) == ConfigRecord.__qualname__:
            values = dict(ConfigRecord.inflate(content))
            if "settings" in values:
                return values
    return {}


def leaving(store: ObjectStore, message_id: str) -> dict[str, Any]:
    """Return what a reply carries: its bytes, the names of its values, and its epsilon if any."""
    found: dict[str, Any] = {"bytes": 0, "values": []}
    for content in _objects(store, message_id):
        found["bytes"] += len(content)
        kind = get_object_type_from_object_content(content)
        for record in (MetricRecord, ConfigRecord):
            if kind == record.__qualname__:
                values = dict(record.inflate(content))
                found["values"] += sorted(values)
                if "epsilon" in values:
                    found["epsilon"] = values["epsilon"]
    return found


def _objects(store: ObjectStore, message_id: str) -> list[bytes]:
    tree = store.get_object_tree(message_id)
    contents = (store.get(one.object_id) for one in iterate_object_tree(tree))
    return [content for content in contents if content]
