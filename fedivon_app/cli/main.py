"""`fedivon`: what `flwr` itself does not do."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from fedivon_app.cli.parser import build
from fedivon_app.cli.tables import (
    ENDED,
    clients_table,
    list_table,
    personal_table,
    prediction_table,
    sites_table,
    sweep_lines,
    table,
    uncertainty_table,
)
from fedivon_app.core.settings import SettingsError, compose

if TYPE_CHECKING:
    from fedivon_app.federation.run_queue import Where

__all__ = ["main", "table"]

RESUME = "`fedivon resume RUN` goes on from the last checkpoint"


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                signal.signal(
                    number, lambda number, _: sys.exit(128 + number)
                )  # so that Flower's processes end too
    from fedivon_app.datasets.sources import DataError
    from fedivon_app.federation.superlink import LaunchError

    try:
        return options.command(options)
    except (SettingsError, DataError, LaunchError) as error:
        for line in str(error).splitlines():
            print(f"fedivon: {line}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        again = shlex.join(["fedivon", *(sys.argv[1:] if arguments is None else arguments)])
        hint = RESUME if options.command in (run, resume) else f"go on with: {again}"
        print(f"\nfedivon: interrupted; {hint}", file=sys.stderr)
        return 130


def run(options: argparse.Namespace) -> int:
    """Runs an experiment, with several methods or seeds if asked."""
    from fedivon_app.runs.plan import check, plan_runs

    where = _where(options)
    axes = {"strategy": options.strategy, "seed": options.seed}
    axes = {key: [str(value) for value in values] for key, values in axes.items() if values}
    here = [*where.settings, *options.set, f"run.folder={Path(options.runs).absolute()}"]
    plans = plan_runs(options.experiment, axes, here)
    if not where.superlink:
        check(plans)  # what is wrong with the data or the model is said here, before Flower starts
    return _launch([(plan.settings, plan.config) for plan in plans], where)


def resume(options: argparse.Namespace) -> int:
    """Goes on with stopped runs from their last checkpoints."""
    from fedivon_app.runs.folder import Run

    folders = [Path(folder).absolute() for folder in options.run]
    return _launch(
        [(Run.open(folder).settings, {"resume": str(folder)}) for folder in folders],
        _where(options),
    )


def sweep(options: argparse.Namespace) -> int:
    """Runs every combination of values, and compares them."""
    from fedivon_app.federation import run_queue as series
    from fedivon_app.report.writing import write_comparison
    from fedivon_app.runs import plan as sweeping
    from fedivon_app.runs.catalogue import find

    where = _where(options)
    folder = Path(options.runs).absolute() / sweeping.folder_name(options.experiment, options.name)
    axes = sweeping.sweep_axes(sweeping.read_grid(options.grid), options.strategy, options.seeds)
    here = [*where.settings, *options.set, f"run.folder={folder}"]
    plans = sweeping.plan_runs(options.experiment, axes, here, blame=True)
    for rule in sweeping.unweighted_rules(axes, plans):
        print(
            f"the rule {rule} ignores the weights: it runs once, not once for each merge.weighting"
        )
    if not where.superlink:
        sweeping.check(plans, blame=True)
    with series.alone_in(folder):
        steps = sweeping.next_steps(plans, find([folder]), options.again_failed)
        print(f"{sweeping.overview(steps)}; folder {folder}", flush=True)
        series.sweep(steps, where)
        steps = sweeping.next_steps(plans, find([folder]))
        print("\n".join(sweep_lines(steps)), flush=True)
        if made := [step.found.run for step in steps if step.found]:
            print(f"comparison: {write_comparison(made, folder)}")
    return 0 if all(step.found and step.found.status in ENDED for step in steps) else 1


def list_runs(options: argparse.Namespace) -> int:
    """Lists runs: how far each is, and its last scores."""
    from fedivon_app.runs.catalogue import find

    there = find(options.folder or (["runs"] if Path("runs").is_dir() else []))
    print(list_table(there) if there else f"no runs in {', '.join(options.folder) or './runs'}")
    return 0


def show(options: argparse.Namespace) -> int:
    """Prints the final scores of runs, and draws their curves."""
    print(table([_summary(Path(folder)) for folder in options.run]))
    if options.plot:
        from fedivon_app.report.writing import plot_learning
        from fedivon_app.runs.folder import Run

        plot_learning([Run.open(folder) for folder in options.run], options.plot, options.names)
    return 0


def report(options: argparse.Namespace) -> int:
    """Writes a page about each run."""
    from fedivon_app.report.writing import write_report
    from fedivon_app.runs.catalogue import runs_in

    for one in runs_in(options.run):
        print(write_report(one), flush=True)
    return 0


def compare(options: argparse.Namespace) -> int:
    """Writes one page that compares runs."""
    from fedivon_app.report.writing import write_comparison
    from fedivon_app.runs.catalogue import runs_in

    runs = runs_in(options.run)
    one_sweep = len(options.run) == 1 and not (Path(options.run[0]) / "settings.yaml").is_file()
    folder = options.out or Path(options.run[0] if one_sweep else "comparison")
    try:
        print(write_comparison(runs, folder, options.names))
    except ValueError as error:
        if not options.names:
            raise
        raise SettingsError(str(error)) from None  # names that do not fit the runs
    return 0


def uncertainty(options: argparse.Namespace) -> int:
    """Measures how sure a model is, on known and unknown data."""
    from fedivon_app.report.writing import write_report
    from fedivon_app.runs.folder import Run
    from fedivon_app.runs.uncertainty import assess

    one = Run.open(options.run)
    result = assess(one, options.ood, options.ood_path, options.samples, options.checkpoint)
    print(uncertainty_table(result), end="\n\n")
    print(write_report(one))
    return 0


def predict(options: argparse.Namespace) -> int:
    """Says what pictures show, and how sure the model is."""
    from fedivon_app.datasets.sources import DataError
    from fedivon_app.runs.trained_model import Trained, predictions

    trained = Trained.open(options.run, options.checkpoint)
    rows = []
    failed = False
    for name, said in predictions(
        trained, [Path(file) for file in options.file], options.samples, options.confidence
    ):
        if isinstance(said, DataError):
            print(f"fedivon: {said}", file=sys.stderr)
            failed = True
        elif options.json:
            print(json.dumps({"file": name} | said), flush=True)
        else:
            rows.append((name, said))
    if rows:
        print(prediction_table(rows))
    return 1 if failed else 0


def personalise(options: argparse.Namespace) -> int:
    """Fits a personal model to your own data."""
    from fedivon_app.runs.folder import Run
    from fedivon_app.runs.personalise import personalise as fit

    choices = {
        name: getattr(options, name)
        for name in ("epochs", "learning_rate", "samples", "checkpoint")
    }
    fitted = fit(Run.open(options.run), options.data, options.out, **choices)
    print(personal_table(fitted.scores, fitted.run.settings.evaluation.samples))
    print(
        f"\n{fitted.num_train} training and {fitted.num_test} test examples of {options.data}; {options.out}"
    )
    return 0


def clients(options: argparse.Namespace) -> int:
    """Scores a run's personal models again, client by client."""
    from fedivon_app.runs.folder import Run
    from fedivon_app.runs.personalise import score_again

    print(clients_table(score_again(Run.open(options.run))))
    return 0


def illustrate(options: argparse.Namespace) -> int:
    """Draws BayesADMM's Figures 3a, 3b and 4 anew."""
    from fedivon_app.figures.bayes_admm import illustrate as draw

    paths = draw(options.out, options.source, lambda line: print(line, flush=True))
    print("\n".join(map(str, paths)))
    return 0


def keys(options: argparse.Namespace) -> int:
    """Makes certificates and keys for a deployment."""
    from fedivon_app.federation.keys import ends, make_keys

    made = make_keys(options.folder, options.host, options.site)
    print("\n".join(map(str, made)) if made else "everything was there")
    print(f"the server's certificate is good until {ends(options.folder):%Y-%m-%d}")
    return 0


def sites(options: argparse.Namespace) -> int:
    """Lists who may take part, admits sites and removes them."""
    from fedivon_app.federation.sites import GONE, admit, remove, sites_of
    from fedivon_app.federation.superlink import SuperLink

    if not options.superlink:
        raise SettingsError(
            "say which SuperLink: --superlink HOST:PORT, or FEDIVON_SUPERLINK in the environment"
        )
    with SuperLink(options.superlink, options.ca) as link:
        for line in (*admit(link, options.keys, options.admit), *remove(link, options.remove)):
            print(line, flush=True)
        if not (options.admit or options.remove):
            print(sites_table(site for site in sites_of(link) if site.status != GONE))
    return 0


def deal(options: argparse.Namespace) -> int:
    """Writes each site's part of an experiment's data to a file."""
    from fedivon_app.federation.site_files import deal as write
    from fedivon_app.methods import settings_of

    overrides = [*options.set, f"data.clients={len(options.site)}", "clients_per_round=null"]
    for path, counts in write(
        compose(settings_of, options.experiment, None, overrides), options.to, options.site
    ):
        print(f"{path}: {counts}", flush=True)
    return 0


def doctor(options: argparse.Namespace) -> int:
    """Checks whether a site can take part, and says what to fix."""
    from fedivon_app.federation.doctor import examine

    verdicts = []
    for one in examine(options.data, options.keys, options.superlink, options.state):
        verdicts.append(one.verdict)
        print(
            f"{one.verdict if one.verdict == 'ok' else one.verdict.upper():<8} {one.about}: {one.found}",
            flush=True,
        )
        if one.remedy:
            print(f"{'':<8} to do: {one.remedy}")
    if not set(verdicts) - {"ok"}:
        print("nothing to fix")
    return 1 if "failure" in verdicts else 0


def settings(options: argparse.Namespace) -> int:
    """Prints the settings that a run would use."""
    from fedivon_app.methods import settings_of

    composed = compose(settings_of, options.experiment, options.strategy, options.set)
    print(yaml.safe_dump(composed.model_dump(mode="json"), sort_keys=False), end="")
    return 0


def _where(options: argparse.Namespace) -> Where:
    from fedivon_app.federation.run_queue import Where

    return Where(options.cpus, options.verbose, options.superlink, options.ca)


def _launch(runs: list[tuple[Any, dict[str, Any]]], where: Where) -> int:
    from fedivon_app.federation import run_queue as series

    folders = []
    failed = False
    with closing(series.launch(runs, where)) as outcomes:
        for one, _ in runs:
            whom = (
                f"the nodes of {where.superlink}"
                if where.superlink
                else f"{one.data.clients} simulated clients"
            )
            print(f"starting {one.strategy} on {whom} ...", flush=True)
            outcome = next(outcomes)
            if outcome.failure is not None:
                series.tell_failure(one.strategy, outcome.failure, where.verbose)
                failed = True
            if outcome.folder and (outcome.folder / "summary.json").is_file():
                folders.append(outcome.folder)
    if scored := [
        one for folder in folders if (one := _summary(folder))["final"] or one.get("personal")
    ]:
        print(f"\n{table(scored)}")
    if folders:
        print("\nrun folders:\n" + "\n".join(f"  {folder}" for folder in folders))
    return 1 if failed else 0


def _summary(folder: Path) -> dict[str, Any]:
    path = folder / "summary.json"
    if not path.is_file():
        raise SettingsError(
            f"{folder} has no summary.json: it is no run folder, or its run has not ended"
        )
    return json.loads(path.read_text())


def _parser() -> argparse.ArgumentParser:
    functions = (
        run,
        resume,
        sweep,
        show,
        report,
        compare,
        uncertainty,
        predict,
        personalise,
        clients,
        illustrate,
        keys,
        sites,
        deal,
        doctor,
        settings,
    )
    return build({function.__name__: function for function in functions} | {"list": list_runs})


if __name__ == "__main__":
    sys.exit(main())
