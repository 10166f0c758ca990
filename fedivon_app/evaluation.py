"""The server's own scores of the global model, on the central test set and on the held-out examples."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from clients.data import tensors
from fedivon_app.core.codec import Payload
from fedivon_app.core.flat import Flat
from fedivon_app.core.metrics import classification
from fedivon_app.core.predict import predict, predict_mean
from fedivon_app.core.settings import Settings


class Evaluator:
    """Scores a payload at its mean and, where it has a precision, by Monte Carlo over weight samples."""

    def __init__(self, settings: Settings, flat: Flat, parts: dict[str, tuple[np.ndarray, np.ndarray]]):
        self.settings, self.flat = settings, flat
        form = settings.data.scaling, flat.vector.device
        self.parts: dict[str, tuple[Tensor, Tensor]] = {name: tensors(x, y, *form) for name, (x, y) in parts.items()}

    def due(self, server_round: int) -> bool:
        every = self.settings.evaluation.every
        return server_round == self.settings.rounds or bool(every and server_round % every == 0)

    def __call__(self, server_round: int, payload: Payload) -> dict[str, Any]:
        """`{part: {"mean": scores, "mc": scores}}`; the same weight samples in every round."""
        last = server_round == self.settings.rounds
        samples = self.settings.evaluation.final_samples if last else self.settings.evaluation.samples
        return {name: self.score(payload, *part, samples) for name, part in self.parts.items()}

    def score(self, payload: Payload, inputs: Tensor, labels: Tensor, samples: int) -> dict[str, Any]:
        truth, posterior = labels.cpu().numpy(), payload.posterior
        scores = {"mean": classification(predict_mean(self.flat, posterior, inputs, buffers=payload.buffers), truth)}
        if posterior.precision is not None and samples:
            drawn = predict(self.flat, posterior, inputs, samples, self.settings.seed, buffers=payload.buffers)
            scores["mc"] = classification(drawn, truth) | {"samples": samples}
        return scores
