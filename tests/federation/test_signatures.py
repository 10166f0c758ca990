"""Signatures of bundles: who signed, what, for how long, and in OpenSSH's formats."""

import base64
import subprocess

import pytest

from fedivon_app.cli.main import main
from fedivon_app.core.errors import SettingsError
from fedivon_app.federation.keys import make_keys
from fedivon_app.federation.signatures import BadSignature, make_key, opened, public_key, sign

BUNDLE = "ab" * 32


@pytest.fixture
def key(tmp_path):
    make_key(tmp_path / "operator.key", "operator")
    return tmp_path / "operator.key"


def signer(key):
    return public_key(key.with_name(f"{key.name}.pub").read_text())


def test_a_signature_says_what_was_signed(key):
    statement = opened(sign(BUNDLE, key, days=7), [signer(key)])
    assert statement.bundle == BUNDLE and not statement.is_over
    assert opened(sign(BUNDLE, key, days=-1), [signer(key)]).is_over
    other = opened(sign(BUNDLE, key, days=7), [signer(key)])
    assert statement.number != other.number


def test_the_key_is_secret_and_never_overwritten(key):
    assert key.stat().st_mode & 0o077 == 0
    with pytest.raises(SettingsError, match="is there already"):
        make_key(key, "operator")


def test_who_is_not_trusted_signs_nothing(key, tmp_path):
    make_key(tmp_path / "other.key", "other")
    with pytest.raises(BadSignature, match="nobody whom this site trusts"):
        opened(sign(BUNDLE, tmp_path / "other.key", days=7), [signer(key)])
    with pytest.raises(BadSignature, match="nobody"):
        opened(sign(BUNDLE, key, days=7), [])
    assert opened(sign(BUNDLE, key, days=7), [signer(tmp_path / "other.key"), signer(key)])


def test_what_was_changed_is_not_signed(key):
    body, proof = sign(BUNDLE, key, days=7).split(".")
    text = base64.urlsafe_b64decode(body).replace(b"ab" * 32, b"cd" * 32)
    with pytest.raises(BadSignature, match="nobody"):
        opened(f"{base64.urlsafe_b64encode(text).decode()}.{proof}", [signer(key)])


@pytest.mark.parametrize("text", ["", "x", "a.b", "e30=.e30=", "..", "W10=.W10="])
def test_what_is_no_signature_is_said_to_be_none(key, text):
    with pytest.raises(BadSignature, match="is none"):
        opened(text, [signer(key)])


def test_other_keys_are_refused_by_name(tmp_path, key):
    make_keys(tmp_path, ["localhost"], ["clinic"])
    with pytest.raises(SettingsError, match="is not an Ed25519 key"):
        sign(BUNDLE, tmp_path / "sites" / "clinic" / "node.key", days=7)
    with pytest.raises(SettingsError, match="is not an Ed25519 key"):
        public_key((tmp_path / "sites" / "clinic" / "node.pub").read_text())
    with pytest.raises(SettingsError, match="is not a public key"):
        public_key("ssh-ed25519 nothing")
    with pytest.raises(SettingsError, match="cannot be read as a key"):
        sign(BUNDLE, tmp_path / "missing.key", days=7)


def test_the_command_makes_keys_signatures_and_hashes(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("fedivon_app.federation.bundle.bundle_hash", lambda: BUNDLE)
    path = tmp_path / "me.key"
    assert main(["sign", "--new-key", str(path), "--name", "me"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("ssh-ed25519 ")
    assert main(["sign"]) == 0
    assert capsys.readouterr().out == f"{BUNDLE}\n"
    assert main(["sign", "--key", str(path), "--to", str(tmp_path / "signature")]) == 0
    assert opened((tmp_path / "signature").read_text().strip(), [signer(path)]).bundle == BUNDLE
    assert main(["sign", "--to", str(tmp_path / "other")]) != 0
    assert "--key" in capsys.readouterr().err


def test_openssh_reads_the_keys(key):
    try:
        said = subprocess.run(["ssh-keygen", "-lf", key], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("no ssh-keygen here")
    assert "(ED25519)" in said.stdout
