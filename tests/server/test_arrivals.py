"""Arrays that have not come yet are asked for again soon."""

import sys
from functools import partial
from importlib import import_module

from fedivon_app.server import arrivals
from fedivon_app.server.arrivals import AGAIN, PULL, ask_again_sooner


def test_flowers_grid_asks_again_soon_however_often_it_is_told(monkeypatch):
    assert PULL.complaint() == ""
    grid = import_module(PULL.module)
    stock = getattr(grid.pull_objects, "func", grid.pull_objects)  # a run before may have told it
    assert "pull_objects" in grid.HttpGrid.pull_messages.__code__.co_names
    monkeypatch.setattr(grid, "pull_objects", stock)
    ask_again_sooner()
    ask_again_sooner()
    assert isinstance(grid.pull_objects, partial) and grid.pull_objects.func is stock
    assert grid.pull_objects.keywords == {"initial_backoff": AGAIN}


def test_a_flower_without_that_name_is_left_as_it_is(monkeypatch):
    grid = import_module(PULL.module)
    monkeypatch.setattr(arrivals, "PULL", arrivals.Name(PULL.module, "fetch_objects", ()))
    before = dict(vars(grid))
    ask_again_sooner()
    assert dict(vars(grid)) == before


def test_a_run_without_flowers_grid_does_not_import_it(monkeypatch):
    monkeypatch.delitem(sys.modules, PULL.module)
    ask_again_sooner()
    assert PULL.module not in sys.modules
