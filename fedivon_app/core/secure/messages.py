"""What sites and server tell each other for one sum, and what a site keeps in between.

All of it travels as JSON; what cannot be read is an error of pydantic, which is a ValueError.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from fedivon_app.core.secure.masks import KEY_BYTES
from fedivon_app.core.secure.shares import SECRET_BYTES, SHARE_BYTES

Number = Annotated[int, Field(ge=0)]  # of a site: its partition
PublicKey = Annotated[bytes, Field(min_length=KEY_BYTES, max_length=KEY_BYTES)]
Secret = Annotated[bytes, Field(min_length=SECRET_BYTES, max_length=SECRET_BYTES)]
Share = Annotated[bytes, Field(min_length=SHARE_BYTES, max_length=SHARE_BYTES)]


class Value(BaseModel):
    """A value that travels or is kept, and never changes."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64"
    )

    def to_json(self) -> str:
        """Return the value as text."""
        return self.model_dump_json()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the inverse of `to_json`."""
        return cls.model_validate_json(text)


class Session(Value):
    """The name of one sum: the run, the round, and what of the round is summed."""

    run: str
    round: int
    what: Literal["train", "evaluate", "columns"]

    @property
    def label(self) -> bytes:
        """Return the name as bytes, which all keys of the sum depend on."""
        return f"fedivon secure aggregation 1, {self.what} {self.round} of {self.run}".encode()

    def __str__(self) -> str:
        if self.what == "columns":
            return "the sums of the columns"
        return f"{'training' if self.what == 'train' else 'scoring'} in round {self.round}"


class RoundKeys(Value):
    """A site's public keys of one sum, signed with the site's lasting key if it has one.

    With `box` others seal what is for this site alone, and with `mask` they make common masks.
    """

    box: PublicKey
    mask: PublicKey
    signature: bytes | None = None


class Roster(Value):
    """The sites that take part in a sum, by number, with their keys."""

    keys: dict[Number, RoundKeys]


class Boxes(Value):
    """Sealed shares: by receiver on their way to the server, by sender on their way to a site."""

    sealed: dict[Number, bytes]


class Survivors(Value):
    """The sites whose masked vectors came in."""

    numbers: frozenset[Number]


class Told(Value):
    """What a site tells of the others' secrets: of each site a share of one secret, never of both.

    Of a survivor it is that of its seed, of one that dropped out that of its private mask key.
    """

    seeds: dict[Number, Share]
    keys: dict[Number, Share]


class Advertised(Value):
    """What a site keeps after it told its keys."""

    stage: Literal["advertised"] = "advertised"
    session: Session
    number: Number
    box: Secret
    mask: Secret
    public: RoundKeys


class Shared(Value):
    """What a site keeps after it sealed its shares."""

    stage: Literal["shared"] = "shared"
    session: Session
    number: Number
    box: Secret
    mask: Secret
    seed: Secret
    roster: Roster
    own: tuple[Share, Share]


class Masked(Value):
    """What a site keeps after it sent its masked vector: shares of everybody's two secrets."""

    stage: Literal["masked"] = "masked"
    session: Session
    number: Number
    threshold: int
    held: dict[Number, tuple[Share, Share]]
