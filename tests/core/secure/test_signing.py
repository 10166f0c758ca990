"""The sites' lasting keys: whose round keys a site takes for those of another site."""

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from fedivon_app.core.errors import Refused, SettingsError
from fedivon_app.core.secure.messages import Roster, Session
from fedivon_app.core.secure.signing import read_signer, read_verifiers, unknown
from fedivon_app.core.secure.site import Conditions, advertise, share
from tests.core.secure.federation import SESSION


def _sites(count):
    signers = [ec.generate_private_key(ec.SECP384R1()) for _ in range(count)]
    verifiers = [signer.public_key() for signer in signers]
    conditions = [Conditions(signer=signer, verifiers=verifiers) for signer in signers]
    own = [advertise(SESSION, n, conditions[n]) for n in range(count)]
    return own, conditions, Roster(keys={n: one.public for n, one in enumerate(own)})


def test_signed_keys_of_known_sites_are_taken():
    own, conditions, roster = _sites(4)
    for one, on in zip(own, conditions, strict=True):
        share(one, roster, on)


def test_a_site_that_the_server_invents_is_refused_by_name():
    own, conditions, roster = _sites(4)
    for key in (None, ec.generate_private_key(ec.SECP384R1())):
        ghost = advertise(SESSION, 8, Conditions(signer=key))
        with pytest.raises(Refused, match="sites 8 are not signed by a key that this site knows"):
            share(own[0], Roster(keys=roster.keys | {8: ghost.public}), conditions[0])


def test_one_site_cannot_stand_for_two_nor_in_another_sum_or_place():
    _own, conditions, roster = _sites(4)
    again = advertise(SESSION, 8, conditions[1])
    assert unknown(roster.keys | {8: again.public}, SESSION, conditions[0].verifiers) == [8]
    later = Session(run="trial", round=4, what="train")
    assert unknown(roster.keys, later, conditions[0].verifiers) == [0, 1, 2, 3]
    moved = {5: roster.keys[0]}
    assert unknown(moved, SESSION, conditions[0].verifiers) == [5]


def test_keys_are_read_from_the_files_of_nodes(tmp_path):
    signer = ec.generate_private_key(ec.SECP384R1())
    openssh = serialization.PrivateFormat.OpenSSH
    pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
    (tmp_path / "node.key").write_bytes(signer.private_bytes(pem, openssh, none))
    public = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (tmp_path / "a.pub").write_bytes(signer.public_key().public_bytes(*public))
    (read,) = read_verifiers(tmp_path)
    own = advertise(SESSION, 0, Conditions(signer=read_signer(tmp_path / "node.key")))
    assert unknown({0: own.public}, SESSION, [read]) == []

    other = ed25519.Ed25519PrivateKey.generate()
    (tmp_path / "other.key").write_bytes(other.private_bytes(pem, openssh, none))
    (tmp_path / "b.pub").write_bytes(other.public_key().public_bytes(*public))
    with pytest.raises(SettingsError, match=r"other\.key is no ECDSA key"):
        read_signer(tmp_path / "other.key")
    with pytest.raises(SettingsError, match=r"b\.pub is no ECDSA key"):
        read_verifiers(tmp_path)
    (tmp_path / "b.pub").write_text("nonsense")
    with pytest.raises(SettingsError, match=r"b\.pub is no public key"):
        read_verifiers(tmp_path)
    with pytest.raises(SettingsError, match=r"nothing\.key cannot be read"):
        read_signer(tmp_path / "nothing.key")
    with pytest.raises(SettingsError, match="has no public keys of sites"):
        read_verifiers(tmp_path / "empty")
