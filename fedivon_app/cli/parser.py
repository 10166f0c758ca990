"""What `fedivon` can be told on the command line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

SWEEP = """Values are read as YAML and cut at the commas outside of brackets and quotes. The runs are made one after
another in DIR/sweep-EXPERIMENT[-NAME]; the same command goes on where it was stopped, and keeps what is completed."""
LIST = """Runs inside of sweeps are listed too, the newest last. A run that has not ended is running if it wrote
something in the last minute (or three times its longest round), else unfinished."""
UNCERTAINTY = "Writes RUN/uncertainty.json and the run's page."
PREDICT = """Pictures of any format that Pillow reads are converted to the model's channels and resized (bilinear) to
its height and width, all in the same way; an .npz file holds the inputs in an array x or x_test."""
PERSONALISE = """As one more round of the run's method would do it; your file has x_train, y_train, x_test and y_test.
DIR is then a folder that `fedivon predict` takes. Your data stay where they are."""
KEYS = """DIR/authority signs, DIR/server goes to the server's host, DIR/sites/NAME to the site of that name. What is
there is kept; the server's certificate is renewed for new hosts, and in the month before it ends."""
SITES = """Whoever has an admitted key takes part in runs. Admitting a site again is harmless; after its key was made
anew the former one is shut out."""
DEAL = """By the experiment's rule of partition, to DIR/NAME/site.npz: to try a deployment whose nodes have files of
their own. What is there is kept."""
CLIENTS = """From what the clients of a simulation kept, read again from disk."""


class _Help(argparse.HelpFormatter):
    """Wide enough that every command has one line."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=28)
        self._action_max_length = 15  # argparse does not count the indent of commands


def build(commands: Mapping[str, Callable[[argparse.Namespace], int]]) -> argparse.ArgumentParser:
    """The parser of the commands by name; the first line of a command's docstring is its help."""
    parser = argparse.ArgumentParser(
        prog="fedivon",
        description="Federated learning with Gaussian posteriors.",
        formatter_class=_Help,
    )
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, *takes: str, more: str = "") -> argparse.ArgumentParser:
        about = commands[name].__doc__
        sub = subparsers.add_parser(
            name, help=about, description=f"{about} {more}".strip(), formatter_class=_Help
        )
        sub.set_defaults(command=commands[name])
        if "experiment" in takes:
            sub.add_argument("experiment", metavar="EXPERIMENT", help="a name in conf/experiment")
            sub.add_argument(
                "--set",
                nargs="+",
                default=[],
                metavar="NAME=VALUE",
                help="overrides by dotted name",
            )
        if "run" in takes:
            sub.add_argument("run", nargs="+", metavar="RUN", help="a run's folder")
        if "runs" in takes:
            sub.add_argument(
                "run",
                nargs="+",
                metavar="RUN",
                help="a run's folder, or a sweep's for all runs inside",
            )
        if "launch" in takes:
            sub.add_argument("--cpus", type=float, default=1, help="CPUs for each simulated client")
            connection(sub, "run on this one's nodes, not on simulated ones ($FEDIVON_SUPERLINK)")
            sub.add_argument("--verbose", action="store_true", help="show Flower's own log too")
        if "start" in takes:
            sub.add_argument(
                "--strategy", nargs="+", metavar="NAME", help="other methods than the experiment's"
            )
            sub.add_argument(
                "--runs",
                default="runs",
                metavar="DIR",
                help="where run folders are made (default: ./runs)",
            )
        if "checkpoint" in takes:
            choice = {"choices": ("last", "best"), "default": "last"}
            sub.add_argument(
                "--checkpoint", **choice, help="the last one, or that of the best held-out round"
            )
        return sub

    def connection(sub: argparse.ArgumentParser, why: str) -> None:
        given = {name: os.environ.get(f"FEDIVON_{name.upper()}") for name in ("superlink", "ca")}
        sub.add_argument("--superlink", default=given["superlink"], metavar="HOST:PORT", help=why)
        ca = Path(given["ca"]) if given["ca"] else None
        sub.add_argument(
            "--ca",
            type=Path,
            default=ca,
            metavar="FILE",
            help="its authority's ca.crt; none: no TLS",
        )

    starter = command("run", "experiment", "launch", "start")
    starter.add_argument("--seed", nargs="+", type=int, metavar="N", help="one run for each seed")
    command("resume", "run", "launch")
    sweeper = command("sweep", "experiment", "launch", "start", more=SWEEP)
    sweeper.add_argument(
        "grid",
        nargs="+",
        metavar="KEY=V1,V2,...",
        help="a setting by its dotted name, and its values",
    )
    sweeper.add_argument(
        "--seeds",
        type=_positive,
        metavar="N",
        help="the seeds 0 to N-1 (default: the experiment's)",
    )
    sweeper.add_argument(
        "--name", metavar="NAME", help="added to the folder's name, for a second sweep"
    )
    sweeper.add_argument(
        "--again-failed", action="store_true", help="run those again that failed by their own fault"
    )
    lister = command("list", more=LIST)
    lister.add_argument(
        "folder", nargs="*", metavar="DIR", help="where run folders are (default: ./runs)"
    )
    shower = command("show", "run")
    shower.add_argument(
        "--plot", type=Path, metavar="PNG", help="where to draw the learning curves"
    )
    shower.add_argument(
        "--names", nargs="+", metavar="NAME", help="what to call the runs (default: the strategies)"
    )
    command(
        "report",
        "runs",
        more="RUN/report.html holds scores, curves, calibration, uncertainty and settings.",
    )
    comparer = command(
        "compare", "runs", more="Runs that differ in the seed alone are taken together."
    )
    comparer.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where (default: the sweep's folder, or ./comparison)",
    )
    comparer.add_argument(
        "--names", nargs="+", metavar="NAME", help="what to call the runs (default: what differs)"
    )
    assessor = command("uncertainty", "checkpoint", more=UNCERTAINTY)
    assessor.add_argument("run", metavar="RUN", help="a run's folder")
    assessor.add_argument(
        "--ood", metavar="SOURCE", help="a data set that the model should not know, such as mnist"
    )
    assessor.add_argument(
        "--ood-path", metavar="FILE", help="the file or folder of the sources npz and image-folder"
    )
    assessor.add_argument(
        "--samples",
        type=_whole,
        metavar="N",
        help="weight samples (default: evaluation.final_samples)",
    )
    predictor = command("predict", "checkpoint", more=PREDICT)
    predictor.add_argument("run", metavar="RUN", help="a run's folder")
    predictor.add_argument(
        "file", nargs="+", metavar="FILE", help="a picture, a folder of pictures, or an .npz file"
    )
    predictor.add_argument(
        "--samples",
        type=_whole,
        default=64,
        metavar="N",
        help="weight samples (default: 64); 0: at the mean",
    )
    predictor.add_argument(
        "--confidence", type=_share, default=0.0, metavar="P", help="abstain below this probability"
    )
    predictor.add_argument("--json", action="store_true", help="one JSON object a line")
    fitter = command("personalise", "checkpoint", more=PERSONALISE)
    fitter.add_argument("run", metavar="RUN", help="a run's folder")
    fitter.add_argument(
        "--data", type=Path, required=True, metavar="FILE", help="an .npz file with your own data"
    )
    fitter.add_argument(
        "--out",
        type=Path,
        default=Path("personal"),
        metavar="DIR",
        help="where (default: ./personal)",
    )
    fitter.add_argument(
        "--epochs", type=_positive, metavar="N", help="over your data (default: the run's)"
    )
    fitter.add_argument(
        "--learning-rate", type=_rate, metavar="X", help="default: that of the run's first round"
    )
    fitter.add_argument(
        "--samples",
        type=_whole,
        metavar="N",
        help="weight samples (default: the run's final number)",
    )
    command("clients", more=CLIENTS).add_argument("run", metavar="RUN", help="a run's folder")
    drawer = command(
        "illustrate", more="On small problems, without a federation, in a minute or two."
    )
    drawer.add_argument(
        "--out",
        type=Path,
        default=Path("figures"),
        metavar="DIR",
        help="where (default: ./figures)",
    )
    drawer.add_argument(
        "--source", default="mnist", help="pictures in ten classes (default: mnist)"
    )
    keymaker = command("keys", more=KEYS)
    keymaker.add_argument("folder", type=Path, metavar="DIR", help="where; keep it off the network")
    keymaker.add_argument(
        "--host", nargs="+", default=[], metavar="NAME", help="names and addresses of the server"
    )
    keymaker.add_argument("--site", nargs="+", default=[], metavar="NAME", help="who takes part")
    gate = command("sites", more=SITES)
    connection(gate, "its own port, not the proxy's (default: $FEDIVON_SUPERLINK)")
    folder = {"type": Path, "default": Path("keys"), "metavar": "DIR"}
    gate.add_argument("--keys", **folder, help="what `fedivon keys` made (default: ./keys)")
    gate.add_argument(
        "--admit",
        nargs="+",
        default=[],
        metavar="NAME",
        help="whose DIR/sites/NAME/node.pub to admit",
    )
    gate.add_argument("--remove", nargs="+", default=[], metavar="NAME", help="whom to shut out")
    dealer = command("deal", "experiment", more=DEAL)
    dealer.add_argument("--site", nargs="+", required=True, metavar="NAME", help="who gets a part")
    dealer.add_argument(
        "--to", type=Path, default=Path("data"), metavar="DIR", help="where (default: ./data)"
    )
    examiner = command(
        "doctor",
        more="Its exit status is 1 if something is to be fixed before the site can take part.",
    )
    examiner.add_argument("--data", type=Path, metavar="FILE", help="the site's .npz file")
    examiner.add_argument(
        "--keys",
        type=Path,
        metavar="DIR",
        help="the site's folder with node.key, node.pub and ca.crt",
    )
    examiner.add_argument("--superlink", metavar="HOST:PORT", help="what the SuperNode dials")
    examiner.add_argument(
        "--state", type=Path, metavar="DIR", help="where it keeps state (default: $FEDIVON_STATE)"
    )
    command("settings", "experiment").add_argument(
        "--strategy", metavar="NAME", help="another method than its own"
    )
    return parser


def _number(kind: type, least: float, most: float, what: str) -> Any:
    def read(text: str) -> Any:
        try:
            if least <= (value := kind(text)) <= most:
                return value
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")

    return read


_whole = _number(int, 0, float("inf"), "a whole number of at least 0")
_positive = _number(int, 1, float("inf"), "a whole number of at least 1")
_share = _number(float, 0, 1, "a number from 0 to 1")
_rate = _number(float, 1e-12, float("inf"), "a number above 0")
