"""docs/tutorials/three-sites.md in a real shell: a SuperLink with TLS, three nodes, a run."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from fedivon_app.federation.local_federation import free_port
from fedivon_app.runs.folder import Run
from tests.documents import ROOT, blocks, read

pytestmark = pytest.mark.e2e

PAGE = ROOT / "docs" / "tutorials" / "three-sites.md"
PORTS = ("8000", "9101", "9102", "9103")
PATIENCE = 400  # seconds


def script(text: str) -> str:
    """All that the page says to type, with ports that are free here."""
    typed = "\n".join(blocks(text, "bash"))
    for port in PORTS:
        assert port in typed
        typed = typed.replace(port, str(free_port()))
    return typed


def test_it_can_be_followed(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), os.pathsep)
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flwr"))
    shell = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", script(read(PAGE))],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = shell.communicate(timeout=PATIENCE)
    finally:
        with suppress(ProcessLookupError):  # what is left of its group, if it did not end in order
            os.killpg(shell.pid, signal.SIGKILL)
    logs = "".join(read(path)[-2000:] for path in tmp_path.glob("*.log"))
    assert shell.returncode == 0, said + logs
    (folder,) = (tmp_path / "runs").iterdir()
    records = list(Run.open(folder).metrics())
    assert len(records) == 3 and not any(record["dropped"] for record in records)
    assert [client["partition"] for client in records[-1]["clients"]] == [0, 1, 2]
    listed = [line.split() for line in said.splitlines()[-3:]]
    assert [(line[0], line[2]) for line in listed] == [
        (site, "online") for site in ("north", "south", "west")
    ]
