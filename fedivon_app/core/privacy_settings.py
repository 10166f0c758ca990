"""What a run promises about the examples of its clients."""

from __future__ import annotations

from pydantic import Field

from fedivon_app.core.section import Section


class PrivacySettings(Section):
    """What is hidden of the clients' examples, from whom, and how well.

    Differential privacy is on where there is an epsilon: each client's gradients are clipped
    example by example and get noise, such that all it sends in the run is (epsilon, delta)-private.
    """

    secure_aggregation: bool = Field(
        False,
        description="clients mask what they send, so that the server learns the sum over a "
        "round's clients and nothing of a single one",
    )
    wide_sums: bool = Field(
        False,
        description="all numbers of a secure sum have 64 bits: twice the bytes, for posteriors "
        "that move far in a round, and for hundreds of clients",
    )
    epsilon: float | None = Field(
        None,
        gt=0,
        description="what a client spends in the run at most: differential privacy of its "
        "examples; none: no noise",
    )
    delta: float = Field(
        1e-5, gt=0, lt=1, description="the chance that is left; far below 1/examples of a client"
    )
    clip_norm: float = Field(
        1.0, gt=0, description="largest norm of one example's gradient; longer ones are shortened"
    )
    size_epsilon: float = Field(
        0.1,
        gt=0,
        description="of epsilon, for the noise on the number of examples, which is drawn once",
    )
    noise_in_posterior: bool = Field(
        True,
        description="predictions allow for the noise: its variance in the mean is added to the "
        "posterior's when the model is scored or used",
    )

    @property
    def is_private(self) -> bool:
        """Tell whether the clients' examples are hidden in noise."""
        return self.epsilon is not None
