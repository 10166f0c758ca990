"""How a client scores a model on examples of its own: as tallies, which can be pooled."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from fedivon_app.core.codec import Payload
from fedivon_app.core.conformal import SETS, SETS_SUMS
from fedivon_app.core.flat import Flat
from fedivon_app.core.likelihood import Likelihood
from fedivon_app.core.predict import point_moments, predict_moments
from fedivon_app.core.scores import chosen_scores
from fedivon_app.core.settings import AnySettings
from fedivon_app.core.tally import Pooled


def tallies_of(
    model: Payload,
    images: Tensor,
    labels: Tensor,
    *,
    flat: Flat,
    likelihood: Likelihood,
    settings: AnySettings,
) -> dict[str, Pooled]:
    """Return tallies at the mean and, where the model has a precision, by Monte Carlo.

    The model is loaded into the network `flat`.
    """
    samples = settings.evaluation.samples
    truth = labels.cpu().numpy()
    scores = chosen_scores(settings.evaluation.scores, settings.task)
    if settings.evaluation.sets and not likelihood.is_number:
        scores[SETS] = SETS_SUMS
    drawn = model.posterior.precision is not None and samples
    mirrored = partial(predict_moments, antithetic=settings.evaluation.antithetic)
    ways = {"mean": point_moments} | ({"mc": mirrored} if drawn else {})
    tallies = {}
    for way, predicted in ways.items():
        moments = predicted(
            flat,
            model.posterior,
            images,
            num_samples=samples,
            seed=settings.seed,
            buffers=model.buffers,
            likelihood=likelihood,
        )
        tallies[way] = moments.as_float32().tally(truth, scores)
    return tallies
