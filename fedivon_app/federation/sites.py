"""Who may take part in the runs of a SuperLink: a site is a name and the key registered for it.

The command `fedivon sites` lists, admits and removes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.proto.control_pb2 import ListNodesRequest
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from fedivon_app.core.errors import SettingsError
from fedivon_app.federation.superlink import SuperLink

GONE = "unregistered"
FORMER = (
    "its key was shut out, for ever; "
    "remove its node.key and node.pub and let `fedivon keys` make it new ones"
)


@dataclass(frozen=True)
class Site:
    """A node as the SuperLink knows it."""

    name: str
    node: int
    status: str  # registered (never seen), online, offline or unregistered (shut out)
    since: str
    public_key: bytes


def sites_of(link: SuperLink) -> list[Site]:
    """Return all sites that are admitted, or were.

    The Control API is asked, for `flwr supernode list` has no names and no keys.
    """

    with link.control() as client:
        nodes = client.ListNodes(ListNodesRequest()).nodes_info
    since = {
        "online": "last_activated_at",
        "offline": "last_deactivated_at",
        "unregistered": "unregistered_at",
    }
    return [
        Site(
            name=node.name or str(node.node_id),
            node=node.node_id,
            status=node.status,
            since=getattr(node, since.get(node.status, "registered_at")),
            public_key=node.public_key,
        )
        for node in sorted(nodes, key=lambda node: node.registered_at)
    ]


def admit(link: SuperLink, keys: Path, names: Sequence[str]) -> Iterator[str]:
    """Register the sites' keys, and say of each what was done.

    Another key of the same site is shut out.
    """
    files = {name: keys / "sites" / name / "node.pub" for name in names}
    missing = [str(file) for file in files.values() if not file.is_file()]
    if missing:
        raise SettingsError(
            f"there is no {', '.join(missing)}: "
            f"`fedivon keys {keys} --site NAME` makes a site's keys"
        )
    public_keys = {name: _read(file) for name, file in files.items()}
    known = sites_of(link)
    for name, public_key in public_keys.items():
        same_key = [site for site in known if site.public_key == public_key]
        if same_key:
            former = same_key[0].status == GONE
            yield f"{name}: {FORMER if former else 'was admitted before'}"
            continue
        link.register(files[name], name)
        old = [site for site in known if site.name == name and site.status != GONE]
        for site in old:
            link.unregister(site.node)
        yield f"{name}: admitted" + (", and its former key shut out" if old else "")


def remove(link: SuperLink, names: Sequence[str]) -> Iterator[str]:
    """Shut sites out, whose nodes are refused from now on, and say so of each."""
    known = [site for site in sites_of(link) if site.status != GONE]
    there = {site.name for site in known}
    strange = [name for name in names if name not in there]
    if strange:
        listed = ", ".join(sorted(there)) or "none"
        raise SettingsError(f"no site is called {', '.join(strange)}; there are: {listed}")
    for site in known:
        if site.name in names:
            link.unregister(site.node)
            yield f"{site.name}: shut out"


def _read(file: Path) -> bytes:
    """A public key in the form in which the SuperLink keeps it."""

    try:
        key = load_ssh_public_key(file.read_bytes())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise SettingsError(f"{file} is not a public key: {error}") from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise SettingsError(f"{file} is not a public key of an elliptic curve, which Flower wants")
    return public_key_to_bytes(key)
