"""A federation with TLS and keys behind the proxy that sites see (deploy/nginx.conf), all of it real processes."""

import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from fedivon_app.federation.keys import make_keys
from fedivon_app.federation.local_federation import Federation, end_family, free_port
from fedivon_app.federation.sites import admit
from fedivon_app.federation.superlink import BIN, PROJECT
from tests.e2e.helpers import start_node, wait_for

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


class Sites:
    """A SuperLink, the proxy before it where there is an nginx, and the nodes of sites, which dial the proxy; those of
    `admitted` are started, as partition 0, 1 and so on, with the files that `fedivon deal` left in `data` if given."""

    def __init__(
        self,
        stack: ExitStack,
        root: Path,
        admitted: list[str],
        others: tuple[str, ...] = (),
        data: Path | None = None,
    ):
        self.root = root
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
        for partition, site in enumerate(admitted):
            self.start(site, partition)

    def proxy(self) -> subprocess.Popen:
        """deploy/nginx.conf, with the names of this machine."""
        text = (PROJECT / "deploy" / "nginx.conf").read_text()
        self.address = f"127.0.0.1:{free_port()}"
        here = {
            "/keys/": f"{self.keys}/",
            "listen 8443": f"listen {self.address}",
            "/tmp/nginx": f"{self.root}/nginx",
        }
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
        request = urllib.request.Request(
            f"https://{self.address}{path}", None if path == "/health" else b""
        )
        try:
            return urllib.request.urlopen(request, context=trust, timeout=10).status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None

    def kept(self, site: str) -> Path:
        """Where the site's client keeps what must last."""
        return self.root / f"{site}-kept"

    def log(self, site: str) -> str:
        """What the site's node said since it was started."""
        return (self.root / site / "log").read_text()

    def start(
        self, site: str, partition: int, secure: bool = True, *options: str
    ) -> subprocess.Popen:
        place = self.keys / "sites" / site
        key = [
            "--root-certificates",
            place / "ca.crt",
            "--auth-supernode-private-key",
            place / "node.key",
        ]
        config = f'partition-id={partition} state-path="{self.kept(site)}"'
        if self.data:
            config += f' data-path="{self.data / site / "site.npz"}"'
        words = [*(key if secure else ["--insecure"]), *options]
        self.nodes[site] = start_node(
            self.federation, self.root / site, config, self.address, words
        )
        return self.nodes[site]

    def end(self, site: str) -> None:
        end_family(self.nodes[site].pid)
        self.nodes[site].wait()

    def flwr_of_a_site(self, *words: str | Path) -> subprocess.CompletedProcess:
        """What `flwr` says to somebody at a site, who has the CA and the proxy's address."""
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
