"""How uncertain the noise of a private run leaves its model, which belongs in the posterior.

The noise in the gradients moves the mean as a random walk does: in a round with the rate lr it adds
(lr a)^2 sum_k w_k^2 n_k^2 to the variance of a weight, with a the move for a gradient of 1, w_k the
weights of the clients in the merge and n_k^2 the variance of the noise that client k added up over
its steps. All of this is known to everybody. What early rounds added, later ones have corrected;
so the first half of the rounds is left out, as the burn-in of a chain is. The posterior's variance
becomes 1/s + v; a point's becomes v, so that it can be sampled too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedivon_app.core.codec import Payload
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.settings import AnySettings


def with_noise_width(
    payload: Payload, settings: AnySettings, records: Iterable[Mapping[str, Any]]
) -> Payload:
    """Return the payload with the variance that the noise of these rounds left.

    It is as it was where the run is not private, does not want it, or moves its weights by rules
    that are not those of plain steps, as Adam's.
    """
    privacy = settings.privacy
    if not (privacy.is_private and privacy.noise_in_posterior):
        return payload
    moves = settings.client.moved_by(payload.posterior)
    if moves is None:
        return payload
    walked = walk(list(records)) * moves.astype(np.float64) ** 2
    if not np.any(walked):
        return payload
    posterior = payload.posterior
    return replace(payload, posterior=Posterior(posterior.mean, 1 / (posterior.variance + walked)))


def walk(records: list[Mapping[str, Any]]) -> float:
    """Return the sum of lr^2 sum_k w_k^2 n_k^2 over the second half of the rounds."""
    total = 0.0
    for record in records[len(records) // 2 :]:
        if record.get("merged"):
            clients = record.get("clients") or ()
            spread = sum((one.get("weight", 0) * one.get("noise", 0)) ** 2 for one in clients)
            total += record["learning_rate"] ** 2 * spread
    return total
