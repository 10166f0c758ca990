"""Run folders as the report reads them, made by hand, and what a page holds."""

import json
from html.parser import HTMLParser

from fedivon_app.core.compose import compose
from fedivon_app.methods import settings_of
from fedivon_app.runs.folder import Run

VOID = {"meta", "link", "input", "br", "hr", "img"}


class Page(HTMLParser):
    """What a test asks of a page, all of whose elements must be closed."""

    def __init__(self, text):
        super().__init__()
        self.addresses = []
        self.ids = []
        self.names = []
        self.titles = []
        self.rows = []
        self.open = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.names.append(tag)
        self.addresses += [
            attributes[key]
            for key in ("src", "href", "action", "data", "poster")
            if key in attributes
        ]
        self.ids += [attributes["id"]] if "id" in attributes else []
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data
        if self.open and self.open[-1] == "title":
            self.titles.append(data)

    def row(self, *begin):
        return next(row for row in self.rows if row[: len(begin)] == list(begin))


def scores(accuracy, nll=1.0, ece=0.1, brier=0.5, **more):
    return {"accuracy": accuracy, "nll": nll, "ece": ece, "brier": brier, **more}


def record(number, **more):
    return {
        "round": number,
        "bytes_down": 1_000_000,
        "bytes_up": 500_000,
        "dropped": [],
        "seconds": {"train": 2.0, "evaluate": 1.0, "clients": []},
        "clients": [
            {"partition": p, "num_examples": 5, "bytes": 9, "loss": 1 / number + p}
            for p in range(3)
        ],
        "merged": True,
        "train_loss": 2 / number,
        **more,
    }


def new_run(
    folder,
    records=(),
    status="completed",
    detail="",
    uncertainty=None,
    seed=0,
    strategy="fedivon",
    sets=(),
):
    overrides = [f"run.folder={folder}", f"seed={seed}", "rounds=2", *sets]
    run = Run.create(compose(settings_of, "demo", strategy, overrides))
    for one in records:
        run.append(one)
    if uncertainty is not None:
        (run.folder / "uncertainty.json").write_text(json.dumps(uncertainty))
    if status:
        run.summarise(status, detail)
    return run


def scored(accuracy=0.5, **more):
    """Two rounds with everything in them."""
    gm = {
        "test": {"mean": scores(accuracy, **more), "mc": scores(accuracy + 0.01, 0.9, samples=64)}
    }
    by_client = [{"partition": p, **scores(0.3 + p / 10)} for p in range(3)]
    gm["clients_before_training"] = {"mean": scores(0.4321), "by_client": by_client}
    posterior = {"largest_mean": 1.0, "largest_precision": 5e3, "smallest_precision": 4e3}
    clients = [
        {"partition": p, "num_examples": 5, "bytes": 9, "loss": 1.0, "weight": w}
        for p, w in ((0, 0.7), (2, 0.3))
    ]
    return [record(1, posterior=posterior), record(2, gm=gm, posterior=posterior, clients=clients)]


def assessed(ood=True, epistemic=0.8123):
    def way(kinds):
        hist = {"edges": [0.0, 0.5, 1.0], "in": [0.75, 0.25]} | ({"out": [0.5, 0.5]} if ood else {})
        return {
            "scores": scores(0.5),
            "reliability": {"confidence": [None, 0.6], "accuracy": [None, 0.5], "count": [0, 10]},
            "retention": {"fractions": [0.5, 1.0]} | {kind: [0.9, 0.5] for kind in kinds},
            "histograms": {kind: hist for kind in kinds},
        } | ({"ood": unknown(kinds)} if ood else {})

    def unknown(kinds):
        sure = {"from": 0.9, "in": 0.7, "out": 0.0625}
        sizes = {"num_in": 50, "num_out": 40}
        return {"source": "mnist", **sizes, "auroc": areas(kinds), "sure": sure}

    def areas(kinds):
        return {
            kind: {"entropy": 0.9, "aleatoric": 0.85, "epistemic": epistemic}[kind]
            for kind in kinds
        }

    ways = {
        "mean": way(["entropy", "aleatoric"]),
        "mc": way(["entropy", "aleatoric", "epistemic"]) | {"samples": 64},
    }
    return {"round": 2, "checkpoint": "last", "num_examples": 10, "ways": ways}


def read(path):
    return Page(path.read_text())
