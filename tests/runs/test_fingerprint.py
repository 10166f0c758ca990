"""Digests of code: what counts as a change, and what a run's folder keeps of it."""

import pytest

from fedivon_app.core.compose import compose
from fedivon_app.methods import METHODS, settings_of
from fedivon_app.runs.fingerprint import MIXED, _read, changed, code_of, digest, mixed
from fedivon_app.runs.folder import Run
from fedivon_app.runs.records import read_code

SOURCE = '''"""What it is."""
from math import inf
from pydantic import Field

class Settings:
    """Of a client."""
    rate: float = Field(0.1, gt=0)

    def half(self):
        return self.rate / 2

def limit(x):
    """Return x."""
    if x < 0:
        raise ValueError(f"{x} is less than 0")
    return min(x, inf)
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("What it is.", "What it was."),
        ("Of a client.", "Of a server."),
        ("Return x.", "Return it."),
        ("is less than 0", "must be 0 at the least"),
        ("0.1, gt=0", "0.2, gt=0"),  # the value itself is compared with the settings
        ("def limit", "# a comment\ndef limit"),
        ("import Field", "import Field, model_validator"),
        ("return min", "return  min"),
    ],
)
def test_words_and_fields_of_settings_do_not_count(old, new):
    assert old in SOURCE and digest(SOURCE.replace(old, new)) == digest(SOURCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.rate / 2", "self.rate / 3"),
        ("x < 0", "x <= 0"),
        ("import inf", "import pi as inf"),
        ("min(x, inf)", "max(x, inf)"),
        ("class Settings", "class Other"),  # whose fields are not settings
    ],
)
def test_what_computes_counts(old, new):
    assert old in SOURCE and digest(SOURCE.replace(old, new)) != digest(SOURCE)


def test_of_what_is_asleep_functions_do_not_count_but_all_else_does():
    asleep = _read(SOURCE, asleep=True)
    assert _read(SOURCE.replace("min(x, inf)", "max(x, inf)"), asleep=True) == asleep
    assert _read(SOURCE.replace("rate / 2", "rate / 3"), asleep=True) == asleep
    assert _read(f"LIMIT = 3\n{SOURCE}", asleep=True) != asleep
    imports = "from fedivon_app.core.errors import BadReply\n"
    inside = f"{imports}\ndef f():\n    raise BadReply('no')\n"
    assert _read(inside).imports == ("fedivon_app.core.errors",)
    assert _read(inside, asleep=True).imports == ()


@pytest.mark.parametrize("name", METHODS)
def test_a_methods_code_has_its_two_halves_and_not_all_others(name):
    code = code_of(compose(settings_of, "demo", name))
    halves = {METHODS[name].strategy.__module__, METHODS[name].client.__module__}
    assert halves < set(code)
    shared = {"core.flat", "core.posterior", "strategies.rounds", "datasets.partition"}
    assert {f"fedivon_app.{one}" for one in shared} < set(code)
    others = {method.client.__module__ for method in METHODS.values()} - set(code)
    assert len(others) >= 8
    assert not any(name.split(".")[1] in ("cli", "report", "tables", "federation") for name in code)


def test_a_run_that_goes_on_with_other_code_is_of_mixed_code(tmp_path):
    settings = compose(settings_of, "demo", overrides=[f"run.folder={tmp_path}"])
    run = Run.create(settings)
    run.note_code("abc1234")
    kept = read_code(run.folder)
    assert kept == {"commit": "abc1234", "modules": code_of(settings)}
    run.note_code("abc1234")
    assert read_code(run.folder) == kept
    before = kept["modules"] | {"fedivon_app.core.ivon": "another"}
    assert changed(before, kept["modules"]) == ["fedivon_app.core.ivon"]
    assert mixed(before, kept["modules"])["fedivon_app.core.ivon"] == MIXED
