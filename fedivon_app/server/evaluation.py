"""The server's own scores of the global model, on the test set and on the held-out examples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedivon_app.core.codec import Payload
from fedivon_app.core.flat import Flat
from fedivon_app.core.likelihood import likelihood_of
from fedivon_app.core.predict import Moments, has_samples, predict_moments
from fedivon_app.core.scores import chosen_scores, values_of
from fedivon_app.core.settings import AnySettings
from fedivon_app.core.trigger import with_trigger
from fedivon_app.datasets.loading import tensors
from fedivon_app.server.setup import Examples


@dataclass(frozen=True, eq=False)
class Part:
    """A part of the data as a network takes it."""

    inputs: Tensor
    labels: Tensor


class Evaluator:
    """Scores a payload at its mean and, where it has anything to draw, by Monte Carlo.

    `moments` are the last predictions on the test set, by way of predicting.
    """

    def __init__(self, settings: AnySettings, flat: Flat, parts: Mapping[str, Examples]):
        self.settings = settings
        self.flat = flat
        self.parts: dict[str, Part] = {}
        for name, examples in parts.items():
            inputs, labels = tensors(
                examples.x,
                examples.y,
                scaling=settings.data.scaling,
                device=flat.vector.device,
                standard=settings.data.standard,
            )
            self.parts[name] = Part(inputs, labels)
        self.moments: dict[str, Moments] = {}
        self._scores = chosen_scores(settings.evaluation.scores, settings.task)
        self._likelihood = likelihood_of(settings)

    def __call__(self, server_round: int, payload: Payload) -> dict[str, Any]:
        """Return the scores of every part by way of predicting: `mean` and, if possible, `mc`.

        The weight samples are the same ones in every round.
        """
        plan = self.settings.evaluation
        last = server_round == self.settings.rounds
        samples = plan.final_samples if last else plan.samples
        return {name: self.score(name, payload, samples) for name in self.parts}

    def score(self, name: str, payload: Payload, samples: int) -> dict[str, Any]:
        """Return the scores on one part, by way of predicting."""
        part = self.parts[name]
        truth = part.labels.cpu().numpy()
        scores: dict[str, Any] = {}
        for way, count in ways(self.flat, payload, samples).items():
            moments = predict_moments(
                self.flat,
                payload.posterior,
                part.inputs,
                count,
                self.settings.seed,
                buffers=payload.buffers,
                likelihood=self._likelihood,
                antithetic=self.settings.evaluation.antithetic,
            )
            tally = moments.tally(truth, self._scores)
            scores[way] = values_of(tally, self._scores) | ({"samples": count} if count else {})
            if name == "test":
                self.moments[way] = moments
                if self.settings.attack.kind == "backdoor":
                    scores[way]["backdoor"] = self.backdoor(part, payload, count)
        return scores

    def backdoor(self, part: Part, payload: Payload, samples: int) -> float:
        """Return the share of examples of other classes that the trigger leads to the target."""
        target = self.settings.attack.target
        others = part.labels != target
        marked = with_trigger(part.inputs[others])
        found = predict_moments(
            self.flat,
            payload.posterior,
            marked,
            samples,
            self.settings.seed,
            buffers=payload.buffers,
        )
        return float((found.mean.argmax(axis=1) == target).mean())


def ways(flat: Flat, payload: Payload, samples: int) -> dict[str, int]:
    """Return how a model can be asked, with the samples of each way.

    That is at its mean, and by Monte Carlo if there is what to draw.
    """
    drawn = {"mc": samples} if samples and has_samples(flat, payload.posterior) else {}
    return {"mean": 0} | drawn
