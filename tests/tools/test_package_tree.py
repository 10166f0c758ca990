"""The package as a tree of links: complete, and the same when it is assembled again."""

import os
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = runpy.run_path(str(ROOT / "tools" / "package_tree.py"))
ROOMS = {
    "fedivon_app": "",
    "strategies": "strategies",
    "clients": "clients",
    "datasets": "datasets",
}


def links(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): os.readlink(path)
        for path in folder.rglob("*")
        if path.is_symlink()
    }


@pytest.mark.parametrize("room", ROOMS)
def test_every_module_is_where_the_wheel_has_it(room, tmp_path):
    package = TOOL["assemble"](tmp_path) / "fedivon_app"
    for path in (ROOT / room).rglob("*.py"):
        linked = package / ROOMS[room] / path.relative_to(ROOT / room)
        assert linked.resolve() == path
    assert (package / "conf" / "experiment" / "demo.yaml").is_file()


def test_it_can_be_assembled_again(tmp_path):
    package = TOOL["assemble"](tmp_path) / "fedivon_app"
    before = links(package)
    (package / "gone.py").symlink_to("../nowhere.py")
    (package / "logs.py").unlink()
    (package / "logs.py").symlink_to("../elsewhere.py")
    TOOL["assemble"](tmp_path)
    assert links(package) == before


def test_what_lies_elsewhere_in_the_wheel_is_complained_of(tmp_path):
    table = (
        '[tool.hatch.build.targets.wheel.force-include]\n"strategies" = "elsewhere/strategies"\n'
    )
    (tmp_path / "pyproject.toml").write_text(table)
    with pytest.raises(ValueError, match="puts strategies at elsewhere/strategies"):
        TOOL["added_by_the_wheel"](tmp_path)
