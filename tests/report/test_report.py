"""Pages of runs: the numbers are the files', and what is missing does no harm."""

import json
import re
import shlex
from html import unescape
from itertools import combinations
from statistics import fmean, stdev

import numpy as np
import pytest

from fedivon_app.core.compose import compose
from fedivon_app.methods import settings_of
from fedivon_app.report import assets, plots
from fedivon_app.report import html as template
from fedivon_app.report.chapters.settings import command
from fedivon_app.report.grouping import grouped
from fedivon_app.report.pages import write_comparison, write_report
from fedivon_app.report.results import RunResults
from fedivon_app.report.style import COLOURS, COLOURS_DARK, Key, look
from fedivon_app.runs.folder import Run
from tests.report.pages import Page, assessed, new_run, read, record, scored, scores

pytestmark = pytest.mark.usefixtures("quick")


def test_a_full_run_has_every_chapter_and_figure(tmp_path, pngs):
    run = new_run(tmp_path, scored(), uncertainty=assessed())
    path = write_report(run)
    assert path == run.folder / "report.html"
    page = read(path)
    text = unescape(path.read_text())
    sections = [
        "scores",
        "curves",
        "calibration",
        "retention",
        "ood",
        "clients",
        "training",
        "settings",
    ]
    assert re.findall(r'<section id="(\w+)"', text) == sections
    pngs = {png.stem for png in (run.folder / "plots").glob("*.png")}
    assert pngs == {
        *(
            f"{measure}-{axis}"
            for measure in ("accuracy", "nll", "ece")
            for axis in ("rounds", "bytes")
        ),
        *("reliability", "confidence", "train-loss", "largest-precision", "smallest-precision"),
        *(f"retention-{kind}" for kind in ("entropy", "aleatoric", "epistemic")),
        *(f"histogram-{kind}" for kind in ("entropy", "aleatoric", "epistemic")),
        *(f"clients-{kind}" for kind in ("accuracy", "weight", "loss")),
    }
    assert len(page.titles) == 1 + len(pngs)
    for fact in (
        "completed",
        "2 of 2 rounds",
        "digits (20 clients, shards)",
        "fedivon",
        "seed 0",
        "6 s",
        "3 MB sent",
    ):
        assert f"<li>{fact}</li>" in text
    assert "Round 2 (last checkpoint), 10 test examples" in text
    areas = ["0.9000", "0.8500"]
    sure = "70.0% / 6.2%"
    at_the_mean = page.row("at the mean", "mnist, 50 / 40")
    assert at_the_mean[2:] == [*areas, template.NOTHING, sure]
    assert page.row("Monte Carlo", "mnist, 50 / 40")[2:] == [*areas, "0.8123", sure]
    for setting in ("hess_init: 1.0", "weighting: size", "experiment: demo"):
        assert setting in text


def test_scores_of_a_run_and_its_best_held_out_round(tmp_path):
    first = {"test": {"mean": scores(0.61237, 0.5)}, "holdout": {"mean": scores(0.7)}}
    last = {"test": {"mean": scores(0.6, 0.7, 0.2, 0.4)}, "holdout": {"mean": scores(0.8)}}
    run = new_run(tmp_path, [record(1, gm=first), record(2, gm=last)], status=None)
    (run.folder / "checkpoint" / "best").mkdir(parents=True)
    (run.folder / "checkpoint" / "best" / "best.json").write_text(
        json.dumps({"round": 1, "score": 1.0})
    )
    run.summarise("completed")
    page = read(write_report(run))
    best = page.row("central test set", "at the mean, best held-out round")[2:]
    assert best == ["61.24★ best", "0.5000★ best", "0.1000★ best", "0.5000", "1"]
    last = page.row("central test set", "at the mean")[2:]
    assert last == ["60.00", "0.7000", "0.2000", "0.4000★ best", "2"]
    assert (
        page.row("held-out examples", "at the mean")[2] == "80.00★ best"
    )  # against its own other row, not the test's


def test_a_lone_row_is_not_called_best(tmp_path):
    page = read(write_report(new_run(tmp_path, [record(2, gm={"test": {"mean": scores(0.5)}})])))
    assert page.row("central test set", "at the mean")[2:] == [
        "50.00",
        "1.0000",
        "0.1000",
        "0.5000",
        "2",
    ]


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: new_run(folder, status=None),
        lambda folder: new_run(folder, status="failed", detail="round 1: the run diverged"),
        lambda folder: new_run(folder, [record(1)], status="stopped"),
        lambda folder: new_run(
            folder, [record(1, clients=[], train_loss=None, seconds={})], status=None
        ),
        lambda folder: new_run(folder, [{"round": 1}], status=None),
        lambda folder: new_run(
            folder, [record(2, gm={"clients_before_training": {"mean": scores(0.5)}})]
        ),
        lambda folder: new_run(
            folder, [record(2, gm={"test": {"mean": scores(None, float("nan"), float("inf"))}})]
        ),
        lambda folder: new_run(folder, scored(), uncertainty=assessed(ood=False)),
        lambda folder: new_run(folder, scored(), uncertainty={"round": 2, "ways": {"mean": {}}}),
        lambda folder: new_run(
            folder, scored(), uncertainty={"ways": {"mean": {"scores": scores(0.5)}}}
        ),
        lambda folder: new_run(
            folder, [record(1, posterior={"largest_precision": 0, "smallest_precision": None})]
        ),
        lambda folder: new_run(
            folder, [record(2, gm={"holdout": {"mc": scores(0.5, samples=8)}})], strategy="fedavg"
        ),
    ],
)
def test_a_run_with_little_in_it_still_has_pages(make, tmp_path):
    run = make(tmp_path / "runs")
    for path in (write_report(run), write_comparison([run, run], tmp_path / "compare")):
        page = read(path)
        assert "nan" not in {cell.lower() for row in page.rows for cell in row}
        assert page.names.count("section") >= 3


def test_a_run_on_sites_files_is_not_to_be_simulated_again():
    again = command(compose(settings_of, "sites"))
    assert "--superlink HOST:PORT" in again
    assert "--superlink" not in command(compose(settings_of, "demo"))


def test_missing_files_are_named(tmp_path):
    run = new_run(tmp_path, scored(), status=None)
    text = write_report(run).read_text()
    assert "unfinished: no summary.json was written" in text
    assert "Uncertainty is measured when a run ends." in text
    ended = write_report(new_run(tmp_path, scored())).read_text()
    assert "No uncertainty.json is there" in ended


AT_SITES = ["dataset=null", "data.source=nodes", "data.shape=[8,8,1]", "data.num_classes=10"]


def test_a_run_on_sites_files_says_whose_data_they_are(tmp_path):
    text = write_report(new_run(tmp_path, [record(1)], sets=AT_SITES)).read_text()
    assert "the sites&#x27; own data" in text and "shards" not in text.split("<main>")[0]
    assert "The server of this run has no test data" in text


def test_a_failed_run_says_why(tmp_path):
    text = write_report(
        new_run(tmp_path, [record(1)], "failed", "round 2: <the> run diverged")
    ).read_text()
    assert "failed: round 2: &lt;the&gt; run diverged" in text
    assert "No round was scored." in text


def test_words_from_settings_are_escaped(tmp_path):
    evil = "</svg><script>alert(1)</script>&$x$_"
    runs = [
        new_run(tmp_path, scored(0.5 + n / 10), sets=[f"model.factory='a:{evil}{n}'"])
        for n in range(2)
    ]
    for path in (
        write_report(runs[0]),
        write_comparison(runs, tmp_path / "c"),
        write_comparison(runs, tmp_path / "d", ["_a", evil], evil),
    ):
        text = path.read_text()
        assert text.count("<script>") == 1 and "<script>alert" not in text
        assert "&lt;script&gt;alert(1)" in text
        Page(text)


def test_pages_need_nothing_but_themselves(tmp_path):
    runs = [new_run(tmp_path, scored(0.5), uncertainty=assessed(), seed=seed) for seed in range(2)]
    runs.append(new_run(tmp_path, scored(0.6), uncertainty=assessed(), sets=["client.ess=7"]))
    for path in (write_report(runs[0]), write_comparison(runs, tmp_path / "compare")):
        text = path.read_text()
        page = read(path)
        assert all(address.startswith(("#", "data:")) for address in page.addresses)
        assert not {"iframe", "object", "embed", "img", "base", "image"} & set(page.names)
        assert not re.search(r"https?:|@import|@font-face|url\((?!#)", text)
        assert len(page.ids) == len(set(page.ids))
        targets = [a[1:] for a in page.addresses if a.startswith("#")] + re.findall(
            r"url\(#([^)]+)\)", text
        )
        assert targets and set(targets) <= set(page.ids)


def test_figures_take_their_colours_from_the_page(tmp_path):
    text = write_report(new_run(tmp_path, scored(), uncertainty=assessed())).read_text()
    pictures = re.findall(r"<svg viewBox.*?</svg>", text, re.DOTALL)
    assert len(pictures) > 20
    for picture in pictures:
        assert not re.search(r"#[0-9a-f]{6}\b", picture)
        assert "font-family" not in picture and "font:" not in picture
    used = set(re.findall(r"var\((--[\w-]+)\)", text))
    assert {name for name in used if f"{name}:" not in text} == set()


def test_comparison_has_mean_and_deviation_over_seeds_and_marks_the_best(tmp_path):
    accuracies = [0.5, 0.53, 0.59]
    losses = [1.0, 1.2, 1.1]
    pairs = zip(accuracies, losses, strict=True)
    runs = [
        new_run(tmp_path, scored(a, nll=n), seed=s, uncertainty=assessed(epistemic=a))
        for s, (a, n) in enumerate(pairs)
    ]
    runs += [new_run(tmp_path, scored(0.6, nll=0.95), sets=["client.ess=7"])]
    page = read(write_comparison(runs, tmp_path / "compare", ["many", "one"]))
    # mean of 50, 53, 59 is 54 and their deviation sqrt((16 + 1 + 25) / 2);
    # of 1, 1.2, 1.1 it is 1.1 and 0.1
    assert page.row("many", "at the mean") == [
        "many",
        "at the mean",
        "54.00 ± 4.58",
        "1.100 ± 0.100",
        "0.100 ± 0.000",
        "0.500 ± 0.000",
        "3",
        "2",
    ]
    assert page.row("one", "at the mean")[:4] == ["one", "at the mean", "60.00", "0.9500"]
    assert page.row("one", "MC, 64 samples")[2:4] == ["61.00★ best", "0.9000★ best"]
    assert page.row("many", "MC, 64 samples")[2:4] == ["55.00 ± 4.58", "0.900 ± 0.000★ best"]
    assert (
        page.row("many", "Monte Carlo", "mnist, 50 / 40")[-2]
        == f"{fmean(accuracies):.3f} ± {stdev(accuracies):.3f}"
    )
    assert "Not assessed: one." in (tmp_path / "compare" / "compare.html").read_text()


def test_what_reads_the_same_is_as_good():
    values = ([0.5001], [0.5, 0.5004], [0.5009, 0.5011], [0.7])
    plain = [[template.score_cell(one)] for one in values]
    rows = template.mark_best(plain, 0, high=False, alike=[0] * 4)
    assert [row[0].best for row in rows] == [True, True, False, False]
    assert [row[0].text for row in rows] == ["0.5001", "0.500 ± 0.000", "0.501 ± 0.000", "0.7000"]


def test_no_best_across_different_data(tmp_path):
    runs = [new_run(tmp_path, [record(2, gm={"test": {"mean": scores(0.5)}})])]
    runs += [
        new_run(
            tmp_path,
            [record(2, gm={"test": {"mean": scores(0.9)}})],
            sets=["dataset=null", "data.source=synthetic"],
        )
    ]
    assert "★" not in "".join(
        cell for row in read(write_comparison(runs, tmp_path / "c")).rows for cell in row
    )


def test_failed_runs_are_listed_and_left_out_of_means(tmp_path):
    runs = [new_run(tmp_path, scored(0.5)), new_run(tmp_path, scored(0.7), seed=1)]
    runs += [new_run(tmp_path, scored(0.1), "failed", "round 2: NaN", seed=2)]
    runs += [new_run(tmp_path, [], "failed", "round 1: bad", sets=["client.ess=7"])]
    page = read(write_comparison(runs, tmp_path / "compare", ["good", "bad"]))
    assert page.row("good", "at the mean")[2] == "60.00 ± 14.14"
    assert page.row("bad", "failed")[2:] == [template.NOTHING] * 4 + ["0", template.NOTHING]
    assert page.row("good", "failed", "2")[-1] == "round 2: NaN"
    assert page.row("bad", "failed", "0")[-1] == "round 1: bad"
    groups = grouped([RunResults.read(run) for run in runs]).groups
    assert [len(group.results) for group in groups] == [2, 0]


def test_curves_are_means_at_the_rounds_that_all_runs_have(tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(
        plots,
        "curves",
        lambda title, x, y, lines, **_: drawn.setdefault((title, x), lines) and plots.Figure(),
    )
    for seed, accuracy in enumerate((0.5, 0.7)):
        gm = [{"test": {"mean": scores(accuracy + n / 10, seed)}} for n in range(3)]
        new_run(tmp_path, [record(n + 1, gm=gm[n]) for n in range(3 - seed)], "stopped", seed=seed)
    write_comparison(
        [Run.open(folder) for folder in sorted(tmp_path.iterdir())], tmp_path / "compare"
    )
    (line,) = drawn["Accuracy %", "round"]
    np.testing.assert_allclose(
        (line.x, line.y, line.deviation), ((1, 2), (60, 70), (200**0.5, 200**0.5))
    )
    (line,) = drawn["NLL", "MB sent, both directions"]
    np.testing.assert_allclose(
        (line.x, line.y, line.deviation), ((1.5, 3), (0.5, 0.5), (0.5**0.5, 0.5**0.5))
    )
    (line,) = drawn["Training loss", "round"]
    np.testing.assert_allclose((line.y, line.deviation), ((2, 1), (0, 0)))


@pytest.mark.parametrize(("times", "log"), [(3, False), (50, True)])
def test_bytes_that_are_far_apart_have_a_logarithmic_axis(times, log, tmp_path, monkeypatch):
    drawn = {}
    draw = plots.curves

    def note(title, x, y, lines, **more):
        drawn[title, x] = draw(title, x, y, lines, **more)
        return drawn[title, x]

    monkeypatch.setattr(plots, "curves", note)
    for strategy, factor in (("fedavg", times), ("fedivon", 1)):
        records = [
            record(n, gm={"test": {"mean": scores(n / 10)}}, bytes_down=factor * 10**6, bytes_up=0)
            for n in (1, 2)
        ]
        new_run(tmp_path / "runs", records, strategy=strategy)
    runs = [Run.open(folder) for folder in sorted((tmp_path / "runs").iterdir())]
    write_comparison(runs, tmp_path / "compare")
    scale = {x: figure.axes[0].get_xscale() for (_, x), figure in drawn.items()}
    assert scale["MB sent, both directions"] == ("log" if log else "linear")
    assert scale["round"] == "linear"


def test_histograms_on_different_edges_are_averaged_by_share():
    runs = [
        {"edges": [0, 1, 2], "in": [1.0, 0.0]},
        {"edges": [0, 2, 4], "in": [0.5, 0.5], "out": [0.0, 1.0]},
    ]
    shares = plots.Shares.mean(Key("", 0), runs)
    np.testing.assert_allclose((shares.edges[1:], shares.inside), ((2, 4), (0.75, 0.25)))
    assert shares.outside is None


def test_command_gives_the_same_settings(tmp_path):
    sets = ["client.ess=5.5", "data.shard_sizes=[5, 32]", "model.factory='a b:c'", "data.holdout=3"]
    run = new_run(tmp_path, seed=4, sets=sets)
    words = shlex.split(command(run.settings))
    assert words[:7] == ["fedivon", "run", "demo", "--strategy", "fedivon", "--seed", "4"]
    again = compose(settings_of, words[2], words[4], [f"seed={words[6]}", *words[8:]])
    assert again.model_dump(exclude={"run"}) == run.settings.model_dump(exclude={"run"})


def test_long_runs_stay_small(tmp_path):
    rng = np.random.default_rng(0)
    clients = [
        [
            {"partition": int(p), "loss": float(rng.random()), "weight": 0.1}
            for p in rng.choice(200, 10)
        ]
        for _ in range(2000)
    ]
    records = [
        record(
            n + 1,
            clients=clients[n],
            train_loss=float(rng.random()),
            posterior={
                "largest_precision": 1 + rng.random(),
                "smallest_precision": 0.5 * rng.random(),
            },
            gm={"test": {way: scores(*rng.random(4).tolist()) for way in ("mean", "mc")}},
        )
        for n in range(2000)
    ]
    run = new_run(tmp_path, status=None)
    run.write("metrics.jsonl", "".join(json.dumps(one) + "\n" for one in records))
    assert write_report(run).stat().st_size < 2_000_000


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return np.dot(
        (0.2126, 0.7152, 0.0722),
        [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts],
    )


@pytest.mark.parametrize(("colours", "paper"), [(COLOURS, "#ffffff"), (COLOURS_DARK, "#15181d")])
def test_colours_stand_out_from_the_page(colours, paper):
    assert f"--paper: {paper}" in assets.CSS
    for colour in colours:
        low, high = sorted((luminance(colour), luminance(paper)))
        assert (high + 0.05) / (low + 0.05) >= 3


def test_every_group_of_a_sweep_looks_different():
    looks = [look(style) for style in range(24)]
    assert all((a.colour, a.dash) != (b.colour, b.dash) for a, b in combinations(looks, 2))
