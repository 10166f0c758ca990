"""`fedivon`: what `flwr` itself does not do."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import yaml

from fedivon_app.core.settings import Settings, SettingsError, compose

MEASURES = {"accuracy": "accuracy %", "nll": "NLL", "ece": "ECE", "brier": "Brier"}
WAYS = ("mean", "mc")
PARTS = {"test": "", "clients_before_training": ", clients' test parts"}


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that Flower's processes are ended too
    from datasets.sources import DataError
    from fedivon_app.launch import LaunchError

    try:
        return options.command(options)
    except (SettingsError, DataError, LaunchError) as error:
        for line in str(error).splitlines():
            print(f"fedivon: {line}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("fedivon: interrupted; `fedivon resume RUN` goes on from the last checkpoint", file=sys.stderr)
        return 130


def run(options: argparse.Namespace) -> int:
    """Runs an experiment with each of the strategies and seeds in turn, and ends in a table."""
    from fedivon_app.server_app import prepare

    overrides = [*options.set, f"run.folder={Path(options.runs).absolute()}"]
    plans: list[tuple[Settings, dict[str, Any]]] = []
    for strategy in options.strategy or [None]:
        for seed in options.seed or [None]:
            extra = [*overrides, *([] if seed is None else [f"seed={seed}"])]
            settings = _compose(options.experiment, strategy, extra)
            settings = settings.model_copy(
                update={"data": settings.data.model_copy(update={"clients": settings.data.clients or 2})}
            )
            prepare(settings)  # what is wrong with the data or the model is said here, before Flower starts
            words = shlex.join([*extra, f"data.clients={settings.data.clients}"])
            plans.append((settings, {"experiment": options.experiment, "strategy": settings.strategy, "set": words}))
    return _launch(plans, options)


def resume(options: argparse.Namespace) -> int:
    """Goes on with stopped runs from their last checkpoints."""
    from fedivon_app.runs import Run

    folders = [Path(folder).absolute() for folder in options.run]
    return _launch([(Run.open(folder).settings, {"resume": str(folder)}) for folder in folders], options)


def show(options: argparse.Namespace) -> int:
    """Prints the final scores of runs as a table, and draws their learning curves."""
    print(table([_summary(Path(folder)) for folder in options.run]))
    if options.plot:
        from fedivon_app.report import plot_learning
        from fedivon_app.runs import Run

        plot_learning([Run.open(folder) for folder in options.run], options.plot, options.names)
    return 0


def settings(options: argparse.Namespace) -> int:
    """Prints the settings that a run would use."""
    composed = _compose(options.experiment, options.strategy, options.set)
    print(yaml.safe_dump(composed.model_dump(mode="json"), sort_keys=False), end="")
    return 0


def _compose(experiment: str, strategy: str | None, overrides: list[str]) -> Settings:
    from fedivon_app.methods import settings_of

    return compose(settings_of, experiment, strategy, overrides)


def _launch(plans: list[tuple[Settings, dict[str, Any]]], options: argparse.Namespace) -> int:
    from fedivon_app.launch import Federation

    folders, failed = [], False

    def follow(line: str) -> None:
        print(line, flush=True)
        if "; run folder " in line and line.split("; run folder ")[1] not in folders:
            folders.append(line.split("; run folder ")[1])

    with Federation(verbose=options.verbose) as federation:
        for plan, config in plans:
            print(f"starting {plan.strategy} on {plan.data.clients} simulated clients ...", flush=True)
            if (failure := federation.run(config, plan.data.clients, options.cpus, follow)) is not None:
                hint = "" if options.verbose else " (--verbose shows Flower's own log)"
                print(f"fedivon: {plan.strategy} failed: {failure.splitlines()[0]}{hint}", file=sys.stderr)
                failed = True
    finished = [Path(folder) for folder in folders if (Path(folder) / "summary.json").is_file()]
    if finished:
        if scored := [summary for folder in finished if (summary := _summary(folder))["final"]]:
            print("\n" + table(scored))
        print("\nrun folders:\n" + "\n".join(f"  {folder}" for folder in finished))
    return 1 if failed else 0


def _summary(folder: Path) -> dict[str, Any]:
    path = folder / "summary.json"
    if not path.is_file():
        raise SettingsError(f"{folder} has no summary.json: it is no run folder, or its run has not ended")
    return json.loads(path.read_text())


def table(summaries: list[dict[str, Any]]) -> str:
    """A line for every run and way of predicting: at the mean, by Monte Carlo, and both at the best held-out round."""
    rows = [("experiment", "strategy", "seed", "round", "model", *MEASURES.values())]
    for summary in summaries:
        ends = [(summary["rounds"], summary["final"], "")]
        if summary["best"] and summary["best"]["round"] != summary["rounds"]:
            ends.append((summary["best"]["round"], summary["best"]["gm"], ", best held-out"))
        for server_round, scores, note in ends:
            who = (summary["experiment"], summary["strategy"], str(summary["seed"]), str(server_round))
            for part, where in PARTS.items():
                for way, values in (scores or {}).get(part, {}).items():
                    if way in WAYS:
                        rows.append((*who, f"{_way(way, values)}{where}{note}", *_cells(values)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    left = 5  # columns of words; the rest are numbers
    lines = [
        "  ".join(
            cell.ljust(w) if i < left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _way(way: str, values: dict[str, float]) -> str:
    return "GM at the mean" if way == "mean" else f"GM, {values['samples']} samples"


def _cells(values: dict[str, float]) -> list[str]:
    return [f"{100 * values['accuracy']:.2f}", *(f"{values[key]:.4f}" for key in list(MEASURES)[1:])]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fedivon", description="Federated learning with Gaussian posteriors.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(function: Any, *names: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(function.__name__, help=function.__doc__, description=function.__doc__)
        sub.set_defaults(command=function)
        if "experiment" in names:
            sub.add_argument("experiment", help="a name in conf/experiment")
            sub.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="overrides by dotted name")
        if "run" in names:
            sub.add_argument("run", nargs="+", help="a run's folder")
        if "cpus" in names:
            sub.add_argument("--cpus", type=float, default=1, help="CPUs for each simulated client")
            sub.add_argument("--verbose", action="store_true", help="show Flower's own log too")
        return sub

    starter = command(run, "experiment", "cpus")
    starter.add_argument("--strategy", nargs="+", metavar="NAME", help="other methods than the experiment's")
    starter.add_argument("--seed", nargs="+", type=int, metavar="N", help="one run for each seed")
    starter.add_argument("--runs", default="runs", help="where run folders are made (default: ./runs)")
    command(resume, "run", "cpus")
    shower = command(show, "run")
    shower.add_argument("--plot", type=Path, metavar="PNG", help="where to draw the learning curves")
    shower.add_argument(
        "--names", nargs="+", metavar="NAME", help="what to call the runs in it (default: the strategies)"
    )
    command(settings, "experiment").add_argument(
        "--strategy", metavar="NAME", help="another method than the experiment's"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
