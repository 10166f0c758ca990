"""What a run promises about the examples of its clients."""

from __future__ import annotations

from pydantic import Field

from fedivon_app.core.section import Section


class PrivacySettings(Section):
    """What is hidden of the clients' examples, and from whom."""

    secure_aggregation: bool = Field(
        False,
        description="clients mask what they send, so that the server learns the sum over a "
        "round's clients and nothing of a single one",
    )
