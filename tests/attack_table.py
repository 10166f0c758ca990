"""Attacks against defences, in one process: accuracy and calibration of what is learned.

    python -m tests.attack_table FILE --attacks sign-flip alie --shares 0.2 --robust none auto

Each run is a line of FILE; those that are there already are not made again. Without --attacks the
table of what FILE holds is printed, and with --picture drawn as a heat map; --by-share gives each
share a column of its own, and prints the worst attack for each. A robust rule with
+mixing behind it has the replies mixed with their neighbours before. What it makes are runs of the
real server and clients, without reports; `fedivon sweep` makes the same with them, and takes
longer. Bounds are not chosen by the test part, but with --part holdout --set rounds=60
data.holdout=300, other seeds and another FILE.
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

import numpy as np
import torch

from fedivon_app.core.compose import compose
from fedivon_app.core.errors import RunError
from fedivon_app.methods import method, settings_of
from fedivon_app.report.heat_plot import Heat, heat_map
from fedivon_app.runs.version import commit
from fedivon_app.server.evaluation import Evaluator
from fedivon_app.server.setup import prepare
from fedivon_app.server.trial import trial_of
from fedivon_app.strategies.rounds import Rounds
from tests.golden import InProcess, prepare_process

Row = tuple[str, str]  # share and kind of an attack
Column = tuple[str, str]  # strategy and defence

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


def fields(lines: list[dict[str, Any]]) -> dict[Row, dict[Column, list[dict[str, Any]]]]:
    """The runs by attack and share, and by strategy and defence; each has as many as seeds."""
    columns = list(dict.fromkeys((line["strategy"], line["robust"]) for line in lines))
    rows = sorted({(line["share"], line["attack"]) for line in lines})
    found: dict[Row, dict[Column, list[dict[str, Any]]]]
    found = {row: {column: [] for column in columns} for row in rows}
    for line in lines:
        found[line["share"], line["attack"]][line["strategy"], line["robust"]].append(line)
    return found


def mean(lines: list[dict[str, Any]], name: str) -> float:
    """The mean of a score over seeds, NaN without any."""
    return sum(line[name] for line in lines) / len(lines) if lines else float("nan")


def table(lines: list[dict[str, Any]]) -> str:
    """The runs as a table: a row an attack, a column a defence, means over seeds."""
    found = fields(lines)
    columns = list(dict.fromkeys(column for row in found.values() for column in row))
    text = [f"| attack | {' | '.join(f'{s}, {r}' for s, r in columns)} |"]
    text.append("| --- |" + " --- |" * len(columns))
    for (share, attack), row in found.items():
        cells = [
            f"{mean(fit, 'accuracy'):.1f} / {mean(fit, 'ece'):.3f} ({len(fit)})" if fit else ""
            for fit in row.values()
        ]
        text.append(f"| {attack} {share} | {' | '.join(cells)} |")
    return "\n".join(text)


def picture(lines: list[dict[str, Any]], path: Path) -> None:
    """Draw the accuracy of the runs as a heat map, a row an attack, a column a defence."""
    found = fields(lines)
    columns = list(dict.fromkeys(column for row in found.values() for column in row))
    several = len({strategy for strategy, _ in columns}) > 1
    heat = Heat(
        title="Accuracy % under attack",
        rows=[f"{attack}, {float(share):.0%}" for share, attack in found],
        columns=[f"{strategy}\n{robust}" if several else robust for strategy, robust in columns],
        values=np.array(
            [[mean(fit, "accuracy") for fit in row.values()] for row in found.values()]
        ),
    )
    heat_map(heat).savefig(path, dpi=110)


def runs_of(lines: list[dict[str, Any]], **wanted: str) -> list[dict[str, Any]]:
    """The runs of these names; those without an attack are runs with any share of liars."""
    free = {"share"} if wanted.get("attack") == "none" else set()
    asked = {name: value for name, value in wanted.items() if name not in free}
    return [line for line in lines if all(line[name] == value for name, value in asked.items())]


def picture_by_share(lines: list[dict[str, Any]], path: Path) -> None:
    """Draw the accuracy of one method, a row an attack, a column a share for each defence."""
    attacks = sorted({line["attack"] for line in lines}, key=lambda name: (name != "none", name))
    columns = columns_of(lines)
    heat = Heat(
        title=f"{lines[0]['strategy']}: accuracy %",
        rows=["no attack" if attack == "none" else attack for attack in attacks],
        columns=[f"{robust}\n{float(share):.0%}" for robust, share in columns],
        values=np.array(
            [
                [
                    mean(runs_of(lines, attack=attack, robust=robust, share=share), "accuracy")
                    for robust, share in columns
                ]
                for attack in attacks
            ]
        ),
    )
    heat_map(heat).savefig(path, dpi=110)


def columns_of(lines: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """The defences in their order, each with its shares of liars."""
    defences = dict.fromkeys(line["robust"] for line in lines)
    shares = sorted({line["share"] for line in lines if line["attack"] != "none"})
    return [(robust, share) for robust in defences for share in shares]


def worst(lines: list[dict[str, Any]]) -> str:
    """For each defence and share the largest loss by any attack, and the largest ECE, as a table.

    Means are over seeds; a loss is that from the same defence without liars.
    """
    text = ["| defence | lie | no attack | most is lost to | points | highest ECE | to |"]
    text.append("| --- | ---: | ---: | --- | ---: | ---: | --- |")
    attacks = sorted({line["attack"] for line in lines} - {"none"})
    for robust, share in columns_of(lines):
        honest = mean(runs_of(lines, attack="none", robust=robust), "accuracy")
        own = {one: runs_of(lines, attack=one, robust=robust, share=share) for one in attacks}
        own = {one: runs for one, runs in own.items() if runs}
        if own:
            low = min(own, key=lambda one: mean(own[one], "accuracy"))
            high = max(own, key=lambda one: mean(own[one], "ece"))
            text.append(
                f"| {robust} | {float(share):.0%} | {honest:.1f} | {low} "
                f"| {honest - mean(own[low], 'accuracy'):.1f} "
                f"| {mean(own[high], 'ece'):.3f} | {high} |"
            )
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
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--by-share", action="store_true")
    parser.add_argument("--set", nargs="*", default=["rounds=60"])
    options = parser.parse_args()
    prepare_process()
    logging.disable(logging.WARNING)
    lines = []
    if options.file.exists():
        lines = [json.loads(line) for line in options.file.read_text().splitlines()]
    names = ("experiment", "strategy", "seed", "share", "attack", "robust")
    this = commit()
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
            rule, _, before = robust.partition("+")
            words = [*options.set, f"seed={seed}", f"merge.robust={rule}"]
            words += [f"merge.robust_{before}=true"] if before else []
            if kind != "none":
                words += [f"attack.kind={kind}", f"attack.share={share}"]
                words += [f"attack.strength={strength}"] if strength else []
            found = measured(options.experiment, strategy, words, options.part)
            line = dict(zip(names, key, strict=True)) | found | {"commit": this}
            print(json.dumps(line), file=out, flush=True)
            lines.append(line)
    print(worst(lines) if options.by_share else table(lines))
    if options.picture:
        (picture_by_share if options.by_share else picture)(lines, options.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
