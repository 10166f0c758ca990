"""A federation with TLS and keys, behind the proxy that sites see: all of it real processes."""

import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from fedivon_app.federation.keys import make_keys
from fedivon_app.federation.local_federation import Federation, end_family, free_port
from fedivon_app.federation.sites import admit
from fedivon_app.federation.superlink import BIN
from fedivon_app.node.warm import Mode
from tests.e2e.helpers import PROJECT, start_node, wait_for

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


class Sites:
    """A SuperLink, the proxy before it where there is an nginx, and the nodes of sites.

    The nodes dial the proxy. Those of `admitted` are started, as partition 0, 1 and so on, with the
    files that `fedivon deal` left in `data` if that is given. `modes` are other ways of
    starting ClientApps than the default, and `configs` more words of the node config, by site. With
    `signed`, each site signs its keys of a secure sum, and knows the public keys of all admitted
    ones.
    """

    def __init__(
        self,
        stack: ExitStack,
        root: Path,
        admitted: list[str],
        others: tuple[str, ...] = (),
        data: Path | None = None,
        modes: Mapping[str, Mode] | None = None,
        configs: Mapping[str, str] | None = None,
        signed: bool = False,
    ):
        self.root = root
        self.configs = configs or {}
        self.signed = signed
        self.modes = modes or {}
        self.keys = root / "keys"
        self.data = data
        make_keys(self.keys, ["127.0.0.1", "superlink"], [*admitted, *others])
        self.federation = stack.enter_context(Federation(simulation=False, keys=self.keys))
        self.address = self.federation.address
        if NGINX:
            stack.callback(self.proxy().terminate)
        self.nodes: dict[str, subprocess.Popen] = {}
        stack.callback(lambda: [end_family(node.pid) for node in self.nodes.values()])
        list(admit(self.federation, self.keys, admitted))
        self.known_keys = root / "known"
        self.known_keys.mkdir()
        for site in admitted:
            public = self.keys / "sites" / site / "node.pub"
            shutil.copy(public, self.known_keys / f"{site}.pub")
        for partition, site in enumerate(admitted):
            self.start(site, partition)

    def proxy(self) -> subprocess.Popen:
        """Start nginx with deploy/nginx.conf, in which the names are made those of this machine."""
        text = (PROJECT / "deploy" / "nginx.conf").read_text()
        self.address = f"127.0.0.1:{free_port()}"
        here = {
            "/keys/": f"{self.keys}/",
            "listen 8443": f"listen {self.address}",
            "/tmp/nginx": f"{self.root}/nginx",
            "superlink:8000": self.federation.address,
        }
        for there, mine in here.items():
            assert there in text
            text = text.replace(there, mine)
        (self.root / "nginx.conf").write_text(text)
        command = [NGINX, "-e", "stderr", "-c", self.root / "nginx.conf"]
        with open(self.root / "nginx.log", "w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.root)
        wait_for(lambda: self.status("/health") == 200, "the proxy", patience=30)
        return process

    def status(self, path: str) -> int | None:
        """Return what the proxy says to a site that asks for this path; None if nobody answers."""
        trust = ssl.create_default_context(cafile=self.keys / "sites" / "clinic-0" / "ca.crt")
        body = None if path == "/health" else b""
        request = urllib.request.Request(f"https://{self.address}{path}", body)
        try:
            return urllib.request.urlopen(request, context=trust, timeout=10).status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None

    def kept(self, site: str) -> Path:
        """Return the folder in which the site's client keeps what must last."""
        return self.root / f"{site}-kept"

    def log(self, site: str) -> str:
        """Return what the site's node said since it was started."""
        return (self.root / site / "log").read_text()

    def start(
        self, site: str, partition: int, secure: bool = True, *options: str
    ) -> subprocess.Popen:
        """Start the node of a site; without `secure` it comes without a key and without TLS."""
        place = self.keys / "sites" / site
        words: list[str | Path] = [*options]
        if secure:
            words += ["--root-certificates", place / "ca.crt"]
            words += ["--auth-supernode-private-key", place / "node.key"]
        else:
            words += ["--insecure"]
        config = f'partition-id={partition} state-path="{self.kept(site)}"'
        if self.data:
            config += f' data-path="{self.data / site / "site.npz"}"'
        config += f" {self.configs.get(site, '')}"
        if self.signed:
            config += f' name="{site}" signing-key="{place / "node.key"}"'
            config += f' site-keys="{self.known_keys}" smallest-cohort=4'
        node = start_node(
            federation=self.federation,
            folder=self.root / site,
            node_config=config,
            address=self.address,
            options=words,
            mode=self.modes.get(site, Mode.FORK),
        )
        self.nodes[site] = node
        return node

    def end(self, site: str) -> None:
        """End the node of a site, as a person would, and wait until it is gone."""
        end_family(self.nodes[site].pid)
        self.nodes[site].wait()

    def flwr_of_a_site(self, *words: str | Path) -> subprocess.CompletedProcess:
        """Run `flwr` as somebody at a site, who has the CA and the proxy's address."""
        home = self.root / "site-home"
        home.mkdir(exist_ok=True)
        trust = self.keys / "sites" / "clinic-0" / "ca.crt"
        (home / "config.toml").write_text(
            f'[superlink.there]\naddress = "{self.address}"\nroot-certificates = "{trust}"\n'
        )
        environment = self.federation.environment | {"FLWR_HOME": str(home)}
        return subprocess.run(
            [BIN / "flwr", *words], env=environment, cwd=PROJECT, capture_output=True, text=True
        )
