"""`fedivon doctor` and `fedivon ledger` show what a site allows and what has been spent."""

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedivon_app.cli.main import main
from fedivon_app.core.ledger import Ledger, Steps
from fedivon_app.federation.findings import Verdict
from fedivon_app.federation.policy_check import policy_findings
from fedivon_app.node import seclusion

STEPS = Steps(run="r", round=1, method="fedavg", noise=2.0, rate=0.1, steps=10, clip_norm=1.0)


def key_files(folder):
    """The private key of a site, and the folder with the public keys of two."""
    pem, none = serialization.Encoding.PEM, serialization.NoEncryption()
    public = (serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (folder / "sites").mkdir()
    for name in ("north", "south"):
        key = ec.generate_private_key(ec.SECP384R1())
        openssh = key.private_bytes(pem, serialization.PrivateFormat.OpenSSH, none)
        (folder / f"{name}.key").write_bytes(openssh)
        (folder / "sites" / f"{name}.pub").write_bytes(key.public_key().public_bytes(*public))
    return folder / "north.key", folder / "sites"


def test_a_policy_is_shown_line_by_line(tmp_path, monkeypatch):
    monkeypatch.setattr(seclusion, "obstacle", lambda: "")
    (tmp_path / "trusted.toml").write_text(f'bundles = ["{"ab" * 32}"]\n')
    own, others = key_files(tmp_path)
    node = {
        "trust-path": str(tmp_path / "trusted.toml"),
        "largest-epsilon": 2.0,
        "epsilon-limit": 8.0,
        "smallest-cohort": 5,
        "import-paths": False,
        "network": False,
        "signing-key": str(own),
        "site-keys": str(others),
        "state-path": str(tmp_path),
    }
    account = Ledger(tmp_path / "ledger").account("a" * 64)
    account.charge(STEPS, epsilon=8, delta=1e-5)
    found = list(policy_findings(node))
    assert {one.verdict for one in found} == {Verdict.OK}
    assert [one.found for one in found] == [
        "largest-epsilon: epsilon 2 of a run, and no run without it",
        "epsilon-limit: epsilon 8 of one data set by all runs, at epsilon-delta 1e-05",
        "smallest-cohort: 5 clients in a round",
        "import-paths: refused",
        "network: the node alone",
        "over at least 5 sites, all of them with one of 2 known keys; "
        "its keys of each round are signed; nothing is sent in the open",
        "the site runs what it lists, 1 bundle, or what is signed, 0 signers",
        f"1 data set; of the most used one, epsilon {account.spent():.3g} is spent",
        f"{tmp_path / 'audit.jsonl'}",
    ]


def test_a_machine_that_cannot_keep_an_app_from_the_network_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(seclusion, "obstacle", lambda: "no network namespace: not permitted")
    found = list(policy_findings({"network": False, "state-path": str(tmp_path)}))
    (failed,) = [one for one in found if one.verdict is Verdict.FAILURE]
    assert "no network namespace: not permitted" in failed.found
    assert "network=false" in failed.remedy


def test_a_site_without_a_say_is_warned(tmp_path):
    found = list(policy_findings({"state-path": str(tmp_path)}))
    (warned,) = [one for one in found if one.verdict is Verdict.WARNING]
    assert warned.found == "the site runs whatever code the server sends"
    assert "trust-path" in warned.remedy
    assert {one.about for one in found} == {"policy", "audit log"}


@pytest.mark.parametrize(
    ("node", "why", "until_then"),
    [
        ({"trust-path": "nowhere.toml"}, "nowhere.toml cannot be read", "runs nothing"),
        ({"largest-epsilon": 0}, "largest-epsilon is 0", "runs nothing"),
        ({"smallest-cohort": 2}, "in a sum over two, each knows the other's", "takes part in none"),
        ({"signing-key": "nowhere.key"}, "nowhere.key cannot be read", "takes part in none"),
        ({"site-keys": "nowhere"}, "has no public keys of sites", "takes part in none"),
    ],
)
def test_a_policy_that_cannot_be_read_is_a_failure(node, why, until_then, tmp_path):
    found = list(policy_findings(node | {"state-path": str(tmp_path)}))
    (failed,) = [one for one in found if one.verdict is Verdict.FAILURE]
    assert why in failed.found
    assert failed.remedy == f"set it right: until then the site {until_then}"


def test_the_ledger_is_shown_release_by_release_and_in_sum(tmp_path, capsys):
    account = Ledger(tmp_path / "ledger").account("a" * 64)
    first = account.size(3000, 0.1, "first")
    spent = [account.charge(STEPS, epsilon=8, delta=1e-5) for _ in range(2)]
    config = f'state-path="{tmp_path}" epsilon-limit=8.0'
    assert first > 0 and main(["ledger", "--node-config", config]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line.startswith("aaa")] == ["a" * 12] * 3
    assert "noisy size" in lines[1] or "noisy size" in lines[2]
    assert [line.split()[-1] for line in lines if "fedavg" in line] == [f"{e:.3f}" for e in spent]
    assert main(["ledger", "--node-config", config, "--sum"]) == 0
    (row,) = [line.split() for line in capsys.readouterr().out.splitlines() if "aaa" in line]
    assert row == ["a" * 12, "3", "2", f"{spent[-1]:.3f}", "8"]
