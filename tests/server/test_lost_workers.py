"""Workers of Flower's simulation that die: what of Flower this rests on is as it was.

tests/e2e/test_ray.py lets one die.
"""

from importlib import import_module

from fedivon_app.node.flower import missing
from fedivon_app.server import lost_workers
from fedivon_app.server.lost_workers import ACTORS, NAMES, POOL, outlive_lost_workers


def test_flower_has_the_names_that_are_mended():
    assert missing(NAMES) == ""
    pool = getattr(import_module(ACTORS), POOL)
    for name in ("_future_to_actor", "num_actors", "create_actor_fn"):
        assert name in pool.__init__.__code__.co_names


def test_another_flower_is_left_alone(monkeypatch):
    pool = getattr(import_module(ACTORS), POOL)
    before = dict(vars(pool))
    unknown = lost_workers.Name(ACTORS, f"{POOL}.send", ("self",))
    monkeypatch.setattr(lost_workers, "NAMES", (*NAMES, unknown))
    outlive_lost_workers()
    assert dict(vars(pool)) == before
