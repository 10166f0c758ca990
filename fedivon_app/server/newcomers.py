"""Whether the model got worse when somebody took part for the first time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

PARTS = ("test", "holdout", "clients_before_training")  # what a model is scored on, the best first
FALL = 0.1  # of the accuracy, which is worth a line
NAMED = 5  # newcomers at most that are named one by one


@dataclass(frozen=True)
class Newcomers:
    """Who has taken part so far, who of them since the last scores, and these scores."""

    known: frozenset[int] = frozenset()
    new: frozenset[int] = frozenset()
    round: int = 0
    accuracy: float | None = None

    @classmethod
    def of(cls, records: Iterable[Mapping[str, Any]]) -> Newcomers:
        """Return what the records of the rounds so far say."""
        so_far = cls()
        for record in records:
            so_far = so_far.after(record)
        return so_far

    def after(self, record: Mapping[str, Any]) -> Newcomers:
        """Return the same after one more round."""
        merged = {client["partition"] for client in record.get("clients") or ()}
        new = self.new | (merged - self.known)
        now = replace(self, known=self.known | merged, new=frozenset(new))
        accuracy = accuracy_of(record)
        if accuracy is None:
            return now
        return replace(now, new=frozenset(), round=record["round"], accuracy=accuracy)

    def fall(self, record: Mapping[str, Any]) -> str:
        """Return a line if the accuracy of this round fell and somebody is new in it, else nothing.

        Where most are new, as in the first rounds, nobody in particular is.
        """
        accuracy = accuracy_of(record)
        if accuracy is None or self.accuracy is None or self.accuracy - accuracy < FALL:
            return ""
        merged = {client["partition"] for client in record.get("clients") or ()}
        new = sorted(self.new | (merged - self.known))
        if not new or 2 * len(new) > len(self.known | merged):
            return ""
        named = ", ".join(map(str, new[:NAMED])) + (", ..." if len(new) > NAMED else "")
        return (
            f"round {record['round']}: accuracy fell from {100 * self.accuracy:.1f} % (round "
            f"{self.round}) to {100 * accuracy:.1f} %, and partition{'s' * (len(new) > 1)} {named} "
            "took part for the first time: look at the data there; server.change_bound limits how "
            "far one client may move the model"
        )


def accuracy_of(record: Mapping[str, Any]) -> float | None:
    """Return the accuracy of the global model at its mean in a round, where it was scored."""
    gm = record.get("gm") or {}
    scored = ((gm.get(part) or {}).get("mean") for part in PARTS)
    return next((scores.get("accuracy") for scores in scored if scores), None)
