"""The server's own scores of the global model, on the central test set and on the held-out examples."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fedivon_app.core.codec import Payload
from fedivon_app.core.flat import Flat
from fedivon_app.core.metrics import classification
from fedivon_app.core.predict import Moments, has_samples, predict_moments
from fedivon_app.core.settings import Settings
from fedivon_app.datasets.loading import tensors
from fedivon_app.server.setup import Parts


class Evaluator:
    """Scores a payload at its mean and, where it has anything to draw, by Monte Carlo."""

    def __init__(self, settings: Settings, flat: Flat, parts: Parts):
        self.settings = settings
        self.flat = flat
        form = settings.data.scaling, flat.vector.device
        self.parts: dict[str, tuple[Tensor, Tensor]] = {
            name: tensors(x, y, *form) for name, (x, y) in parts.items()
        }
        self.moments: dict[str, Moments] = {}  # the last predictions on the test set, by way

    def due(self, server_round: int) -> bool:
        plan = self.settings.evaluation
        regular = bool(plan.every) and server_round % plan.every == 0
        return server_round == self.settings.rounds or regular or server_round in plan.at

    def __call__(self, server_round: int, payload: Payload) -> dict[str, Any]:
        """`{part: {"mean": scores, "mc": scores}}`; the same weight samples in every round."""
        last = server_round == self.settings.rounds
        samples = (
            self.settings.evaluation.final_samples if last else self.settings.evaluation.samples
        )
        return {
            name: self.score(name, payload, *part, samples) for name, part in self.parts.items()
        }

    def score(
        self, part: str, payload: Payload, inputs: Tensor, labels: Tensor, samples: int
    ) -> dict[str, Any]:
        truth = labels.cpu().numpy()
        posterior = payload.posterior
        scores = {}
        for way, count in ways(self.flat, payload, samples).items():
            moments = predict_moments(
                self.flat, posterior, inputs, count, self.settings.seed, buffers=payload.buffers
            )
            scores[way] = classification(moments.mean, truth) | (
                {"samples": count} if count else {}
            )
            if part == "test":
                self.moments[way] = moments
        return scores


def ways(flat: Flat, payload: Payload, samples: int) -> dict[str, int]:
    """How a model can be asked, with the samples of each: at its mean, and by Monte Carlo if there is what to draw."""
    return {"mean": 0} | (
        {"mc": samples} if samples and has_samples(flat, payload.posterior) else {}
    )
