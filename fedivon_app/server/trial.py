"""How the server tries a model on the examples that it holds out."""

from __future__ import annotations

from math import inf

import numpy as np

from fedivon_app.core.codec import Payload
from fedivon_app.core.likelihood import likelihood_of
from fedivon_app.core.metrics import SMALLEST_PROBABILITY
from fedivon_app.core.number_scores import gaussian_nll
from fedivon_app.core.predict import predict_mean
from fedivon_app.core.settings import AnySettings
from fedivon_app.datasets.loading import tensors
from fedivon_app.server.setup import Preparation
from fedivon_app.strategies.trial import Trial


def trial_of(settings: AnySettings, prepared: Preparation) -> Trial | None:
    """Return what tells the NLL of a model, at its mean, on the held-out examples.

    None where the merge does not ask for it.
    """
    if settings.merge.robust != "held-out":
        return None
    examples = prepared.data.parts["holdout"]  # the settings see to it that there are any
    likelihood = likelihood_of(settings)
    inputs, labels = tensors(
        examples.x,
        examples.y,
        scaling=settings.data.scaling,
        device=prepared.flat.vector.device,
        standard=settings.data.standard,
    )
    truth = labels.cpu().numpy()

    def trial(payload: Payload) -> float:
        with np.errstate(all="ignore"):
            said = predict_mean(
                prepared.flat,
                payload.posterior,
                inputs,
                buffers=payload.buffers,
                likelihood=likelihood,
            ).astype(np.float64)
            if likelihood.is_number:
                losses = gaussian_nll(truth, mean=said[:, 0], variance=said[:, 1])
            else:
                right = said[np.arange(len(truth)), truth]
                losses = -np.log(np.maximum(right, SMALLEST_PROBABILITY))
        found = float(losses.mean())
        return found if np.isfinite(found) else inf

    return trial
