"""What a site does for one sum, message by message, and when it refuses.

Each step takes what the step before it left and returns what the next one needs, so that none can
be done twice or out of order by whoever keeps one value alone and forgets it when it is used.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import sha256

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fedivon_app.core.errors import Refused
from fedivon_app.core.secure import shares
from fedivon_app.core.secure.fixed_point import Words
from fedivon_app.core.secure.masks import add_mask, agreed, key_pair
from fedivon_app.core.secure.messages import (
    Advertised,
    Boxes,
    Masked,
    Roster,
    RoundKeys,
    Session,
    Shared,
    Told,
)
from fedivon_app.core.secure.signing import Signer, Verifier, signed, unknown

SMALLEST_COHORT = 3  # of two sites, each knows the other's vector from the sum and its own
_NONCE = bytes(12)  # a box's key is used once


@dataclass(frozen=True)
class Conditions:
    """On which conditions a site takes part, whatever the server says.

    `smallest_cohort` is the fewest sites in a sum. `signer` is the site's own lasting key, and
    `verifiers` are the others': with them, only sites of these keys may be in a roster.
    """

    smallest_cohort: int = SMALLEST_COHORT
    signer: Signer | None = None
    verifiers: Sequence[Verifier] | None = None


def advertise(session: Session, number: int, conditions: Conditions) -> Advertised:
    """Make the keys of a sum; `public` of what is returned goes to the server."""
    box = key_pair()
    mask = key_pair()
    public = RoundKeys(box=box.public, mask=mask.public)
    if conditions.signer is not None:
        public = signed(public, session, number, conditions.signer)
    return Advertised(
        session=session, number=number, box=box.private, mask=mask.private, public=public
    )


def share(own: Advertised, roster: Roster, conditions: Conditions) -> tuple[Shared, Boxes]:
    """Split this site's secrets among those of the roster, and seal each share for its holder."""
    _check_roster(own, roster, conditions)
    seed = os.urandom(shares.SECRET_BYTES)
    numbers = sorted(roster.keys)
    threshold = shares.threshold_of(len(numbers))
    of_seed = shares.split(seed, threshold, numbers)
    of_mask = shares.split(own.mask, threshold, numbers)
    sealed = {}
    for other in numbers:
        if other != own.number:
            purpose = _purpose(own.session, roster, own.number, other)
            box = ChaCha20Poly1305(_agreed(own.box, roster.keys[other].box, purpose))
            sealed[other] = box.encrypt(_NONCE, of_seed[other] + of_mask[other], purpose)
    after = Shared(
        session=own.session,
        number=own.number,
        box=own.box,
        mask=own.mask,
        seed=seed,
        roster=roster,
        own=(of_seed[own.number], of_mask[own.number]),
    )
    return after, Boxes(sealed=sealed)


def mask(own: Shared, boxes: Boxes, words: Words, conditions: Conditions) -> tuple[Masked, Words]:
    """Open what others sealed for this site, and mask its vector against all of them.

    Who is not among the senders takes no part from here on.
    """
    roster = own.roster.keys
    threshold = shares.threshold_of(len(roster))
    if strangers := set(boxes.sealed) - (set(roster) - {own.number}):
        raise Refused(f"shares come from sites that were not in the roster: {_listed(strangers)}")
    _check_size(own.session, len(boxes.sealed) + 1, threshold, conditions)
    held = {own.number: own.own}
    masked = words.copy()
    add_mask(masked.arrays, own.seed, 1)
    for other, sealed in boxes.sealed.items():
        purpose = _purpose(own.session, own.roster, other, own.number)
        box = ChaCha20Poly1305(_agreed(own.box, roster[other].box, purpose))
        try:
            both = box.decrypt(_NONCE, sealed, purpose)
        except InvalidTag:
            raise Refused(
                f"the shares of site {other} cannot be opened: they were changed on their way, or "
                "it agreed to another roster than this site"
            ) from None
        held[other] = (both[: shares.SHARE_BYTES], both[shares.SHARE_BYTES :])
        key = _agreed(own.mask, roster[other].mask, mask_purpose(own.session))
        add_mask(masked.arrays, key, 1 if own.number < other else -1)
    after = Masked(session=own.session, number=own.number, threshold=threshold, held=held)
    return after, masked


def unmask(own: Masked, survivors: Collection[int], conditions: Conditions) -> Told:
    """Tell this site's shares: of survivors those of the seeds, of the others those of the keys."""
    there = set(survivors)
    if strangers := there - set(own.held):
        raise Refused(f"sites that sent no shares are said to survive: {_listed(strangers)}")
    if own.number not in there:
        raise Refused("this site's masked vector is not in the sum, and so it tells nothing")
    _check_size(own.session, len(there), own.threshold, conditions)
    return Told(
        seeds={number: both[0] for number, both in own.held.items() if number in there},
        keys={number: both[1] for number, both in own.held.items() if number not in there},
    )


def mask_purpose(session: Session) -> bytes:
    """Return what the common keys of two sites are for that mask their vectors."""
    return session.label + b", mask"


def _check_roster(own: Advertised, roster: Roster, conditions: Conditions) -> None:
    """Refuse a roster that is not what this site can agree to."""
    if roster.keys.get(own.number) != own.public:
        raise Refused("the roster has not the keys of this site that it sent")
    keys = [key for one in roster.keys.values() for key in (one.box, one.mask)]
    if len(set(keys)) < len(keys):
        raise Refused("a key is in the roster twice")
    count = len(roster.keys)
    _check_size(own.session, count, shares.threshold_of(count), conditions)
    if conditions.verifiers is not None and (
        strangers := unknown(roster.keys, own.session, conditions.verifiers)
    ):
        raise Refused(
            f"the keys of sites {_listed(strangers)} are not signed by a key that this site knows, "
            "each by another; the folder `site-keys` of its node config has those it knows"
        )


def _check_size(session: Session, count: int, threshold: int, conditions: Conditions) -> None:
    if count < conditions.smallest_cohort:
        raise Refused(
            f"{session} would be a sum over {count} sites, and this site takes part with at least "
            f"{conditions.smallest_cohort} (`smallest-cohort` in its node config)"
        )
    if count < threshold:
        raise Refused(f"{count} sites are left for {session}, fewer than {threshold}")


def _agreed(private: bytes, public: bytes, purpose: bytes) -> bytes:
    try:
        return agreed(private, public, purpose)
    except ValueError:
        raise Refused("a key in the roster is none: no secret can be agreed on with it") from None


def _purpose(session: Session, roster: Roster, sender: int, receiver: int) -> bytes:
    """Return what a box is for; sites that agreed to different rosters cannot open each other's."""
    names = b"".join(
        b"%d:" % number + keys.box + keys.mask for number, keys in sorted(roster.keys.items())
    )
    digest = sha256(names).digest()
    return session.label + b", box %d to %d of " % (sender, receiver) + digest


def _listed(numbers: Collection[int]) -> str:
    return ", ".join(str(number) for number in sorted(numbers))
