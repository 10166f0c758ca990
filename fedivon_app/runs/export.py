"""Writing a trained model to a file that other programs read: ONNX, torch.export, safetensors."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from fedivon_app.core.errors import RunError, SettingsError
from fedivon_app.core.files import write_bytes
from fedivon_app.core.likelihood import Number
from fedivon_app.core.predict import Moments
from fedivon_app.runs.graph import ensemble, example_inputs, standardises
from fedivon_app.runs.trained_model import Trained

NEEDED = ("onnx", "onnxscript", "onnxruntime")  # by ONNX: the extra `export`
TOLERANCE = 1e-4  # of probabilities, or of a number's deviation, between torch and a file
CHECKED = (1, 7)  # inputs at once when a file is compared with the model


@dataclass(frozen=True)
class Exported:
    """A file that was written.

    `difference` is the largest one between what it says and what the model says, by a program that
    reads the file anew; None for a file that only holds tensors.
    """

    path: Path
    size: int
    difference: float | None = None


def export(
    trained: Trained, form: str, path: Path, samples: int = 0, *, bytes_in: bool = False
) -> Exported:
    """Write the model to a file, and check what was written; see `FORMS` and `graph.ensemble`."""
    if form not in FORMS:
        raise SettingsError(f"there is no format {form!r}: {', '.join(FORMS)}")
    if form == "onnx" and (missing := [name for name in NEEDED if find_spec(name) is None]):
        raise SettingsError(
            f"ONNX needs {', '.join(missing)}: install them with pip install 'fedivon[export]'"
        )
    content = FORMS[form].write(trained, samples, bytes_in)
    difference = None
    if read := FORMS[form].read:
        difference = _difference(trained, read(content), samples, bytes_in)
        if not difference <= TOLERANCE:
            raise RunError(
                f"{path} was not written: what it says differs from the model by {difference:.2g}"
            )
    write_bytes(path, content)
    return Exported(path, len(content), difference)


def facts(trained: Trained, samples: int, bytes_in: bool = False) -> dict[str, str]:
    """Return what a reader of the file must know, as texts by name."""
    settings = trained.settings
    given = "bytes, N x H x W x C" if bytes_in else "as the network takes it"
    if standardises(trained):
        given = "rows as the table has them, N x D"
    standard = settings.data.standard
    known = {"standard": standard.model_dump_json()} if standard else {}
    if settings.task == "classification":
        names = [trained.class_name(number) for number in range(trained.num_classes)]
        known |= {"class_names": json.dumps(names)}
    return known | {
        "task": settings.task,
        "experiment": settings.experiment,
        "strategy": settings.strategy,
        "seed": str(settings.seed),
        "round": str(trained.round),
        "samples": str(samples),
        "shape": json.dumps(trained.shape),
        "input": given,
        "scaling": settings.data.scaling,
    }


def _safetensors(trained: Trained, samples: int, bytes_in: bool) -> bytes:
    """The tensors by name: `mean.`, `precision.` where there is one, `buffer.` and `sample0.`."""
    flat = trained.flat
    posterior = trained.payload.posterior
    vectors = {"mean": posterior.mean}
    if posterior.precision is not None:
        vectors["precision"] = posterior.precision
    tensors = {
        f"{kind}.{name}": value
        for kind, vector in vectors.items()
        for name, value in flat.named_parameters(torch.tensor(vector)).items()
    }
    for name, value in flat.named_buffers(trained.payload.buffers).items():
        tensors[f"buffer.{name}"] = value
    if samples:
        drawn = ensemble(trained, samples).named_parameters()
        tensors |= {name: parameter.data for name, parameter in drawn}
    own = {name: value.cpu().contiguous().clone() for name, value in tensors.items()}
    return save(own, metadata=facts(trained, samples))


def _torch(trained: Trained, samples: int, bytes_in: bool) -> bytes:
    module = ensemble(trained, samples, bytes_in=bytes_in)
    inputs = example_inputs(trained, 2, bytes_in=bytes_in)
    program = torch.export.export(module, (inputs,), dynamic_shapes=(_BATCH,))
    content = io.BytesIO()
    known = json.dumps(facts(trained, samples, bytes_in))
    torch.export.save(program, content, extra_files={"facts.json": known})
    return content.getvalue()


_BATCH = {0: torch.export.Dim("batch", min=1)}


def _onnx(trained: Trained, samples: int, bytes_in: bool) -> bytes:
    module = ensemble(trained, samples, bytes_in=bytes_in)
    inputs = example_inputs(trained, 2, bytes_in=bytes_in)
    with _quiet():
        program = torch.onnx.export(
            module,
            (inputs,),
            input_names=["x"],
            output_names=list(module.outputs),
            dynamic_shapes=(_BATCH,),
            dynamo=True,
        )
    if program is None:
        raise RunError("torch did not write the model as ONNX")
    model = program.model_proto
    for key, value in facts(trained, samples, bytes_in).items():
        model.metadata_props.add(key=key, value=value)
    content: bytes = model.SerializeToString()
    return content


@contextmanager
def _quiet() -> Iterator[None]:
    """torch's exporter talks of its steps, of which none is the user's."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


Says = Callable[[Tensor], list[np.ndarray]]  # the outputs of a file for inputs


def _read_onnx(content: bytes) -> Says:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def says(inputs: Tensor) -> list[np.ndarray]:
        outputs: list[np.ndarray] = session.run(None, {"x": inputs.numpy()})
        return outputs

    return says


def _read_torch(content: bytes) -> Says:
    module = torch.export.load(io.BytesIO(content)).module()

    def says(inputs: Tensor) -> list[np.ndarray]:
        with torch.no_grad():
            said: Any = module(inputs)
        return [one.numpy() for one in (said if isinstance(said, tuple) else (said,))]

    return says


def _difference(trained: Trained, says: Says, samples: int, bytes_in: bool) -> float:
    """How far the file is from the predictions of this project, at several sizes of a batch."""
    largest = 0.0
    for count in CHECKED:
        x = example_inputs(trained, count, bytes_in=bytes_in)
        inputs = trained.inputs(x.numpy()) if bytes_in or standardises(trained) else x
        seed = trained.settings.seed
        moments = trained.predict(inputs.to(trained.flat.vector.device), samples, seed)
        for found, wanted in zip(says(x), _expected(moments), strict=False):
            largest = max(largest, float(np.abs(found - wanted.value).max()) / wanted.unit)
    return largest


@dataclass(frozen=True, eq=False)
class _Expected:
    """What a file has to say, and in which unit it may differ a little."""

    value: np.ndarray
    unit: float = 1.0


def _expected(moments: Moments) -> list[_Expected]:
    """The outputs in the order of the graph's."""
    parts = moments.uncertainty()
    likelihood = moments.likelihood
    if not isinstance(likelihood, Number):
        return [_Expected(moments.mean), _Expected(parts["epistemic"])]
    unit = likelihood.deviation
    return [
        _Expected(moments.scored[:, 0], unit),
        _Expected(parts["deviation"], unit),
        _Expected(parts["aleatoric"], unit**2),
        _Expected(parts["epistemic"], unit**2),
    ]


@dataclass(frozen=True)
class Form:
    """A format: its files' suffix, how one is written, and how it is read again for a check."""

    suffix: str
    write: Callable[[Trained, int, bool], bytes]
    read: Callable[[bytes], Says] | None = None


FORMS = {
    "onnx": Form(".onnx", _onnx, _read_onnx),
    "torch": Form(".pt2", _torch, _read_torch),
    "safetensors": Form(".safetensors", _safetensors),
}
