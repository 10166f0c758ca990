"""Which runs belong together, and what groups of them are called."""

import pytest

from fedivon_app.core.errors import UserError
from fedivon_app.report.grouping import grouped
from fedivon_app.report.pages import write_comparison
from fedivon_app.report.results import RunResults
from tests.report.pages import new_run

pytestmark = pytest.mark.usefixtures("quick")


def test_groups_are_runs_that_differ_in_the_seed_alone(tmp_path):
    runs = [
        new_run(tmp_path, seed=0, sets=["merge.weighting=size"]),
        new_run(tmp_path, seed=0, sets=["merge.weighting=equal"]),
        new_run(
            tmp_path / "elsewhere", seed=1, sets=["merge.weighting=size", "run.checkpoint_every=3"]
        ),
    ]
    found = grouped([RunResults.read(run) for run in runs])
    assert [(g.label, [one.settings.seed for one in g.results]) for g in found.groups] == [
        ("size", [0, 1]),
        ("equal", [0]),
    ]
    assert found.named_by == "Groups are named by merge.weighting."


def label(tmp_path, *kinds):
    runs = [new_run(tmp_path, strategy=strategy, sets=sets) for strategy, *sets in kinds]
    found = grouped([RunResults.read(run) for run in runs])
    return [group.label for group in found.groups], found.named_by


def test_names_of_groups_begin_with_the_strategy_where_it_differs(tmp_path):
    kinds = (
        ("fedavg",),
        ("fedivon", "client.ess=500"),
        ("fedivon", "client.ess=50", "merge.weighting=equal"),
    )
    names, named_by = label(tmp_path, *kinds)
    assert names == ["fedavg", "fedivon, ess=500, size", "fedivon, ess=50, equal"]
    assert (
        named_by
        == "Groups are named by strategy; those of fedivon also by client.ess, merge.weighting."
    )
    assert label(tmp_path, ("fedavg",)) == (["fedavg"], "")
    kinds = [
        (strategy, f"model.options.sizes=[{n}]")
        for strategy in ("fedavg", "fedivon")
        for n in (1, 2)
    ]
    names, named_by = label(tmp_path, *kinds)
    assert names == [
        "fedavg, sizes=[1]",
        "fedavg, sizes=[2]",
        "fedivon, sizes=[1]",
        "fedivon, sizes=[2]",
    ]
    assert named_by == "Groups are named by strategy, model.options.sizes."


def test_names_of_groups_leave_out_what_follows_from_another_setting(tmp_path):
    pairs = [
        ("nwa", "size", 1),
        ("nwa", "equal", 1),
        ("product", "size", 2),
        ("product", "equal", 2),
        ("ws", "size", 2),
    ]
    kinds = [
        ("fedivon", f"merge.rule={r}", f"merge.weighting={w}", f"client.epochs={e}")
        for r, w, e in pairs
    ]
    names, named_by = label(tmp_path, *kinds)
    assert names == ["nwa, size", "nwa, equal", "product, size", "product, equal", "ws, size"]
    assert named_by == "Groups are named by merge.rule, merge.weighting."


def test_given_names_are_of_runs_or_of_groups(tmp_path):
    results = [
        RunResults.read(new_run(tmp_path, seed=s, sets=[f"client.ess={e}"]))
        for e in (5, 6)
        for s in (0, 1)
    ]
    assert [g.label for g in grouped(results, ["a", "b"]).groups] == ["a", "b"]
    assert [g.label for g in grouped(results, ["a", "a", "b", "c"]).groups] == ["a", "b", "c"]
    with pytest.raises(UserError, match="3 names for 4 runs in 2 groups"):
        grouped(results, ["a", "b", "c"])
    with pytest.raises(UserError, match="at least one run"):
        write_comparison([], tmp_path)
