"""Admitting and removing sites; tests/e2e/test_secured.py does it at a real SuperLink."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedivon_app.cli.main import main
from fedivon_app.core.errors import SettingsError
from fedivon_app.federation import sites
from fedivon_app.federation.keys import make_keys
from fedivon_app.federation.sites import GONE, Site, _read, admit, remove


class Register:
    """What a SuperLink knows of its nodes."""

    def __init__(self):
        self.known: list[Site] = []
        self.calls: list[tuple[str, str | int]] = []

    def register(self, public_key: Path, name: str) -> None:
        assert _read(public_key) not in [
            site.public_key for site in self.known
        ]  # Flower admits a key once, for ever
        self.calls.append(("register", name))
        self.known.append(
            Site(name, 100 + len(self.calls), "registered", "2026-01-01", _read(public_key))
        )

    def unregister(self, node: int) -> None:
        self.calls.append(("unregister", node))
        self.known = [
            replace(site, status=GONE) if site.node == node else site for site in self.known
        ]

    @property
    def admitted(self) -> list[str]:
        return [site.name for site in self.known if site.status != GONE]


@pytest.fixture
def link(monkeypatch):
    monkeypatch.setattr(sites, "sites_of", lambda link: list(link.known))
    return Register()


def test_a_site_is_admitted_once(link, tmp_path):
    make_keys(tmp_path, ["localhost"], ["north", "south"])
    assert list(admit(link, tmp_path, ["north", "south"])) == ["north: admitted", "south: admitted"]
    assert list(admit(link, tmp_path, ["north"])) == ["north: was admitted before"]
    assert link.admitted == ["north", "south"]


def test_a_new_key_takes_the_place_of_the_old_one(link, tmp_path):
    make_keys(tmp_path, ["localhost"], ["north", "south"])
    list(admit(link, tmp_path, ["north", "south"]))
    old = link.known[0]
    for name in ("node.key", "node.pub"):
        (tmp_path / "sites" / "north" / name).unlink()
    make_keys(tmp_path, ["localhost"], ["north"])
    assert list(admit(link, tmp_path, ["north"])) == [
        "north: admitted, and its former key shut out"
    ]
    assert link.calls[-2:] == [("register", "north"), ("unregister", old.node)]
    (north,) = [site for site in link.known if site.name == "north" and site.status != GONE]
    assert north.public_key == _read(tmp_path / "sites" / "north" / "node.pub") != old.public_key


def test_sites_without_keys_are_named_before_anybody_is_admitted(link, tmp_path):
    make_keys(tmp_path, ["localhost"], ["north"])
    with pytest.raises(SettingsError, match=r"there is no .*sites/east/node\.pub"):
        list(admit(link, tmp_path, ["north", "east"]))
    (tmp_path / "sites" / "north" / "node.pub").write_text("no key")
    with pytest.raises(SettingsError, match="is not a public key"):
        list(admit(link, tmp_path, ["north"]))
    assert not link.calls


def test_removing(link, tmp_path):
    make_keys(tmp_path, ["localhost"], ["north", "south"])
    list(admit(link, tmp_path, ["north", "south"]))
    with pytest.raises(SettingsError, match="no site is called west; there are: north, south"):
        list(remove(link, ["north", "west"]))
    assert list(remove(link, ["north"])) == ["north: shut out"]
    assert link.admitted == ["south"]
    with pytest.raises(SettingsError, match="no site is called north"):
        list(remove(link, ["north"]))


def test_a_key_that_was_shut_out_stays_out_and_the_others_get_in(link, tmp_path):
    make_keys(tmp_path, ["localhost"], ["north", "south"])
    list(admit(link, tmp_path, ["north"]))
    list(remove(link, ["north"]))
    first, second = admit(link, tmp_path, ["north", "south"])
    assert (
        first.startswith("north: its key was shut out, for ever; remove its node.key")
        and second == "south: admitted"
    )


def test_the_command_needs_a_superlink_that_answers(monkeypatch, capsys):
    monkeypatch.delenv("FEDIVON_SUPERLINK", raising=False)
    assert main(["sites"]) == 2
    assert "say which SuperLink" in capsys.readouterr().err
    assert main(["sites", "--superlink", "127.0.0.1:1"]) == 2
    assert "the SuperLink at 127.0.0.1:1 does not answer" in capsys.readouterr().err
