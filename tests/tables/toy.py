"""A table on scikit-learn's digits, and outcomes by hand."""

import shutil

from fedivon_app.core.compose import CONF, compose
from fedivon_app.methods import settings_of
from fedivon_app.runs.fingerprint import code_of
from fedivon_app.tables.outcome import Outcome

TABLE = """
paper: fedivon
place: Table 9
title: Digits
cell: {experiment: demo, set: [data.clients=4, clients_per_round=null, evaluation.every=1]}
columns:
  - {name: Accuracy %, cell: {score: accuracy}}
  - {name: NLL, cell: {score: nll, rounds: [1, 2]}}
blocks:
  - name: digits
    rows:
      - {name: FedAvg, cell: {strategy: fedavg}, paper: [90 ± 1, 0.5]}
      - {name: FedIvon@mean, cell: {strategy: fedivon}, paper: [95, -]}
      - {name: FedIvon, cell: {strategy: fedivon, way: mc}, paper: [95 ± 0.5, 0.2]}
  - name: large
    rows:
      - {name: FedAvg, cell: {strategy: fedavg, set: ["model.options={sizes: [64, 64]}"]}}
    scales:
      paper: {cannot: It takes a day.}
claims:
  - {says: FedIvon is ahead., better: [FedIvon], worse: [FedAvg], columns: [Accuracy %]}
scales:
  paper: {seeds: 3, set: [rounds=20]}
  here: {seeds: 2, set: [rounds=2], words: Two rounds in place of 20.}
  quick: {seeds: 1, set: [rounds=1], words: One round.}
"""


def conf_with(tmp_path, **tables):
    """A copy of conf with these tables, by name, in place of the papers'."""
    conf = tmp_path / "conf"
    shutil.copytree(CONF, conf, ignore=shutil.ignore_patterns("table"))
    (conf / "table").mkdir()
    for name, text in tables.items():
        (conf / "table" / f"{name.replace('_', '-')}.yaml").write_text(text)
    return conf


def outcome(strategy, seed=0, accuracy=0.9, nll=0.5, rounds=2, **options):
    """A run of two rounds with these scores at the end, scored in every round."""
    scores = {}
    for way in ("mean", "mc") if strategy == "fedivon" else ("mean",):
        scores[f"gm.test.{way}.accuracy"] = {1: accuracy / 2, 2: accuracy}
        scores[f"gm.test.{way}.nll"] = {1: 2 * nll, 2: nll}
    values = {
        "seed": seed,
        "date": "2026-11-18",
        "commit": "abc1234",
        "code": code_of(compose(settings_of, "quickstart", strategy)),
        "rounds": rounds,
        "seconds": 10.0,
        "training_seconds": 4.0,
        "megabytes": 0.5,
        "clients": 4,
        "scores": scores,
    }
    return Outcome(**(values | options))
