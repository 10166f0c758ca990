"""A trained model: the network of a run with the posterior of one of its checkpoints, ready to predict."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor

from fedivon_app.core.codec import Payload
from fedivon_app.core.flat import Flat
from fedivon_app.core.network import new_network, pick_device
from fedivon_app.core.predict import Moments, predict_moments
from fedivon_app.core.settings import Settings, SettingsError
from fedivon_app.datasets.base import DataError
from fedivon_app.datasets.image_folder import SUFFIXES, is_picture
from fedivon_app.datasets.npz import UNREADABLE, checked_inputs, one_line
from fedivon_app.datasets.resize import fit, resize
from fedivon_app.datasets.sources import inputs
from fedivon_app.runs.folder import Run
from fedivon_app.server.setup import server_data

BATCH_BYTES = 2**28  # of inputs that are predicted at once
ARRAYS = ("x", "x_test")  # the keys of an .npz file, the first that is there


@dataclass(frozen=True, eq=False)
class Trained:
    """The network and what to load into it; `shape` is that of one input, (H, W, C) or (D,)."""

    settings: Settings
    flat: Flat
    payload: Payload
    shape: tuple[int, ...]
    num_classes: int
    class_names: list[str] | None = None

    @classmethod
    def open(cls, run: Run | str | Path, checkpoint: Literal["last", "best"] = "last") -> Trained:
        """The model of a run after its last checkpoint, or at its best held-out round."""
        run = run if isinstance(run, Run) else Run.open(run)
        payload = _payload(run, checkpoint)
        path = (
            run.folder / "model.json"
        )  # runs from before there was such a file tell the same by their settings
        try:
            known = (
                json.loads(path.read_text())
                if path.is_file()
                else server_data(run.settings)._asdict()
            )
            shape = tuple(known["shape"])
            num_classes = known["num_classes"]
            names = known["class_names"]
            flat = new_network(run.settings.model, shape, num_classes, pick_device("auto"))
        except (ValueError, KeyError, TypeError) as error:
            raise SettingsError(f"{run.folder}: its model cannot be made again: {error}") from None
        if len(payload.posterior.mean) != len(flat):
            raise SettingsError(
                f"{run.folder}: its checkpoint has {len(payload.posterior.mean)} weights, but its model has {len(flat)}"
            )
        if fault := payload.fault():
            raise SettingsError(f"{run.folder}: its checkpoint is of no use: {fault}")
        return cls(run.settings, flat, payload, shape, num_classes, names and list(names))

    def predict(self, inputs: Tensor, samples: int, seed: int) -> Moments:
        """Class probabilities over weight samples; at the mean where `samples` is 0."""
        return predict_moments(
            self.flat, self.payload.posterior, inputs, samples, seed, buffers=self.payload.buffers
        )

    def inputs(self, pixels: np.ndarray) -> Tensor:
        """Rows in the format of a data source as the network takes them."""
        return inputs(pixels, self.settings.data.scaling).to(self.flat.vector.device)

    def class_name(self, number: int) -> str | int:
        """The name of a class, or its number where there are no names."""
        return self.class_names[number] if self.class_names else number

    def say(self, inputs: Tensor, samples: int, confidence: float) -> list[dict[str, Any]]:
        """What the model says of each input; `class` is None below the confidence, `top` the likeliest in any case."""
        moments = self.predict(inputs, samples, self.settings.seed)
        uncertainty = moments.uncertainty()
        said = []
        for row, number in enumerate(moments.mean.argmax(1).tolist()):
            probability = float(moments.mean[row, number])
            top = self.class_name(number)
            abstained = probability < confidence
            answer = {"class": None if abstained else top, "abstained": abstained, "top": top}
            said.append(
                answer
                | {"probability": probability}
                | {k: float(v[row]) for k, v in uncertainty.items()}
            )
        return said


def predictions(
    trained: Trained, paths: Iterable[Path], samples: int, confidence: float = 0.0
) -> Iterator[tuple[str, dict[str, Any] | DataError]]:
    """What the model says of every picture in these files and folders, by name; or why one cannot be read.

    The rows of an .npz file are named `file.npz[0]` and on. Files are read until BATCH_BYTES of inputs are there.
    """
    names: list[str] = []
    waiting: list[Tensor] = []
    for file, fault in _listed(paths):
        try:
            if fault:
                raise fault
            rows = trained.inputs(read_rows(file, trained.shape))
        except DataError as error:
            yield str(file), error
            continue
        names += (
            [f"{file}[{row}]" for row in range(len(rows))]
            if file.suffix.lower() == ".npz"
            else [str(file)]
        )
        waiting.append(rows)
        if sum(one.nbytes for one in waiting) > BATCH_BYTES:
            yield from zip(names, trained.say(torch.cat(waiting), samples, confidence), strict=True)
            names = []
            waiting = []
    if waiting:
        yield from zip(names, trained.say(torch.cat(waiting), samples, confidence), strict=True)


def _listed(paths: Iterable[Path]) -> Iterator[tuple[Path, DataError | None]]:
    """The files, and those of folders at any depth; with a complaint for a folder without pictures."""
    for path in paths:
        found = (
            sorted(file for file in path.rglob("*") if is_picture(file))
            if path.is_dir()
            else [path]
        )
        yield from ((file, None) for file in found)
        if not found:
            yield (
                path,
                DataError(f"{path}: there is no picture in it ({', '.join(sorted(SUFFIXES))})"),
            )


def _payload(run: Run, checkpoint: str) -> Payload:
    if checkpoint == "best":
        if run.best() is None:
            raise SettingsError(
                f"{run.folder} has no best checkpoint: its run held out no examples (data.holdout)"
            )
        path = run.folder / "checkpoint" / "best"
    elif checkpoints := run.checkpoints():
        path = checkpoints[-1][1]
    else:
        raise SettingsError(
            f"{run.folder} has no checkpoint to predict with: its run has not got that far"
        )
    try:
        return run.load(path)[0]
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise SettingsError(
            f"{path} is no readable checkpoint: {' '.join(str(error).split())}"
        ) from None


def read_rows(file: Path, shape: tuple[int, ...]) -> np.ndarray:
    """What is in a picture or an .npz file, as rows that fit a model with inputs of this shape."""
    if file.suffix.lower() == ".npz":
        return fit(str(file), _read_npz(file), shape)
    if len(shape) == 1:
        raise DataError(
            f"{file}: the model takes tables of {shape[0]} numbers: give an .npz file with an array x"
        )
    from PIL import Image

    try:
        with Image.open(file) as image:
            image.load()
            return resize(image, shape)[None]
    except FileNotFoundError:
        raise DataError(f"{file}: there is no such file") from None
    except DataError as error:
        raise DataError(f"{file}: {error}") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{file}: not a readable picture ({type(error).__name__})") from None


def _read_npz(file: Path) -> np.ndarray:
    try:
        with np.load(file, allow_pickle=False) as archive:
            key = next((key for key in ARRAYS if key in archive.files), None)
            if key is None:
                raise DataError(
                    f"{file}: it has no array x or x_test (found: {', '.join(archive.files) or 'nothing'})"
                )
            return checked_inputs(str(file), key, archive[key])
    except FileNotFoundError:
        raise DataError(f"{file}: there is no such file") from None
    except DataError:
        raise
    except UNREADABLE as error:
        raise DataError(f"{file}: not a readable .npz file ({one_line(error)})") from None
