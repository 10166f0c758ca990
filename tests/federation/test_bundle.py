"""The copy of the project that Flower is given."""

import io
import os
import zipfile
from pathlib import Path

import pytest
from flwr.cli.build import build_fab_from_disk

from fedivon_app.core.errors import FlowerError
from fedivon_app.federation import superlink
from fedivon_app.federation.bundle import PACKAGE, app_root, copy_app, working_folder
from fedivon_app.federation.superlink import SuperLink

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


@pytest.fixture
def installed(tmp_path) -> Path:
    """The package as a wheel leaves it: all of the app inside, and no checkout around it."""
    package = tmp_path / "site-packages" / "fedivon_app"
    texts = {
        "pyproject.toml": PROJECT.replace('"app.', '"fedivon_app.'),
        "__init__.py": "",
        "server.py": "",
        "client.py": "",
        "strategies/fedavg.py": "",
        "conf/experiment/demo.yaml": "rounds: 1",
        "core/notes.md": "",
        "core/table.json": "{}",
        "core/__pycache__/a.pyc": "",
        "weights.bin": "0",
    }
    for name, text in texts.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    return package


def test_an_installed_package_becomes_an_app_in_the_form_of_a_checkout(installed, tmp_path):
    assert app_root(installed) == installed
    app = copy_app(app_root(installed), tmp_path / "copy")
    files = {path.relative_to(app).as_posix() for path in app.rglob("*") if path.is_file()}
    assert files == {
        "pyproject.toml",
        "fedivon_app/__init__.py",
        "fedivon_app/server.py",
        "fedivon_app/client.py",
        "fedivon_app/strategies/fedavg.py",
        "fedivon_app/conf/experiment/demo.yaml",
        "fedivon_app/core/notes.md",
        "fedivon_app/core/table.json",
    }
    names = zipfile.ZipFile(io.BytesIO(build_fab_from_disk(app))).namelist()
    assert files <= set(names)


def test_the_app_is_the_checkout_where_there_is_one(installed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert working_folder(installed) == tmp_path
    (installed.parent / "pyproject.toml").write_text('[project]\nname = "another"\n')
    assert app_root(installed) == installed
    (installed.parent / "pyproject.toml").write_text("not [ toml")
    assert app_root(installed) == installed
    (installed.parent / "pyproject.toml").write_text('[project]\nname = "fedivon"\n')
    assert app_root(installed) == working_folder(installed) == installed.parent
    assert app_root() == PACKAGE.parent


def test_a_package_without_its_project_file_is_named(installed, monkeypatch):
    (installed / "pyproject.toml").unlink()
    with pytest.raises(FlowerError, match="there is no pyproject.toml of FedIvon in"):
        app_root(installed)
    monkeypatch.setattr(superlink, "app_root", lambda: installed)
    with (
        SuperLink("127.0.0.1:1") as link,
        pytest.raises(FlowerError, match="there is no pyproject.toml in"),
    ):
        link.submit({"experiment": "demo"})
