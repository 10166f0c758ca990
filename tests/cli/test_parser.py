"""What the commands say of themselves, what they take, and what they import."""

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import fedivon_app.cli.commands
from fedivon_app.cli.commands import COMMANDS
from fedivon_app.cli.main import main
from fedivon_app.cli.parser import parse, parser_of

NAMES = ["run", "resume", "sweep", "tune", "reproduce", "list", "watch", "show", "report"]
NAMES += [
    "compare",
    "uncertainty",
    "predict",
    "export",
    "personalise",
    "clients",
    "illustrate",
    "keys",
    "sign",
    "node",
    "sites",
    "data",
    "deal",
    "ledger",
    "doctor",
]
NAMES += ["settings"]
HEAVY = {"torch", "flwr", "pydantic", "matplotlib", "sklearn"}


def imported_by(*words: str) -> set[str]:
    """Return the top-level modules that a command line imports, in a process of its own."""
    program = (
        "import json, sys\n"
        "from fedivon_app.cli.main import main\n"
        "try:\n"
        "    main(sys.argv[1:])\n"
        "except SystemExit:\n"
        "    pass\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in json.loads(done.stdout.splitlines()[-1])}


def test_help_has_one_line_for_every_command(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = re.findall(r"^    ([a-z]+) +[A-Z].*\.$", capsys.readouterr().out, re.M)
    assert listed == NAMES


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_of_itself_what_the_help_says(name, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    module = import_module(f"fedivon_app.cli.commands.{name}")
    first, *rest = (module.__doc__ or "").splitlines()
    assert first == COMMANDS[name]
    assert not rest or rest[0] == ""
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith(f"usage: fedivon {name} ") and " ".join(module.__doc__.split()) in shown


def test_every_file_of_commands_is_one():
    folder = Path(fedivon_app.cli.commands.__file__).parent
    assert {path.stem for path in folder.glob("*.py")} == {*COMMANDS, "__init__"}


def test_help_imports_nothing_heavy():
    assert not imported_by("--help") & (HEAVY | {"numpy", "yaml"})


def test_a_list_of_runs_imports_nothing_heavy(tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "settings.yaml").write_text("strategy: fedivon\nrounds: 4\n")
    assert not imported_by("list", str(tmp_path)) & HEAVY


def test_an_unknown_command_is_answered_with_those_that_there_are(capsys):
    with pytest.raises(SystemExit) as stop:
        parse(["ruin", "demo"])
    shown = capsys.readouterr().err
    assert stop.value.code == 2
    assert "invalid choice: 'ruin'" in shown and all(repr(name) in shown for name in COMMANDS)


def test_the_package_is_the_same_command_line():
    done = subprocess.run(
        [sys.executable, "-m", "fedivon_app.cli", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("usage: fedivon [-h] [--version] COMMAND ...")


def test_a_command_line_is_parsed_with_its_commands_name():
    options = parse(["run", "demo", "--seed", "1", "2"])
    assert (options.command, options.experiment, options.seed) == ("run", "demo", [1, 2])


def test_the_environment_may_say_which_superlink(monkeypatch):
    monkeypatch.setenv("FEDIVON_SUPERLINK", "fl.example.org:8000")
    monkeypatch.setenv("FEDIVON_CA", "ca.crt")
    options = parse(["sites"])
    assert (options.superlink, options.ca) == ("fl.example.org:8000", Path.cwd() / "ca.crt")
    options = parse(["run", "demo", "--superlink", "here:1"])
    assert options.superlink == "here:1"


@pytest.mark.parametrize(
    "words", [["sweep", "demo"], ["predict", "RUN"], ["compare"], ["uncertainty"], []]
)
def test_what_is_missing_is_said_by_the_parser(words, capsys):
    with pytest.raises(SystemExit) as stop:
        parse(words)
    assert stop.value.code == 2 and "required" in capsys.readouterr().err


@pytest.mark.parametrize(
    "wrong",
    [["--samples", "-1"], ["--samples", "many"], ["--confidence", "1.5"], ["--confidence", "nan"]],
)
def test_numbers_out_of_range_are_refused(wrong, capsys):
    with pytest.raises(SystemExit):
        parser_of("predict").parse_args(["predict", "RUN", "FILE", *wrong])
    assert f"{wrong[1]!r} is not a" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["doctor", "ledger"])
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("data-path", "'data-path' has no value"),
        ("partition-id=0 name", "'name' has no value"),
        ("name=clinic", "is not a node config"),
    ],
)
def test_a_node_config_of_which_a_word_would_be_lost_is_refused(command, text, says, capsys):
    with pytest.raises(SystemExit) as stop:
        parse([command, "--node-config", text])
    assert stop.value.code == 2 and says in capsys.readouterr().err


def test_a_node_config_is_read_as_flower_reads_it():
    text = "partition-id=0 name='clinic 1' data-path=\"/a b/c.npz\""
    found = {"partition-id": 0, "name": "clinic 1", "data-path": "/a b/c.npz"}
    assert parse(["ledger", "--node-config", text]).node_config == found
