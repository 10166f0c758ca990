"""SuperNodes with TLS and keys, behind the proxy that sites see (deploy/nginx.conf): what works, what is refused."""

import json
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from fedivon_app.cli import main
from fedivon_app.keys import make_keys
from fedivon_app.launch import Federation, end_family, free_port
from fedivon_app.runs import Run
from fedivon_app.sites import admit, remove, sites_of
from fedivon_app.superlink import BIN, PROJECT
from tests.e2e.helpers import configuration, launch, start_node, wait_for

pytestmark = pytest.mark.e2e

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
SMALL = ["data.clients=2", "clients_per_round=2", "rounds=2", "evaluation.every=0", "evaluation.clients_every=0"]
SMALL += ["evaluation.final_samples=0", "server.node_timeout=300"]


class Sites:
    """A SuperLink with TLS and keys, the proxy before it where there is an nginx, and nodes that dial the proxy."""

    def __init__(self, stack: ExitStack, root: Path):
        self.root, self.keys = root, root / "keys"
        make_keys(self.keys, ["127.0.0.1", "superlink"], ["clinic-0", "clinic-1", "former", "stranger"])
        self.federation = stack.enter_context(Federation(simulation=False, keys=self.keys))
        self.address = self.federation.address
        if NGINX:
            stack.callback(self.proxy().terminate)
        self.nodes: dict[str, subprocess.Popen] = {}
        stack.callback(lambda: [end_family(node.pid) for node in self.nodes.values()])

    def proxy(self) -> subprocess.Popen:
        """deploy/nginx.conf, with the names of this machine."""
        text, self.address = (PROJECT / "deploy" / "nginx.conf").read_text(), f"127.0.0.1:{free_port()}"
        here = {"/keys/": f"{self.keys}/", "listen 8443": f"listen {self.address}", "/tmp/nginx": f"{self.root}/nginx"}
        for there, mine in (here | {"superlink:8000": self.federation.address}).items():
            assert there in text
            text = text.replace(there, mine)
        (self.root / "nginx.conf").write_text(text)
        command = [NGINX, "-e", "stderr", "-c", self.root / "nginx.conf"]
        with open(self.root / "nginx.log", "w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.root)
        wait_for(lambda: self.status("/health") == 200, "the proxy", patience=30)
        return process

    def status(self, path: str) -> int | None:
        """What the proxy says to a site that asks for this path."""
        trust = ssl.create_default_context(cafile=self.keys / "sites" / "clinic-0" / "ca.crt")
        request = urllib.request.Request(f"https://{self.address}{path}", None if path == "/health" else b"")
        try:
            return urllib.request.urlopen(request, context=trust, timeout=10).status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None

    def start(self, site: str, partition: int, secure: bool = True) -> subprocess.Popen:
        place = self.keys / "sites" / site
        key = ["--root-certificates", place / "ca.crt", "--auth-supernode-private-key", place / "node.key"]
        config = f'partition-id={partition} state-path="{self.root / site}-kept"'
        options = [*(key if secure else ["--insecure"]), "--max-retries", "2"]
        name = site if secure else f"{site}-without-tls"
        self.nodes[name] = start_node(self.federation, self.root / name, config, self.address, options)
        return self.nodes[name]

    def flwr_of_a_site(self, *words: str | Path) -> subprocess.CompletedProcess:
        """What `flwr` says to somebody at a site, who has the CA and the proxy's address."""
        home = self.root / "site-home"
        home.mkdir(exist_ok=True)
        trust = self.keys / "sites" / "clinic-0" / "ca.crt"
        (home / "config.toml").write_text(
            f'[superlink.there]\naddress = "{self.address}"\nroot-certificates = "{trust}"\n'
        )
        environment = self.federation.environment | {"FLWR_HOME": str(home)}
        return subprocess.run([BIN / "flwr", *words], env=environment, cwd=PROJECT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # as in the simulation
        sites = Sites(stack, tmp_path_factory.mktemp("secured"))
        list(admit(sites.federation, sites.keys, ["clinic-0", "former", "clinic-1"]))
        list(remove(sites.federation, ["former"]))
        for partition, site in enumerate(("clinic-0", "clinic-1")):
            sites.start(site, partition)
        yield sites


@pytest.mark.parametrize("strategy", ["fedivon", "bayes-admm"])
def test_secured_nodes_agree_with_the_simulation(sites, federation, strategy, tmp_path):
    words = ["--superlink", sites.federation.address, "--ca", str(sites.keys / "server" / "ca.crt")]
    words += ["--strategy", strategy, "--runs", str(tmp_path / "nodes"), "--set", *SMALL]
    assert main(["run", "demo", *words]) == 0
    (folder,) = (tmp_path / "nodes").iterdir()
    assert not any(record["dropped"] for record in Run.open(folder).metrics())
    config = configuration(tmp_path / "simulated", "demo", strategy, *SMALL, "run.client_state=run")
    failure, simulated, lines = launch(federation, config, nodes=2)
    assert failure is None, (failure, lines)
    ended, wanted = (Run.load(run / "checkpoint" / "round-000002")[0].posterior for run in (folder, simulated))
    np.testing.assert_allclose(ended.mean, wanted.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ended.precision, wanted.precision, rtol=1e-5)


def test_sites_are_listed_by_name(sites, capsys):
    words = ["--superlink", sites.federation.address, "--ca", str(sites.keys / "server" / "ca.crt")]
    assert main(["sites", *words]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert [(line[0], line[2]) for line in lines] == [("clinic-0", "online"), ("clinic-1", "online")]
    assert main(["sites", *words, "--keys", str(sites.keys), "--admit", "clinic-1"]) == 0
    assert capsys.readouterr().out == "clinic-1: was admitted before\n"


@pytest.mark.parametrize(("site", "secure"), [("stranger", True), ("former", True), ("clinic-1", False)])
def test_a_node_without_a_registered_key_or_without_tls_is_refused(sites, site, secure):
    node = sites.start(site, 2, secure)
    log = sites.root / (site if secure else f"{site}-without-tls") / "log"
    wait_for(lambda: node.poll() is not None, "the node's end", patience=120)
    assert node.returncode != 0 and "SuperNode ID" not in log.read_text()
    assert not secure or "2004" in log.read_text()  # Flower's word for a key that nobody registered


@pytest.mark.skipif(not NGINX, reason="no nginx here: what sites reach of the SuperLink is not tested")
class TestBehindTheProxy:
    def test_a_site_can_neither_register_a_key_nor_submit_a_run(self, sites, tmp_path):
        stranger = sites.keys / "sites" / "stranger" / "node.pub"
        config = tmp_path / "run.toml"
        config.write_text(f'experiment = "demo"\nruns = "{tmp_path}"\n')
        for words in (
            ["supernode", "register", stranger, "there"],
            ["run", PROJECT, "there", "--run-config", config],
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
        assert sites.status("/v1/fleet/pull-messages") not in (200, 403, 502)  # it wants a signed message
