"""Every command, given its paths in one folder and carried out in another.

Processes that a path is handed to have folders of their own: a path that a person gives is absolute
before it goes anywhere.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedivon_app.cli.commands import (
    COMMANDS,
    PASSED_ON,
    command_of,
    illustrate,
    resume,
    run,
    sites,
    watch,
)
from fedivon_app.cli.parser import parse, parser_of
from fedivon_app.cli.paths import given_path
from fedivon_app.core.codec import Payload
from fedivon_app.core.posterior import Posterior
from fedivon_app.federation import run_queue
from fedivon_app.federation.keys import make_keys
from fedivon_app.runs.checkpoints import Checkpoint
from fedivon_app.server.setup import prepare
from tests.cli.helpers import SCORES, make_run, write_npz

NAMES_OF_PATHS = {"RUN", "DIR", "FILE"}
NPZ = ["dataset=null", "data.source=npz", "data.path=own.npz", "data.partition=iid"]
LINES = {
    "run": ["demo", "--set-file", "over.yaml", "--runs", "made", "--set", *NPZ],
    "resume": ["begun"],
    "sweep": ["demo", "seed=1,2", "--runs", "made"],
    "tune": ["demo", "--budget", "1", "--runs", "made"],
    "reproduce": ["--list", "--results", "results", "--runs", "made"],
    "list": ["."],
    "watch": ["ended"],
    "show": ["ended", "--plot", "curves.png"],
    "report": ["ended"],
    "compare": ["ended", "ended", "--out", "compared"],
    "uncertainty": ["ended", "--samples", "2", "--ood", "npz", "--ood-path", "own.npz"],
    "predict": ["ended", "one.png", "own.npz", "--samples", "2"],
    "export": ["ended", "--to", "torch", "--output", "out/model.pt2"],
    "personalise": ["ended", "--data", "own.npz", "--out", "mine", "--epochs", "1"],
    "clients": ["ended"],
    "illustrate": ["--out", "figures"],
    "keys": ["new-keys", "--host", "localhost", "--site", "clinic"],
    "sign": ["--new-key", "operator.key"],
    "ledger": ["--folder", "ledger"],
    "sites": ["--superlink", "here:1", "--keys", "keys", "--ca", "keys/ca.crt", "--admit", "north"],
    "data": ["demo", "--set", *NPZ, "--out", "labels.png"],
    "deal": ["demo", "--site", "one", "two", "--to", "dealt"],
    "doctor": ["--data", "own.npz", "--keys", "keys/sites/north", "--state", "state"],
    "settings": ["demo", "--set-file", "over.yaml"],
}
MADE = {  # what a command leaves in the folder in which it was given
    "show": "curves.png",
    "report": "ended/report.html",
    "compare": "compared/compare.html",
    "uncertainty": "ended/uncertainty.json",
    "export": "out/model.pt2",
    "personalise": "mine/personal.json",
    "keys": "new-keys/sites/clinic/node.pub",
    "deal": "dealt/two/site.npz",
    "sign": "operator.key.pub",
}


class Reached(Exception):
    """Raised where a path would leave the process, with what was handed over."""


def reached(*given: Any, **named: Any) -> None:
    raise Reached([*given, *named.values()])


@pytest.fixture(scope="module")
def here(tmp_path_factory) -> Path:
    """A folder with runs, data and keys."""
    place = tmp_path_factory.mktemp("here")
    write_npz(place / "own.npz")
    (place / "over.yaml").write_text("seed: 7\n")
    (place / "ledger").mkdir()
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(place / "one.png")
    make_keys(place / "keys", ["localhost"], ["north"])
    make_run(place, status=None, name="begun")
    ended = make_run(place, 4, name="ended", test={"mean": SCORES})
    flat = prepare(ended.settings).flat
    posterior = Posterior(flat.mean(), np.full(len(flat), 50.0, np.float32))
    ended.save(Checkpoint(round=4, payload=Payload(posterior), state={}))
    return place


@pytest.fixture
def away(here, tmp_path, monkeypatch):
    """Stands in `here` at first; receivers of paths that need a federation only tell of them."""
    monkeypatch.chdir(here)
    for module in (run, resume):
        monkeypatch.setattr(module, "launch_all", reached)
    monkeypatch.setattr(run_queue, "alone_in", reached)
    monkeypatch.setattr(illustrate, "illustrate", reached)
    monkeypatch.setattr(sites, "SuperLink", reached)
    monkeypatch.setattr(watch, "LivePage", reached)
    return tmp_path


def paths_of(options: argparse.Namespace) -> list[Path]:
    """The paths that the parser took from a command line."""
    values: list[Any] = []
    for value in vars(options).values():
        values += value if isinstance(value, list) else [value]
    return [value for value in values if isinstance(value, Path)]


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_called_a_path_is_one(name):
    own = parser_of(name)
    (commands,) = [a for a in own._actions if isinstance(a, argparse._SubParsersAction)]
    for action in commands.choices[name]._actions:
        assert (action.metavar in NAMES_OF_PATHS) == (action.type is given_path), action


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in PASSED_ON])
def test_a_command_finds_its_paths_from_any_folder(name, here, away, monkeypatch, capsys):
    options = parse([name, *LINES[name]])
    assert all(path.is_relative_to(here) for path in paths_of(options))
    handed: list[Any] = []
    if name not in ("run", "data"):  # their settings name files too, and are read at once
        monkeypatch.chdir(away)
    try:
        command_of(name).run(options)
    except Reached as stop:
        handed = stop.args[0]
    except ValueError as error:  # one who kept no personal models
        assert name == "clients" and str(here / "ended") in str(error)
    assert "there is no" not in capsys.readouterr().out
    assert not list(away.iterdir())
    if name in MADE:
        assert (here / MADE[name]).is_file()
    if name == "run":
        (launch,) = handed[0]
        assert launch.settings.run.folder == str(here / "made")
        assert launch.settings.data.path == str(here / "own.npz") and launch.settings.seed == 7
    if name == "resume":
        assert handed[0][0].config == {"resume": str(here / "begun")}
    if name in ("sweep", "tune"):
        assert handed[0].parent == here / "made"
    if name == "sites":
        assert handed == ["here:1", here / "keys" / "ca.crt"]
    if name == "watch":
        assert handed[0]() == here / "ended"
    if name == "illustrate":
        assert handed[0] == here / "figures"


def test_a_site_is_admitted_from_any_folder(here, away, monkeypatch):
    """`flwr`, which registers a key, runs in a folder of its own."""
    seen = []

    class Link:
        def __init__(self, *given):
            self.given = given

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def register(self, public_key, name):
            seen.append(public_key)

    monkeypatch.setattr(sites, "SuperLink", Link)
    monkeypatch.setattr("fedivon_app.federation.sites.sites_of", lambda link: [])
    options = parse(["sites", *LINES["sites"]])
    monkeypatch.chdir(away)
    assert command_of("sites").run(options) == 0
    assert seen == [here / "keys" / "sites" / "north" / "node.pub"]
