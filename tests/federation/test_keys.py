"""Certificates and keys: what TLS and Flower's node authentication make of them."""

import shutil
import socket
import ssl
import stat
import threading
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedivon_app.cli.main import main
from fedivon_app.core.errors import SettingsError
from fedivon_app.federation.keys import make_keys

HOSTS = ["localhost", "127.0.0.1"]


def greet(folder, authority, name):
    """What a client that trusts this authority hears from the folder's server by this name."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(folder / "server" / "server.crt", folder / "server" / "server.key")
    client = ssl.create_default_context(cafile=authority)
    here, there = socket.socketpair()

    def serve():
        try:
            with server.wrap_socket(there, server_side=True) as link:
                link.sendall(b"welcome")
        except OSError:
            pass  # the client went away, which is what it says itself

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(here, server_hostname=name) as link:
            return link.recv(7)
    finally:
        here.close()
        thread.join()


def test_a_client_trusts_the_server_by_every_name_that_was_given_and_no_other(tmp_path):
    make_keys(tmp_path, HOSTS, ["clinic-0"])
    for name in HOSTS:
        assert greet(tmp_path, tmp_path / "sites" / "clinic-0" / "ca.crt", name) == b"welcome"
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        greet(tmp_path, tmp_path / "server" / "ca.crt", "elsewhere")


def test_the_superlinks_own_processes_can_trust_it_too(tmp_path):
    """They dial 127.0.0.1, and a certificate without it would let no run begin."""
    make_keys(tmp_path, ["fl.example.org"], [])
    assert greet(tmp_path, tmp_path / "server" / "ca.crt", "127.0.0.1") == b"welcome"


def test_another_authoritys_server_is_not_trusted(tmp_path):
    for name in ("ours", "theirs"):
        make_keys(tmp_path / name, HOSTS, [])
    with pytest.raises(ssl.SSLCertVerificationError):
        greet(tmp_path / "theirs", tmp_path / "ours" / "server" / "ca.crt", "localhost")


def test_a_site_has_a_pair_that_flower_reads_and_secrets_are_the_owners_alone(tmp_path):
    make_keys(tmp_path, HOSTS, ["clinic-0", "clinic-1"])
    numbers = set()
    for site in ("clinic-0", "clinic-1"):
        place = tmp_path / "sites" / site
        private = load_ssh_private_key((place / "node.key").read_bytes(), None)
        public = load_ssh_public_key((place / "node.pub").read_bytes())
        assert private.public_key() == public and public.curve.name == "secp384r1"
        numbers.add(public.public_numbers())
    assert len(numbers) == 2
    for path in tmp_path.rglob("*.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert not list((tmp_path / "sites").rglob("ca.key"))  # the authority's secret goes to nobody


def test_the_same_command_again_changes_nothing_and_another_site_is_added(tmp_path):
    make_keys(tmp_path, HOSTS, ["clinic-0"])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert make_keys(tmp_path, HOSTS, ["clinic-0"]) == []
    made = make_keys(tmp_path, HOSTS, ["clinic-0", "clinic-1"])
    assert {path.name for path in made} == {"node.key", "node.pub", "ca.crt"}
    assert all(path.read_bytes() == data for path, data in before.items())


def test_a_certificate_is_made_anew_for_another_host_and_a_month_before_its_end(tmp_path):
    make_keys(tmp_path, HOSTS, [])
    path = tmp_path / "server" / "server.crt"
    key = (tmp_path / "server" / "server.key").read_bytes()
    assert make_keys(tmp_path, ["fl.example.org"], []) == [path]
    assert greet(tmp_path, tmp_path / "server" / "ca.crt", "fl.example.org") == b"welcome"
    assert (
        greet(tmp_path, tmp_path / "server" / "ca.crt", "localhost") == b"welcome"
    )  # the old names stay
    end = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    assert make_keys(tmp_path, [], [], now=end - timedelta(days=31)) == []
    assert make_keys(tmp_path, [], [], now=end - timedelta(days=29)) == [path]
    assert x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc > end
    assert (tmp_path / "server" / "server.key").read_bytes() == key


def test_a_key_that_was_removed_is_replaced(tmp_path):
    make_keys(tmp_path, HOSTS, ["clinic-0"])
    place = tmp_path / "sites" / "clinic-0"
    old = (place / "node.pub").read_bytes()
    (place / "node.key").unlink()
    assert (
        make_keys(tmp_path, [], ["clinic-0"]) == []
    )  # as of a site that keeps its private key to itself
    (place / "node.pub").unlink()
    assert {path.name for path in make_keys(tmp_path, [], ["clinic-0"])} == {"node.key", "node.pub"}
    assert (place / "node.pub").read_bytes() != old


def test_the_authority_may_be_kept_elsewhere_until_something_is_to_be_signed(tmp_path):
    make_keys(tmp_path, HOSTS, ["clinic-0"])
    trusted = (tmp_path / "server" / "ca.crt").read_bytes()
    (tmp_path / "authority").rename(tmp_path / "safe")
    made = make_keys(tmp_path, HOSTS, ["clinic-0", "clinic-1"])
    assert {path.name for path in made} == {"node.key", "node.pub", "ca.crt"}
    assert {path.read_bytes() for path in tmp_path.glob("s*/**/ca.crt")} == {trusted}
    with pytest.raises(SettingsError, match="is to be signed, and the authority is not here"):
        make_keys(tmp_path, ["another.example.org"], [])


def test_a_new_authority_signs_the_servers_certificate_anew(tmp_path):
    make_keys(tmp_path, HOSTS, ["clinic-0"])
    place = tmp_path / "server"
    shutil.rmtree(tmp_path / "authority")
    (place / "ca.crt").unlink()
    assert place / "server.crt" in make_keys(tmp_path, [], [])
    own, authority = (
        x509.load_pem_x509_certificate((place / n).read_bytes()) for n in ("server.crt", "ca.crt")
    )
    own.verify_directly_issued_by(authority)


def test_keys_that_are_no_pair_are_named_not_replaced(tmp_path):
    make_keys(tmp_path, HOSTS, ["clinic-0", "clinic-1"])
    mine, other = (tmp_path / "sites" / name / "node.pub" for name in ("clinic-0", "clinic-1"))
    mine.write_bytes(other.read_bytes())
    with pytest.raises(SettingsError, match=r"clinic-0/node\.pub is not of .*clinic-0/node\.key"):
        make_keys(tmp_path, HOSTS, ["clinic-0"])
    assert mine.read_bytes() == other.read_bytes()
    text = other.read_text().strip() + " somebody@their.host\n"  # as ssh-keygen writes it
    other.write_text(text)
    assert make_keys(tmp_path, HOSTS, ["clinic-1"]) == [] and other.read_text() == text


def test_mistakes_are_named(tmp_path):
    with pytest.raises(SettingsError, match=r"the site's name '\.\./x' becomes a folder's"):
        make_keys(tmp_path, HOSTS, ["../x"])
    for host in ("a b", "https://fl.example.org", "fl.example.org:8443", ""):
        with pytest.raises(SettingsError, match="is neither a host's name nor an address"):
            make_keys(tmp_path / "a", [host], [])
    make_keys(tmp_path / "hosts", ["fl.example.org", "*.example.org", "10.0.0.1", "::1"], [])
    with pytest.raises(SettingsError, match="give at least one"):
        make_keys(tmp_path / "a", [], [])
    make_keys(tmp_path / "b", HOSTS, [])
    (tmp_path / "b" / "authority" / "ca.key").unlink()
    with pytest.raises(SettingsError, match=r"ca\.crt is there, but .*ca\.key is not: put it back"):
        make_keys(tmp_path / "b", HOSTS, [])


def test_the_command_says_what_it_made_and_until_when(tmp_path, capsys):
    words = ["keys", str(tmp_path / "keys"), "--host", *HOSTS, "--site", "clinic-0"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "node.pub" in said and f"{datetime.now(UTC) + timedelta(days=397):%Y-%m-%d}" in said
    assert main(words) == 0
    assert "nothing to create: all files exist" in capsys.readouterr().out
