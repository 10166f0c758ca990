"""SuperNodes with TLS and keys, behind the proxy that sites see: what works, what is refused."""

import json
from contextlib import ExitStack

import numpy as np
import pytest

from fedivon_app.cli.main import main
from fedivon_app.federation.bundle import bundle_hash, copy_app
from fedivon_app.federation.signatures import make_key, sign
from fedivon_app.federation.sites import admit, remove, sites_of
from fedivon_app.node.warm import Mode
from fedivon_app.runs.folder import Run
from tests.e2e.helpers import PROJECT, configuration, launch, wait_for
from tests.e2e.sites import NGINX, Sites

pytestmark = pytest.mark.e2e

SMALL = [
    "data.clients=2",
    "clients_per_round=2",
    "rounds=2",
    "evaluation.clients_every=2",
    "server.node_timeout=300",
    "evaluation.every=0",
    "evaluation.final_samples=0",
]
THEIRS = ["dataset=null", "data.source=nodes", "data.shape=[8,8,1]", "data.num_classes=10"]


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    with ExitStack() as stack:
        root = tmp_path_factory.mktemp("secured")
        clinics = ["clinic-0", "clinic-1"]
        public = make_key(root / "operator.key", "operator").read_text().strip()
        (root / "trust.toml").write_text(f'signers = ["{public}"]\n')
        assert main(["deal", "demo", "--to", str(root / "data"), "--site", *clinics]) == 0
        sites = Sites(
            stack,
            root,
            admitted=clinics,
            others=("former", "stranger"),
            data=root / "data",
            modes={"clinic-1": Mode.STOCK},
            configs={"clinic-0": f'trust-path="{root / "trust.toml"}"'},
        )
        sign_for(sites, bundle_hash())
        list(admit(sites.federation, sites.keys, ["former"]))
        list(remove(sites.federation, ["former"]))
        yield sites


def sign_for(sites, bundle):
    """Sign a bundle as the operator whom clinic-0 trusts, and return the signature's file."""
    path = sites.root / "signature"
    path.write_text(sign(bundle, sites.root / "operator.key", days=1))
    return path


def words_of(sites, tmp_path, *words):
    """The words of a run of FedIvon on the sites, signed with the last signature."""
    there = ["--superlink", sites.federation.address]
    there += ["--ca", str(sites.keys / "server" / "ca.crt"), *words]
    there += ["--strategy", "fedivon", "--runs", str(tmp_path / "nodes")]
    return ["run", "demo", *there, "--set", *SMALL, *THEIRS]


def audit(sites):
    path = sites.kept("clinic-0") / "audit.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_secured_nodes_with_files_of_their_own_agree_with_the_simulation(
    sites, federation, tmp_path
):
    """FedIvon, whose server has no data; one node is Flower's own, and the other is ours.

    test_killed.py has it of BayesADMM, with a data set that all have in common.
    """
    signature = str(sites.root / "signature")
    assert main(words_of(sites, tmp_path, "--signature", signature)) == 0
    noted = audit(sites)
    assert {line["event"] for line in noted} == {"sent"}
    assert [line["round"] for line in noted if line["message"] == "train"] == [1, 2]
    assert all(line["bundle"] and line["bytes"] > 0 for line in noted)
    (folder,) = (tmp_path / "nodes").iterdir()
    config = configuration(tmp_path / "simulated", "demo", "fedivon", *SMALL)
    simulated = launch(federation, config, nodes=2).completed().folder
    theirs = list(Run.open(folder).metrics())
    common = list(Run.open(simulated).metrics())
    assert not any(record["dropped"] for record in theirs)
    examples = [[client["num_examples"] for client in record["clients"]] for record in theirs]
    assert examples == [[721, 721]] * 2
    assert "test" in common[-1]["gm"] and "test" not in theirs[-1]["gm"]
    scores = theirs[-1]["gm"]["clients_before_training"]["by_client"]
    same = common[-1]["gm"]["clients_before_training"]["by_client"]
    assert [one["partition"] for one in scores] == [0, 1]
    assert [one["nll"] for one in scores] == pytest.approx([one["nll"] for one in same], rel=1e-4)
    ended = Run.load(folder / "checkpoint" / "round-000002").payload.posterior
    wanted = Run.load(simulated / "checkpoint" / "round-000002").payload.posterior
    np.testing.assert_allclose(ended.mean, wanted.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ended.precision, wanted.precision, rtol=1e-5)


@pytest.mark.parametrize(
    ("signed", "why"),
    [
        ("replayed", "its signature was used before"),
        ("altered", "it was altered, for its signature is of"),
        ("unlisted", "not on the site's list, and it is not signed"),
    ],
)
def test_a_bundle_that_the_site_does_not_trust_is_refused_before_it_runs(
    sites, tmp_path, capsys, signed, why
):
    """The site says so in its log, and to the server, which tells who runs it."""
    words = [] if signed == "unlisted" else ["--signature", str(sites.root / "signature")]
    if signed == "altered":
        sign_for(sites, "ab" * 32)
    before = len(audit(sites))
    assert main(words_of(sites, tmp_path, *words)) == 1
    assert why in capsys.readouterr().out
    assert why in sites.log("clinic-0")
    news = audit(sites)[before:]
    assert {line["event"] for line in news} == {"refused"} and why in news[0]["why"]


def test_sites_are_listed_by_name(sites, capsys):
    words = ["--superlink", sites.federation.address, "--ca", str(sites.keys / "server" / "ca.crt")]
    assert main(["sites", *words]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [line[0] for line in lines] == ["clinic-0", "clinic-1"]
    assert [line[2] for line in lines] == ["online", "online"]
    assert main(["sites", *words, "--keys", str(sites.keys), "--admit", "clinic-1"]) == 0
    assert capsys.readouterr().out == "clinic-1: was admitted before\n"


@pytest.mark.parametrize(
    ("site", "secure"), [("stranger", True), ("former", True), ("stranger", False)]
)
def test_a_node_without_a_registered_key_or_without_tls_is_refused(sites, site, secure):
    node = sites.start(site, 2, secure, "--max-retries", "2")
    wait_for(lambda: node.poll() is not None, "the node's end", patience=120)
    assert node.returncode != 0 and "SuperNode ID" not in sites.log(site)
    assert not secure or "2004" in sites.log(site)  # Flower's word for a key that nobody registered


@pytest.mark.skipif(
    not NGINX, reason="no nginx here: what sites reach of the SuperLink is not tested"
)
class TestBehindTheProxy:
    def test_a_site_can_neither_register_a_key_nor_submit_a_run(self, sites, tmp_path):
        stranger = sites.keys / "sites" / "stranger" / "node.pub"
        config = tmp_path / "run.toml"
        config.write_text(f'experiment = "demo"\nruns = "{tmp_path}"\n')
        for words in (
            ["supernode", "register", stranger, "there"],
            ["run", copy_app(PROJECT, tmp_path / "app"), "there", "--run-config", config],
        ):
            said = sites.flwr_of_a_site(*words, "--format", "json")
            assert said.returncode != 0 or not json.loads(said.stdout)["success"], said.stdout
        assert len(sites_of(sites.federation)) == 3 and not list(tmp_path.glob("*-demo-*"))

    @pytest.mark.parametrize(
        "path",
        [
            "/v1/control/list-runs",
            "/v1/control/register-node",
            "/v1/runtime/get-nodes",
            "/v1/fleet/../control/list-runs",
            "/v1/fleet/%2e%2e/control/list-runs",
            "/v1/fleet/..%2fcontrol/list-runs",
            "//v1/control/list-runs",
            "/docs",
        ],
    )
    def test_only_the_nodes_own_paths_are_open(self, sites, path):
        assert sites.status(path) == 403

    def test_the_nodes_paths_are_answered_by_the_superlink(self, sites):
        assert sites.status("/health") == 200
        unsigned = sites.status("/v1/fleet/pull-messages")  # it wants a signed message
        assert unsigned not in (200, 403, 502)
