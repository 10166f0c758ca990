"""Registries: entries by name, the user's own by import path, and what is said of wrong ones."""

import re
from pathlib import Path

import pytest

from fedivon_app.core.errors import SettingsError, UserError
from fedivon_app.core.registry import Registry, import_by_path, is_import_path
from fedivon_app.core.text import did_you_mean

OWN = """
class Animal: ...
class Dog(Animal): ...
class Stone: ...
class House:
    guard = Dog
rex = Dog()
number = 3
def bark(): return "wau"
_hidden = Dog
"""


class Animal:
    pass


class Cat(Animal):
    pass


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Modules of somebody else's: one that is good, and others whose import fails."""
    modules = {
        "own_animals": f"from {__name__} import Animal as Wanted\n{OWN}\n"
        "class Horse(Wanted): ...\nstar = Horse()\n",
        "own_broken": "raise OSError('the disk is\\n  full')",
        "own_needing": "import a_module_that_is_not_there",
        "own_package.__init__": "",
        "own_package.deep": "number = 5",
        "own_syntax": "def (",
    }
    for name, text in modules.items():
        path = tmp_path / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


FUNCTIONS = Registry("greeting", {"miau": lambda: "miau", "muh": lambda: "muh"})
CLASSES = Registry("animal", {"cat": Cat}, kind=Animal, classes=True)
THINGS = Registry("pet", {"tom": Cat()}, kind=Animal)


def test_a_registry_is_a_mapping_by_name_in_the_order_of_its_entries():
    assert list(FUNCTIONS) == ["miau", "muh"] and len(FUNCTIONS) == 2
    assert "miau" in FUNCTIONS and "wau" not in FUNCTIONS
    assert FUNCTIONS["muh"]() == "muh"
    assert dict(CLASSES) == {"cat": Cat}
    with pytest.raises(KeyError):
        assert FUNCTIONS["wau"]


def test_entries_of_a_registry_are_its_own():
    entries = {"cat": Cat}
    registry = Registry("animal", entries, kind=Animal, classes=True)
    entries["dog"] = Cat
    assert list(registry) == ["cat"]


def test_entries_are_found_by_name():
    assert FUNCTIONS.find("miau")() == "miau"
    assert CLASSES.find("cat") is Cat
    assert THINGS.find("tom") is THINGS["tom"]
    assert CLASSES.checked("cat") == "cat"


def test_the_users_own_are_found_by_import_path():
    assert FUNCTIONS.find("own_animals:bark")() == "wau"
    assert issubclass(CLASSES.find("own_animals:Horse"), Animal)
    assert isinstance(THINGS.find("own_animals:star"), Animal)
    assert CLASSES.checked("own_animals:Horse") == "own_animals:Horse"
    assert import_by_path("own_package.deep:number", "number") == 5
    assert import_by_path("own_animals:House.guard", "guard").__name__ == "Dog"
    assert import_by_path("own_animals:_hidden", "animal").__name__ == "Dog"


@pytest.mark.parametrize(
    ("registry", "name", "says"),
    [
        (FUNCTIONS, "miua", "there is no greeting 'miua': did you mean miau?"),
        (FUNCTIONS, "xyz", "there is no greeting 'xyz': choose from miau, muh"),
        (Registry("ghost", {}), "boo", "there is no ghost 'boo': there are none to choose from"),
        (FUNCTIONS, "", "there is no greeting '': choose from miau, muh"),
        (FUNCTIONS, "own_animals:", "there is no greeting 'own_animals:': choose from miau, muh"),
        (FUNCTIONS, ":bark", "there is no greeting ':bark': choose from miau, muh"),
        (
            FUNCTIONS,
            "nowhere.at_all:bark",
            "greeting 'nowhere.at_all:bark': there is no module 'nowhere' to import; "
            "install its package where the server and the clients run",
        ),
        (
            FUNCTIONS,
            "own_package.shallow:bark",
            "greeting 'own_package.shallow:bark': there is no module 'own_package.shallow' to "
            "import; install its package where the server and the clients run",
        ),
        (
            FUNCTIONS,
            "own_animals:brak",
            "greeting 'own_animals:brak': 'own_animals' has no 'brak'; did you mean bark?",
        ),
        (
            FUNCTIONS,
            "own_animals:House.gaurd",
            "greeting 'own_animals:House.gaurd': 'own_animals' has no 'House.gaurd'; ",
        ),
        (
            FUNCTIONS,
            "own_needing:bark",
            "greeting 'own_needing:bark': its import fails: "
            "No module named 'a_module_that_is_not_there'",
        ),
        (
            FUNCTIONS,
            "own_broken:bark",
            "greeting 'own_broken:bark': its import fails: the disk is full",
        ),
        (FUNCTIONS, "own_syntax:bark", "greeting 'own_syntax:bark': its import fails: "),
        (FUNCTIONS, "own_animals:number", "greeting 'own_animals:number' is 3, which cannot be"),
        (CLASSES, "own_animals:Stone", "but a subclass of Animal is needed"),
        (CLASSES, "own_animals:star", "but a subclass of Animal is needed"),
        (THINGS, "own_animals:rex", "but Animal is needed"),
        (THINGS, "own_animals:Horse", "but Animal is needed"),
    ],
)
def test_a_wrong_name_is_an_error_that_says_what_would_be_right(registry, name, says):
    for ask in (registry.find, registry.checked):
        with pytest.raises(SettingsError, match=re.escape(says)) as caught:
            ask(name)
        assert "\n" not in str(caught.value)
        assert isinstance(caught.value, UserError)


def test_what_failed_in_the_users_module_is_the_cause_of_the_complaint():
    with pytest.raises(SettingsError) as caught:
        import_by_path("own_broken:bark", "greeting")
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("path", ["own_animals", "own_animals:", ":bark", ""])
def test_a_path_has_a_module_and_a_name(path):
    assert not is_import_path(path)
    with pytest.raises(SettingsError, match="greeting .* is not of the form package.module:name"):
        import_by_path(path, "greeting")


def test_import_paths_are_told_from_names():
    assert is_import_path("package.module:name") and is_import_path("module:Class.attribute")
    assert not is_import_path("bayes-admm")


def test_who_misspelt_a_name_is_told_the_nearest_or_all():
    assert did_you_mean("prodct", ["product", "lp"]) == "did you mean product?"
    assert did_you_mean("zzz", ["product", "lp"]) == "choose from lp, product"
    assert did_you_mean(7, iter(["b", "a"])) == "choose from a, b"
    assert did_you_mean("a", []) == "there are none to choose from"
