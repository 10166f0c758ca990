"""`fedivon doctor` on sites that are well, and on sites with one thing wrong."""

import ssl
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest

from fedivon_app.cli.main import main
from fedivon_app.federation import doctor
from fedivon_app.federation.keys import make_keys
from fedivon_app.federation.local_federation import free_port
from fedivon_app.federation.tls import tls_hint


class Answer(BaseHTTPRequestHandler):
    """A SuperLink behind its proxy: /health for all, control for nobody unless it is `open`."""

    def do_GET(self):
        self.reply(self.server.health)

    def do_POST(self):
        self.reply(415 if self.server.open else 403)

    def reply(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def date_time_string(self, timestamp=None):
        return super().date_time_string(datetime.now(UTC).timestamp() + self.server.ahead)

    def log_message(self, *words):
        pass


@pytest.fixture
def keys(tmp_path):
    make_keys(tmp_path / "keys", ["127.0.0.1"], ["clinic-0"])
    return tmp_path / "keys"


@pytest.fixture
def serve(keys):
    servers = []

    def start(secure=True, health=200, ahead=0, open_=False, folder=keys):
        server = HTTPServer(("127.0.0.1", 0), Answer)
        server.health = health
        server.ahead = ahead
        server.open = open_
        if secure:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(
                folder / "server" / "server.crt", folder / "server" / "server.key"
            )
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def findings(tmp_path, **given):
    return list(doctor.examine(state=tmp_path / "state", **given))


def bad(found):
    return [
        (one.about, one.verdict, one.found)
        for one in found
        if one.verdict != "ok" and one.about != "Flower"
    ]


def test_a_site_that_is_well(tmp_path, keys, serve):
    path = tmp_path / "site.npz"
    x = np.zeros((6, 8, 8), np.uint8)
    y = np.arange(6) % 3
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)
    found = findings(tmp_path, data=path, keys=keys / "sites" / "clinic-0", superlink=serve())
    assert bad(found) == []
    assert {one.about for one in found} >= {
        "Python",
        "torch",
        "state",
        "data",
        "keys",
        "authority",
        "SuperLink",
        "clock",
    }
    assert any("6 examples to train with, 6 to test with" in one.found for one in found)


@pytest.mark.parametrize(
    ("options", "about", "verdict", "says"),
    [
        ({"ahead": 400}, "clock", "failure", "s behind the server's"),
        ({"ahead": -60}, "clock", "failure", "s ahead of the server's"),
        ({"open_": True}, "control", "warning", "can register keys and submit runs"),
        ({"health": 503}, "SuperLink", "failure", "/health says 503"),
        ({"secure": False}, "SuperLink", "failure", "no answer that can be read"),
    ],
)
def test_a_server_with_something_wrong(tmp_path, keys, serve, options, about, verdict, says):
    found = bad(findings(tmp_path, keys=keys / "sites" / "clinic-0", superlink=serve(**options)))
    assert [(one[0], one[1]) for one in found] == [(about, verdict)] and says in found[0][2]


def test_a_clock_that_is_a_minute_late_is_late_enough(tmp_path, keys, serve):
    assert (
        bad(findings(tmp_path, keys=keys / "sites" / "clinic-0", superlink=serve(ahead=60))) == []
    )


def test_another_authoritys_server_and_a_name_that_is_not_in_the_certificate(tmp_path, keys, serve):
    make_keys(tmp_path / "theirs", ["127.0.0.1"], [])
    make_keys(tmp_path / "elsewhere", ["fl.example.org"], ["clinic-0"])
    site = keys / "sites" / "clinic-0"
    (one,) = bad(findings(tmp_path, keys=site, superlink=serve(folder=tmp_path / "theirs")))
    assert "its certificate is not trusted" in one[2]
    other = tmp_path / "elsewhere" / "sites" / "clinic-0"
    port = serve(folder=tmp_path / "elsewhere").rpartition(":")[2]
    (one,) = bad(findings(tmp_path, keys=other, superlink=f"localhost:{port}"))
    assert "Hostname mismatch" in one[2]


def test_nobody_at_the_address_and_no_address(tmp_path):
    for address, says in (
        (f"127.0.0.1:{free_port()}", "nobody answers"),
        ("somewhere", "is not an address"),
    ):
        (one,) = bad(findings(tmp_path, superlink=address))
        assert one[:2] == ("SuperLink", "failure") and says in one[2]


def test_without_keys_the_lack_of_tls_is_said(tmp_path, serve):
    assert bad(findings(tmp_path, superlink=serve(secure=False))) == [
        ("SuperLink", "warning", "no keys are given, so this is without TLS")
    ]


def test_keys_that_are_not_well(tmp_path, keys):
    site = keys / "sites" / "clinic-0"
    (site / "node.key").chmod(0o644)
    (one,) = bad(findings(tmp_path, keys=site))
    assert one[1] == "warning" and "can be read by others (mode 644)" in one[2]
    make_keys(tmp_path / "other", ["x"], ["clinic-0"])
    (site / "node.pub").write_bytes(
        (tmp_path / "other" / "sites" / "clinic-0" / "node.pub").read_bytes()
    )
    assert "are not an elliptic pair" in bad(findings(tmp_path, keys=site))[0][2]
    (site / "node.pub").write_text("nonsense")
    assert "cannot be read" in bad(findings(tmp_path, keys=site))[0][2]
    (site / "ca.crt").unlink()
    assert "there is no" in bad(findings(tmp_path, keys=site))[0][2]


def test_an_authority_that_has_ended(tmp_path):
    make_keys(tmp_path / "old", ["x"], ["clinic-0"], now=datetime.now(UTC) - timedelta(days=4000))
    (one,) = bad(findings(tmp_path, keys=tmp_path / "old" / "sites" / "clinic-0"))
    assert one[:2] == ("authority", "failure")


def test_data_that_are_not_well(tmp_path):
    path = tmp_path / "site.npz"
    (one,) = bad(findings(tmp_path, data=path))
    assert one[:2] == ("data", "failure") and "site.npz" in one[2]
    np.savez(path, x_train=np.zeros((4, 3)), y_train=[0, 1, 0])
    (one,) = bad(findings(tmp_path, data=path))
    assert one[:2] == ("data", "failure")


def test_a_state_folder_that_cannot_be_written_to(tmp_path, monkeypatch):
    def refused(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor.tempfile, "TemporaryFile", refused)
    (one,) = bad(findings(tmp_path))
    assert one[:2] == ("state", "failure") and "Permission denied" in one[2]


def test_a_package_of_another_version_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "_pinned", lambda: {"numpy": "0.1", "nowhere": "1.0"})
    assert [one[:2] for one in bad(findings(tmp_path))] == [
        ("numpy", "warning"),
        ("nowhere", "failure"),
    ]


def test_the_command_says_what_to_do_and_its_exit_status(
    tmp_path, keys, serve, monkeypatch, capsys
):
    monkeypatch.setenv("FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION", "1")
    words = ["doctor", "--keys", str(keys / "sites" / "clinic-0"), "--superlink", serve()]
    assert main(words) == 0
    assert "nothing to fix" in capsys.readouterr().out
    assert main([*words, "--data", str(tmp_path / "none.npz")]) == 1
    said = capsys.readouterr().out
    assert "FAILURE" in said and "to do: docs/data.md says" in said


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["sites"], 0, "they fit sites: shape (8, 8, 1), 10 classes"),
        (["sites", "--set", "data.shape=[28, 28, 1]"], 1, "and sites takes (28, 28, 1)"),
        (["sites", "--set", "data.num_classes=3"], 1, "there are 10 classes, and sites has 3"),
        (["demo"], 0, "they fit demo"),
    ],
)
def test_data_are_compared_with_an_experiment(words, status, says, tmp_path, capsys):
    x = np.zeros((20, 8, 8), np.uint8)
    y = np.arange(20) % 10
    np.savez(tmp_path / "site.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    given = ["--data", str(tmp_path / "site.npz"), "--state", str(tmp_path)]
    assert main(["doctor", *words, *given]) == status
    assert says in capsys.readouterr().out


def test_an_experiment_without_data_is_a_question(capsys):
    assert main(["doctor", "sites"]) == 2
    assert "--data FILE" in capsys.readouterr().err
    assert main(["doctor", "site", "--data", "x"]) == 2
    assert "did you mean sites?" in capsys.readouterr().err


def test_who_forgets_the_authority_is_told(serve, keys, tmp_path):
    """Of both sides, each way; and of what has nothing to do with it, nothing."""
    ca = keys / "server" / "ca.crt"
    secure = serve()
    plain = serve(secure=False)
    assert tls_hint(secure, None) == "it speaks TLS: give --ca, its authority's ca.crt"
    assert tls_hint(plain, ca) == "it does not speak TLS: leave out --ca"
    assert tls_hint(secure, ca) == tls_hint(plain, None) == ""
    make_keys(tmp_path / "others", ["127.0.0.1"], [])
    assert "does not go with" in tls_hint(secure, tmp_path / "others" / "server" / "ca.crt")
    assert "there is no" in tls_hint(secure, tmp_path / "none.crt")
    assert "is not a certificate" in tls_hint(secure, keys / "server" / "server.key")
    nobody = f"127.0.0.1:{free_port()}"
    assert "is not a certificate" in tls_hint(nobody, keys / "server" / "server.key")
    assert "HOST:PORT" in tls_hint("localhost", None)
    assert tls_hint(nobody, None) == ""


def test_commands_pass_the_hint_on(serve, capsys):
    assert main(["sites", "--superlink", serve()]) == 2
    assert "it speaks TLS: give --ca" in capsys.readouterr().err
