"""Runs that are made one by one, and side by side in processes of their own."""

import time

import pytest

from fedivon_app.cli.commands import tune
from fedivon_app.core.errors import FlowerError
from fedivon_app.federation.inline_federation import InlineFederation
from fedivon_app.federation.local_federation import Federation
from fedivon_app.federation.run_queue import Where
from fedivon_app.progress import Line
from fedivon_app.tuning.makers import Job, OneByOne, SideBySide
from fedivon_app.tuning.telling import Telling, without_test_scores
from tests.tuning.helpers import Pretended


def job(name, seconds=0.0, **options):
    return Job(name, {"name": name, "seconds": str(seconds), **options}, nodes=4)


def test_one_by_one_starts_a_federation_for_the_first_run_alone(tmp_path):
    ended = tmp_path / "ended"
    shown = []
    with OneByOne(Pretended(ended=str(ended)), shown.append) as maker:
        assert maker.free == 1
    assert not ended.exists()
    with OneByOne(Pretended(ended=str(ended)), shown.append) as maker:
        for name in ("one", "two"):
            maker.start(job(name))
            assert maker.free == 0
            assert maker.wait().name == name
    assert ended.read_text() == "ended\n"
    assert shown[0] == "round 1/1 of one on 4 nodes with 1 CPUs"


def test_side_by_side_runs_are_made_at_the_same_time(tmp_path):
    ended = tmp_path / "ended"
    shown = []
    with SideBySide(Pretended(ended=str(ended), cpus=2), 2, shown.append) as maker:
        maker.start(job("slow", 2.0))
        maker.start(job("fast", 0.1, why="diverged"))
        assert maker.free == 0
        first = maker.wait()
        assert first.name == "fast" and first.end.failed and first.end.text == "diverged"
        assert maker.free == 1
        maker.start(job("third", 0.0))
        names = {maker.wait().name, maker.wait().name}
        assert names == {"slow", "third"} and maker.free == 2
        maker.start(job("last", flower="no SuperLink"))
        with pytest.raises(FlowerError, match="no SuperLink"):
            maker.wait()
    assert ended.read_text() == "ended\nended\n"
    assert "round 1/1 of slow on 4 nodes with 2 CPUs" in shown


def test_who_leaves_early_ends_what_is_under_way(tmp_path):
    ended = tmp_path / "ended"
    shown = []
    began = time.monotonic()
    with SideBySide(Pretended(ended=str(ended)), 1, shown.append) as maker:
        maker.start(job("endless", 1000))
        worker = maker._workers[0]
        assert worker.pipe.poll(30)  # its first line: it is at work
    assert time.monotonic() - began < 40 and not worker.process.is_alive()
    assert ended.read_text() == "ended\n"


def test_cores_are_shared(monkeypatch):
    monkeypatch.setattr(tune.os, "cpu_count", lambda: 8)
    federation = tune.beside(Where(cpus=4), count=3).federation()
    assert isinstance(federation, Federation) and federation.cores == 2
    (_, told) = federation._federation(20, 4)
    assert told == "num-supernodes=20 client-resources-num-cpus=2 init-args-num-cpus=2"
    (_, told) = Where(cpus=2, gpus=0.25, cores=8).federation()._federation(20, 2)
    assert told.endswith("init-args-num-cpus=8 client-resources-num-gpus=0.25")
    inline = tune.beside(Where(engine="inline"), count=20).federation()
    assert isinstance(inline, InlineFederation) and inline.cores == 1


def test_no_test_score_is_told(capsys):
    line = (
        "round 3/9  train loss 0.5  mean: acc 90.00 nll 0.4 ece 0.1  mc: acc 91.00 nll 0.4 ece 0.1"
    )
    assert without_test_scores(f"{line}  dropped 1  0.5 s") == (
        "round 3/9  train loss 0.5  dropped 1  0.5 s"
    )
    Telling(Line(), verbose=True).follow(line)
    Telling(Line(), verbose=False).follow(line)
    Telling(Line(), verbose=False).say("a line")
    assert capsys.readouterr().out == "round 3/9  train loss 0.5\na line\n"
