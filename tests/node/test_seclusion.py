"""A process that reaches its node and nothing else, tried with servers of our own."""

import ctypes
import os
import socket
import threading
from contextlib import contextmanager

import pytest

from fedivon_app.node import supernode
from fedivon_app.node.seclusion import NEW_NETWORK, obstacle, seclude

why_not = obstacle()
secluding = pytest.mark.skipif(bool(why_not), reason=f"no namespaces here: {why_not}")
LARGE = os.urandom(1 << 20)


@contextmanager
def echo(host: str = "127.0.0.1"):
    """A server that sends back what it is sent; gives its address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:

        def answer(one: socket.socket) -> None:
            with one:
                received = b""
                while data := one.recv(1 << 16):
                    received += data
                one.sendall(received)

        def serve() -> None:
            while True:
                try:
                    accepted = server.accept()[0]
                except OSError:
                    return
                threading.Thread(target=answer, args=(accepted,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        port = server.getsockname()[1]
        yield f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        server.shutdown(socket.SHUT_RDWR)


def dialled(address: str, data: bytes) -> bytes:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=20) as one:
        one.sendall(data)
        one.shutdown(socket.SHUT_WR)
        received = b""
        while more := one.recv(1 << 16):
            received += more
        return received


def inside(address: str, what) -> str:
    """What a function says in a secluded process, or its error."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        said = "nothing"
        try:
            seclude(address)
            said = str(what())
        except OSError as error:
            said = str(error)
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(pid, 0)
    return said


@secluding
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_node_is_reached_by_several_at_once_and_with_much_to_say(host):
    def talk() -> bool:
        answers: list[bytes] = []
        talkers = [
            threading.Thread(target=lambda: answers.append(dialled(address, LARGE)))
            for _ in range(4)
        ]
        for one in talkers:
            one.start()
        for one in talkers:
            one.join(30)
        return answers == [LARGE] * 4

    with echo(host) as address:
        assert inside(address, talk) == "True"


@secluding
def test_nothing_else_is_reached():
    with echo() as address, echo() as other:
        assert dialled(other, b"outside") == b"outside"
        assert "refused" in inside(address, lambda: dialled(other, b"inside"))
        assert "unreachable" in inside(address, lambda: dialled("192.0.2.1:80", b"inside"))


@secluding
def test_there_is_no_way_back():
    outside = f"/proc/{os.getpid()}/ns/net"

    def go_back() -> str:
        descriptor = os.open(outside, os.O_RDONLY)
        libc = ctypes.CDLL(None, use_errno=True)
        moved = libc.setns(descriptor, NEW_NETWORK)
        return "moved" if moved == 0 else os.strerror(ctypes.get_errno())

    with echo() as address:
        said = inside(address, go_back)
    assert "not permitted" in said or "denied" in said


@secluding
def test_files_are_those_of_the_same_user(tmp_path):
    file = tmp_path / "kept"

    def write() -> int:
        file.write_text("inside")
        return os.geteuid()

    with echo() as address:
        assert inside(address, write) == str(os.geteuid())
    assert file.read_text() == "inside"
    assert file.stat().st_uid == os.geteuid()


@pytest.mark.parametrize("words", ["network=false", 'name="a" network = false', "trust-path='x'"])
def test_a_stock_node_is_no_substitute_for_one_that_secludes(monkeypatch, words):
    monkeypatch.setattr(supernode, "run_stock", lambda *ignored: pytest.fail("it was started"))
    with pytest.raises(supernode.SettingsError, match=r"trust-path or network=false"):
        supernode.become_stock(["--node-config", words])
