"""The floors of the house: which packages may import which."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ALLOWED = {
    "fedivon_app/core": {"fedivon_app.core"},
    "datasets": {"fedivon_app.datasets", "fedivon_app.core"},
    "strategies": {"fedivon_app.strategies", "fedivon_app.core"},
    "clients": {"fedivon_app.clients", "fedivon_app.datasets", "fedivon_app.core"},
}
UNDER_FLOWER = {
    "rounds",
    "replies",
    "receive",
    "roll_call",
    "messages",
    "letters",
    "client_evaluation",
    "secure_rounds",
    "secure_sum",
}
PURE = [
    "fedivon_app/core",
    "datasets",
    *(
        f"strategies/{path.name}"
        for path in sorted((ROOT / "strategies").glob("*.py"))
        if path.stem not in UNDER_FLOWER
    ),
]


def imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def files(place: str) -> list[Path]:
    found = sorted((ROOT / place).rglob("*.py")) if (ROOT / place).is_dir() else [ROOT / place]
    assert found
    return found


@pytest.mark.parametrize("room", ALLOWED)
def test_rooms_know_only_the_floors_below_them(room):
    for path in files(room):
        inside = {name for name in imports(path) if name.startswith("fedivon_app.")}
        astray = {
            n for n in inside if not any(n == a or n.startswith(f"{a}.") for a in ALLOWED[room])
        }
        assert not astray, f"{path.relative_to(ROOT)} imports {sorted(astray)}"


@pytest.mark.parametrize("place", PURE)
def test_pure_code_imports_no_flower(place):
    for path in files(place):
        assert not {name for name in imports(path) if name.split(".")[0] in ("flwr", "ray")}, path
