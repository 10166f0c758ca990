"""Attacks against defences, in one process: accuracy and calibration of what is learned.

    python -m tests.attack_table FILE --attacks sign-flip alie --shares 0.2 --robust none auto

Each run is a line of FILE; those that are there already are not made again. Without --attacks the
table of what FILE holds is printed. What it makes are runs of the real server and clients, without
reports; `fedivon sweep` makes the same with them, and takes longer. Bounds are not chosen by the
test part, but with --part holdout --set rounds=60 data.holdout=300, other seeds and another FILE.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from fedivon_app.core.compose import compose
from fedivon_app.core.errors import RunError
from fedivon_app.methods import method, settings_of
from fedivon_app.server.evaluation import Evaluator
from fedivon_app.server.setup import prepare
from fedivon_app.server.trial import trial_of
from fedivon_app.strategies.rounds import Rounds
from tests.golden import InProcess, prepare_process

SHORT = ["evaluation.every=0", "evaluation.clients_every=0", "evaluation.final_samples=32"]


def measured(
    experiment: str, strategy: str, words: list[str], part: str = "test"
) -> dict[str, Any]:
    """What came of a run: scores by Monte Carlo where there are any, liars found, CPU seconds.

    What clients keep lies in a folder of this run's own, so that several can be made at once.
    """
    with (
        tempfile.TemporaryDirectory() as place,
        mock.patch.dict(os.environ, {"FEDIVON_STATE": place}),
    ):
        return _measured(experiment, strategy, words, part)


def _measured(experiment: str, strategy: str, words: list[str], part: str) -> dict[str, Any]:
    settings = compose(settings_of, experiment, strategy, [*SHORT, *words])
    prepared = prepare(settings)
    strategy_ = method(strategy).strategy(settings, prepared.architecture)
    loop = Rounds(
        strategy_,
        strategy_.begin(prepared.flat.mean(), prepared.flat.buffers),
        trial=trial_of(settings, prepared),
    )
    observer = SimpleNamespace(score=lambda number, payload: None, finished=lambda *_: False)
    began = time.process_time()
    try:
        grid = InProcess(settings.data.clients)
        loop.start(grid, loop.arrays(), settings.rounds, observer=observer)
    except RunError as error:
        return {"accuracy": 0.0, "ece": 1.0, "failed": str(error)[:120]}
    seconds = time.process_time() - began
    evaluator = Evaluator(settings, prepared.flat, prepared.data.parts)
    scores = evaluator.score(part, loop.standing.payload, settings.evaluation.final_samples)
    best = list(scores.values())[-1]
    liars = loop.merging.vetting.attack.liars
    gone = loop.standing.history.left_out
    return {
        "accuracy": 100 * best["accuracy"],
        "ece": best["ece"],
        "backdoor": best.get("backdoor"),
        "liars": len(liars),
        "found": len(gone & liars),
        "honest_left_out": len(gone - liars),
        "seconds": seconds,
    }


def table(lines: list[dict[str, Any]]) -> str:
    """The runs as a table: a row an attack, a column a defence, means over seeds."""
    columns = list(dict.fromkeys((line["strategy"], line["robust"]) for line in lines))
    rows = list(dict.fromkeys((line["attack"], line["share"]) for line in lines))
    text = [f"| attack | {' | '.join(f'{s}, {r}' for s, r in columns)} |"]
    text.append("| --- |" + " --- |" * len(columns))
    for row in sorted(rows, key=lambda one: (one[1], one[0])):
        cells = []
        for column in columns:
            fit = [
                line
                for line in lines
                if (line["attack"], line["share"]) == row
                and (line["strategy"], line["robust"]) == column
            ]
            accuracy = sum(line["accuracy"] for line in fit) / max(len(fit), 1)
            ece = sum(line["ece"] for line in fit) / max(len(fit), 1)
            cells.append(f"{accuracy:.1f} / {ece:.3f} ({len(fit)})" if fit else "")
        text.append(f"| {row[0]} {row[1]} | {' | '.join(cells)} |")
    return "\n".join(text)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--experiment", default="demo")
    parser.add_argument("--strategies", nargs="+", default=["fedivon"])
    parser.add_argument("--attacks", nargs="*", default=[])
    parser.add_argument("--shares", nargs="+", default=["0.2"])
    parser.add_argument("--robust", nargs="+", default=["none", "auto"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--part", default="test", choices=("test", "holdout"))
    parser.add_argument("--set", nargs="*", default=["rounds=60"])
    options = parser.parse_args()
    prepare_process()
    logging.disable(logging.WARNING)
    lines = []
    if options.file.exists():
        lines = [json.loads(line) for line in options.file.read_text().splitlines()]
    names = ("experiment", "strategy", "seed", "share", "attack", "robust")
    done = {tuple(str(line[name]) for name in names) for line in lines}
    grid = product(
        options.strategies, options.seeds, options.shares, options.attacks, options.robust
    )
    with mock.patch.object(torch, "set_num_threads"), options.file.open("a") as out:
        for strategy, seed, share, attack, robust in grid:
            key = (options.experiment, strategy, str(seed), share, attack, robust)
            if key in done:
                continue
            kind, _, strength = attack.partition(":")
            words = [*options.set, f"seed={seed}", f"merge.robust={robust}"]
            if kind != "none":
                words += [f"attack.kind={kind}", f"attack.share={share}"]
                words += [f"attack.strength={strength}"] if strength else []
            found = measured(options.experiment, strategy, words, options.part)
            line = dict(zip(names, key, strict=True)) | found
            print(json.dumps(line), file=out, flush=True)
            lines.append(line)
    print(table(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
