"""Tables from a file to predictions: in a simulation, and at sites that have a table each."""

import json

import numpy as np
import pytest

from fedivon_app import server_app
from fedivon_app.core.errors import RunError
from fedivon_app.runs.folder import Run
from fedivon_app.runs.personalise import personalise
from fedivon_app.runs.predictions import predictions
from fedivon_app.runs.trained_model import Trained
from fedivon_app.runs.uncertainty import assess
from tests.golden import InProcess, context_of

SITES = ("Aachen", "Bonn", "Trier")
SHORT = [
    "rounds=3",
    "client.epochs=10",
    "client.batch_size=8",
    "evaluation.samples=4",
    "evaluation.final_samples=4",
]
FORMAT = [
    "data.label_column=diagnosis",
    "data.feature_columns=[size,weight,colour]",
    "data.categories.colour=[blue,red]",
    "data.classes=[benign,malignant]",
]


def rows_of(generator, count):
    """Columns of very different scales, of which one says what there is to know."""
    ill = generator.random(count) < 0.5
    size = 5e4 + 1e4 * ill + generator.normal(0, 2e3, count)
    lines = []
    for number in range(count):
        weight = "" if generator.random() < 0.1 else f"{generator.normal(1e-3, 1e-4):.3e}"
        colour = generator.choice(["blue", "red"])
        kind = "malignant" if ill[number] else "benign"
        lines.append(f"{size[number]:.1f},{weight},{colour},{kind}")
    return lines


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A table of all sites, and the tables of each."""
    folder = tmp_path_factory.mktemp("tables")
    generator = np.random.default_rng(1)
    everything = ["size,weight,colour,diagnosis,hospital"]
    for number, site in enumerate(SITES):
        lines = rows_of(generator, 60 + 20 * number)
        everything += [f"{line},{site}" for line in lines]
        header = "size,weight,colour,diagnosis"
        (folder / f"{site}.csv").write_text("\n".join([header, *lines]) + "\n")
    (folder / "all.csv").write_text("\n".join(everything) + "\n")
    return folder


def made(folder, words, grid):
    settings = [*SHORT, "run.client_state=run", *words]
    config = {"experiment": "table", "runs": str(folder)}
    config["set"] = " ".join(f"'{word}'" for word in settings)
    server_app.main(grid, context_of(config))
    return Run.open(next(folder.iterdir()))


def facts(run):
    return json.loads((run.folder / "model.json").read_text())


@pytest.fixture(scope="module")
def simulated(tables, tmp_path_factory):
    words = [
        f"data.path={tables / 'all.csv'}",
        "data.label_column=diagnosis",
        "data.client_column=hospital",
        "evaluation.clients_every=3",
        "evaluation.personal=true",
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server_app, "write_report", lambda run: None)
        return made(tmp_path_factory.mktemp("runs"), words, InProcess(3))


def sites_grid(tables):
    grid = InProcess(3)
    for context, site in zip(grid.contexts.values(), SITES, strict=True):
        context.node_config |= {"data-path": str(tables / f"{site}.csv"), "name": site.lower()}
    return grid


def test_the_standard_is_that_of_all_rows_to_train_with(simulated):
    known = facts(simulated)
    assert known["class_names"] == ["benign", "malignant"]
    source = Trained.open(simulated).known
    assert source.table.features == ["size", "weight", "colour=blue", "colour=red"]
    from fedivon_app.datasets.loading import division

    x = division(simulated.settings.data, 3, 0).source.x_train.astype(np.float64)
    np.testing.assert_allclose(known["standard"]["mean"][:2], np.nanmean(x, axis=0)[:2])
    np.testing.assert_allclose(known["standard"]["deviation"][:2], np.nanstd(x, axis=0)[:2])
    assert known["standard"]["mean"][2:] == [0, 0] and known["standard"]["deviation"][2:] == [1, 1]
    assert known["missing"] == {"weight": int(np.isnan(x[:, 1]).sum())} and known["missing"]
    record = list(simulated.metrics())[-1]
    assert record["gm"]["test"]["mean"]["accuracy"] > 0.9
    by_client = record["gm"]["clients_before_training"]["mean"]
    assert by_client["accuracy"] == pytest.approx(record["gm"]["test"]["mean"]["accuracy"])


def test_predictions_of_a_table_have_names_and_are_standardised(simulated, tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("colour,weight,size\nblue,,62000\nred,0.001,49000\ngreen,0.001,49000\n")
    trained = Trained.open(simulated)
    said = list(predictions(trained, [path], samples=8))
    assert [one.name for one in said] == [f"{path}[{row}]" for row in range(3)]
    assert [one.said["class"] for one in said] == ["malignant", "benign", "benign"]
    path.write_text("colour,wieght,size\nblue,,62000\n")
    (failed,) = predictions(trained, [path], samples=8)
    assert "'weight'" in str(failed.error) and "did you mean wieght?" in str(failed.error)


def test_what_is_judged_later_is_what_was_scored(simulated):
    again = assess(simulated, samples=4)["ways"]
    scored = list(simulated.metrics())[-1]["gm"]["test"]
    for way in ("mean", "mc"):
        assert again[way]["scores"]["nll"] == pytest.approx(scored[way]["nll"])


def test_a_newcomer_fits_a_table_of_its_own(simulated, tables, tmp_path):
    fitted = personalise(simulated, tables / "Bonn.csv", tmp_path / "own")
    assert fitted.num_train + fitted.num_test == 80
    assert fitted.scores["gm"]["mean"]["accuracy"] > 0.9
    own = Trained.open(tmp_path / "own")
    assert own.settings.data.standard == Trained.open(simulated).settings.data.standard


def test_sites_with_tables_of_their_own_agree(tables, tmp_path, monkeypatch):
    monkeypatch.setattr(server_app, "write_report", lambda run: None)
    words = ["data.source=nodes", "evaluation.clients_every=3", "data.clients=3", *FORMAT]
    run = made(tmp_path / "runs", words, sites_grid(tables))
    known = facts(run)
    assert known["shape"] == [4] and known["class_names"] == ["benign", "malignant"]
    assert known["standard"]["mean"][0] == pytest.approx(5.5e4, rel=0.05)
    record = list(run.metrics())[-1]
    assert record["gm"]["clients_before_training"]["mean"]["accuracy"] > 0.9
    # who goes on asks nobody again
    monkeypatch.setattr("fedivon_app.server.standardising._total", None)
    config = {"resume": str(run.folder), "set": "rounds=4"}
    server_app.main(sites_grid(tables), context_of(config))
    assert facts(Run.open(run.folder))["standard"] == known["standard"]


def test_secure_aggregation_gives_the_same_standard_and_sites_refuse_to_tell_their_own(
    tables, tmp_path, monkeypatch
):
    monkeypatch.setattr(server_app, "write_report", lambda run: None)
    words = ["data.source=nodes", "data.clients=3", *FORMAT, "rounds=1", "client.epochs=1"]
    words += ["client.class_weights=balanced"]
    known = [
        facts(made(tmp_path / name, [*words, f"privacy.secure_aggregation={name}"], grid))
        for name, grid in (("true", sites_grid(tables)), ("false", sites_grid(tables)))
    ]
    for key in ("mean", "deviation"):
        found = known[0]["standard"][key]
        np.testing.assert_allclose(found, known[1]["standard"][key], rtol=1e-12)
    assert known[0]["missing"] == known[1]["missing"]
    np.testing.assert_allclose(known[0]["class_weights"], known[1]["class_weights"])
    cautious = sites_grid(tables)
    for context in cautious.contexts.values():
        context.node_config["smallest-cohort"] = 3
    with pytest.raises(RunError, match="in the open: set privacy.secure_aggregation=true"):
        made(tmp_path / "open", words, cautious)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([*FORMAT[:1]], "set data.feature_columns and data.classes"),
        ([*FORMAT[:2], FORMAT[3]], "'colour' should hold numbers.*data.categories.colour"),
        (
            [*FORMAT, "data.classes=[benign,other]"],
            "'malignant', which is none of the classes benign",
        ),
        ([*FORMAT, "data.feature_columns=[sise,colour]"], "'sise'.*did you mean size"),
    ],
)
def test_what_sites_must_be_told_is_said(tables, tmp_path, monkeypatch, words, why):
    monkeypatch.setattr(server_app, "write_report", lambda run: None)
    words = ["data.source=nodes", "data.clients=3", *words]
    with pytest.raises(RunError, match=why):
        made(tmp_path / "runs", words, sites_grid(tables))


def test_arrays_are_standardised_where_it_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(server_app, "write_report", lambda run: None)
    generator = np.random.default_rng(0)
    y = np.arange(120) % 2
    x = np.stack([1e5 * y + generator.normal(0, 1e4, 120), generator.normal(0, 1e-3, 120)], axis=1)
    path = tmp_path / "a.npz"
    np.savez(path, x_train=x[:90], y_train=y[:90], x_test=x[90:], y_test=y[90:])
    words = ["data.source=npz", f"data.path={path}", "data.clients=3", "data.standardise=true"]
    run = made(tmp_path / "runs", words, InProcess(3))
    np.testing.assert_allclose(facts(run)["standard"]["mean"], x[:90].mean(axis=0), rtol=1e-5)
    assert list(run.metrics())[-1]["gm"]["test"]["mean"]["accuracy"] > 0.9
    with pytest.raises(RunError, match="data.standardise is for tables.*for each channel"):
        words = ["data.source=digits", "data.clients=3", "data.standardise=true"]
        made(tmp_path / "more", words, InProcess(3))


def test_pictures_are_standardised_by_what_is_known_of_their_channels(tmp_path, monkeypatch):
    """In every place alike: where clients learn, and where the server scores."""
    monkeypatch.setattr(server_app, "write_report", lambda run: None)
    known = "data.standard={mean: [0.3], deviation: [0.5]}"
    words = ["data.source=digits", "data.clients=3", "evaluation.clients_every=0", known]
    grid = InProcess(3)
    run = made(tmp_path / "runs", words, grid)
    assert facts(run)["standard"]["mean"] == [0.3]
    assert list(run.metrics())[-1]["gm"]["test"]["mean"]["accuracy"] > 0.5
    (pixels,) = Trained.open(run).inputs(np.full((1, 8, 8), 255, np.uint8)).unique().tolist()
    assert pixels == pytest.approx(1.4)
    for more, why in (
        (["data.standard={mean: [0.3, 0.3], deviation: [1.0, 1.0]}"], "2 means.*1 channels"),
        ([known, "data.scaling=signed"], "pixels from 0 to 1, and data.scaling is signed"),
    ):
        with pytest.raises(RunError, match=why):
            made(tmp_path / "more", [*words[:3], *more], InProcess(3))
