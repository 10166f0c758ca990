"""What the server does for one sum: pass on what sites tell each other, and take the masks off."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from fedivon_app.core.errors import SumLost
from fedivon_app.core.secure import shares
from fedivon_app.core.secure.fixed_point import Layout, Summed, Words
from fedivon_app.core.secure.masks import add_mask, agreed, public_of
from fedivon_app.core.secure.messages import Boxes, Roster, Session, Told
from fedivon_app.core.secure.site import mask_purpose


@dataclass(frozen=True)
class Joint:
    """One sum as the server sees it: its name, and the sites that told their keys for it."""

    session: Session
    roster: Roster

    @property
    def threshold(self) -> int:
        """Return how many sites have to stay until the end."""
        return shares.threshold_of(len(self.roster.keys))

    def check(self, there: Collection[int], what: str) -> None:
        """End the sum where fewer sites than the threshold are left; nothing of any is revealed."""
        if len(there) < self.threshold:
            raise SumLost(
                f"{self.session}: of {len(self.roster.keys)} sites {len(there)} {what}, and the "
                f"sum needs {self.threshold}; nothing of any site is revealed"
            )

    def boxes_for(self, boxes: Mapping[int, Boxes]) -> dict[int, Boxes]:
        """Return for each site that sealed shares what the others of them sealed for it.

        Who left a site out of its boxes is left out itself.
        """
        wanted = set(boxes)
        senders = {n for n, sent in boxes.items() if wanted - {n} <= set(sent.sealed)}
        return {
            number: Boxes(
                sealed={other: boxes[other].sealed[number] for other in senders if other != number}
            )
            for number in senders
        }

    def unmasked(
        self,
        total: Words,
        cohort: Collection[int],
        survivors: Collection[int],
        told: Mapping[int, Told],
    ) -> Words:
        """Take the masks off the sum of the survivors' masked words, in place.

        `cohort` are the sites that were to send such words, and `told` is what survivors said of
        each other's seeds and of the keys of those who did not. Each survivor's own mask comes off
        by its seed, and the masks that it shares with who is missing by that one's private key.
        """
        self.check(told, "told their shares")
        missing = set(cohort) - set(survivors)
        for number in sorted(survivors):
            add_mask(total.arrays, self._secret(number, {n: t.seeds for n, t in told.items()}), -1)
        for number in sorted(missing):
            private = self._secret(number, {n: t.keys for n, t in told.items()})
            if public_of(private) != self.roster.keys[number].mask:
                raise SumLost(f"{self.session}: the shares of site {number}'s key are wrong")
            for other in sorted(survivors):
                key = agreed(private, self.roster.keys[other].mask, mask_purpose(self.session))
                add_mask(total.arrays, key, 1 if number < other else -1)
        return total

    def read(self, words: Words, layout: Layout, survivors: Collection[int]) -> Summed:
        """Return what the unmasked sum says; masks that did not come off are an error."""
        summed = layout.decode(words)
        if summed.sites != len(survivors):
            raise SumLost(
                f"{self.session}: the masks did not come off the sum of {len(survivors)} sites; "
                "a site told wrong shares, or masked its vector otherwise than agreed"
            )
        return summed

    def _secret(self, number: int, told: Mapping[int, Mapping[int, bytes]]) -> bytes:
        """Return one secret of a site from the shares that were told of it."""
        known = {holder: of[number] for holder, of in told.items() if number in of}
        try:
            return shares.join(known, self.threshold)
        except ValueError as error:
            raise SumLost(f"{self.session}: a secret of site {number}: {error}") from None
