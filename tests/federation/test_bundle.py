"""The copy of the project that Flower is given."""

import os
from pathlib import Path

import pytest
from flwr.cli.build import build_fab_from_disk

from fedivon_app.federation.bundle import copy_app
from fedivon_app.federation.superlink import LaunchError, SuperLink

PROJECT = """
[project]
name = "app"
version = "1.0.0"
[tool.flwr.app]
publisher = "me"
[tool.flwr.app.components]
serverapp = "app.server:app"
clientapp = "app.client:app"
"""


@pytest.fixture
def project(tmp_path) -> Path:
    root = tmp_path / "app"
    texts = {
        "pyproject.toml": PROJECT,
        ".gitignore": ".venv/\n/runs/\n*.local.yaml\n",
        "LICENSE": "free",
    }
    texts |= {
        "app/server.py": "",
        "app/client.py": "",
        "mine/net.py": "def build(): ...",
        "conf/deep/a.yaml": "a: 1",
    }
    texts |= {".venv/lib/torch.py": "", "runs/1/settings.yaml": "a: 2", "conf/b.local.yaml": ""}
    texts |= {"app/weights.bin": "0" * 1000, "app/__pycache__/server.py": ""}
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_flower_makes_the_same_bundle_of_the_copy(project, tmp_path):
    app = copy_app(project, tmp_path / "copy")
    assert build_fab_from_disk(app) == build_fab_from_disk(project)


def test_what_is_ignored_is_not_even_looked_at(project, tmp_path, monkeypatch):
    """Environments and runs hold tens of thousands of files."""
    for folder in (tmp_path / "elsewhere", project / ".git"):
        folder.mkdir()
    (project / "linked").symlink_to(tmp_path / "elsewhere")
    (project / "linked.py").symlink_to(project / "app" / "server.py")
    listed = []
    monkeypatch.setattr(
        os, "scandir", lambda place, scan=os.scandir: listed.append(Path(place).name) or scan(place)
    )
    app = copy_app(project, tmp_path / "copy")
    assert sorted(listed) == ["__pycache__", "app", "app", "conf", "deep", "mine"]
    files = {path.relative_to(app).as_posix() for path in app.rglob("*") if path.is_file()}
    assert {"pyproject.toml", ".gitignore", "mine/net.py", "conf/deep/a.yaml"} <= files
    assert (
        not {"linked.py", "app/weights.bin", "runs/1/settings.yaml", ".venv/lib/torch.py"} & files
    )


def test_a_folder_that_is_no_project_is_named(tmp_path, monkeypatch):
    """As where the package was installed without its checkout."""
    monkeypatch.setattr("fedivon_app.federation.superlink.PROJECT", tmp_path)
    with (
        SuperLink("127.0.0.1:1") as link,
        pytest.raises(LaunchError, match="there is no pyproject.toml in"),
    ):
        link.submit({"experiment": "demo"})
