"""A site's limits: what they refuse, by name, whatever a run asks for."""

import re

import pytest

from fedivon_app.core.compose import compose
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.ledger import Limit
from fedivon_app.core.site_policy import SitePolicy, is_site, site_ledger
from fedivon_app.methods import settings_of

OFF = "evaluation.clients_every=0"


def asked(*words, strategy="fedivon"):
    """The settings of a run, as they travel."""
    return compose(settings_of, "demo", strategy, [OFF, *words]).model_dump(mode="json")


@pytest.mark.parametrize(
    ("node", "words", "why"),
    [
        ({}, [], ""),
        ({"largest-epsilon": 4.0}, [], "largest-epsilon is 4, and the run is not private"),
        ({"largest-epsilon": 4.0}, ["privacy.epsilon=5"], "is 4, and privacy.epsilon is 5"),
        ({"largest-epsilon": 4.0}, ["privacy.epsilon=4"], ""),
        (
            {"largest-epsilon": 4.0, "epsilon-delta": 1e-6},
            ["privacy.epsilon=4"],
            "epsilon-delta is 1e-06, and privacy.delta is 1e-05",
        ),
        ({"smallest-cohort": 5}, ["clients_per_round=4"], "smallest-cohort is 5, and .* 4 clients"),
        ({"smallest-cohort": 5}, ["clients_per_round=5"], ""),
        ({"smallest-cohort": 30}, ["clients_per_round=null"], "has 20 clients"),
        ({"import-paths": False}, [], ""),
        (
            {"import-paths": False},
            ["model.factory=os.path:join"],
            "no import paths, and the run names model.factory os.path:join",
        ),
        ({"import-paths": False}, ["data.source=a.b:c"], "names data.source a.b:c"),
        ({"import-paths": False}, ["run.folder=a:b"], ""),
    ],
)
def test_what_a_site_refuses_is_named(node, words, why):
    refusal = SitePolicy.of({"partition-id": 0, **node}).refusal(asked(*words))
    assert re.search(why, refusal) if why else refusal == ""


def test_import_paths_are_found_in_lists_too():
    policy = SitePolicy(import_paths=False)
    assert "evaluation.scores a:b" in policy.refusal({"evaluation": {"scores": ["a:b"]}})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("largest-epsilon", "four"),
        ("largest-epsilon", 0),
        ("epsilon-limit", True),
        ("epsilon-delta", 1.5),
        ("smallest-cohort", 2.5),
        ("smallest-cohort", 0),
        ("import-paths", "no"),
        ("network", "off"),
    ],
)
def test_a_limit_that_is_none_is_an_error_by_its_name(key, value):
    with pytest.raises(SettingsError, match=f"node config's {key} is"):
        SitePolicy.of({key: value})


def test_sites_keep_a_ledger_and_simulated_clients_do_not(tmp_path):
    assert not is_site({"partition-id": 3, "num-partitions": 20})
    node = {"data-path": "x.npz", "state-path": str(tmp_path), "epsilon-limit": 3.0}
    assert is_site(node)
    ledger = site_ledger(node)
    assert (ledger.folder, ledger.limit) == (tmp_path / "ledger", Limit(3.0, 1e-5))
    assert site_ledger(node | {"ledger-path": "/l"}).folder.as_posix() == "/l"
