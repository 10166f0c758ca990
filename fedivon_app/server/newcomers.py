"""Whether the model got worse when somebody took part for the first time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

PARTS = ("test", "holdout", "clients_before_training")  # what a model is scored on, the best first
FALL = 0.1  # of the accuracy, which is worth a line
NAMED = 5  # newcomers at most that are named one by one


@dataclass(frozen=True)
class Newcomers:
    """Who has taken part so far, who of them since the last scores, and these scores."""

    known: frozenset[int] = frozenset()
    new: Mapping[int, str] = field(default_factory=dict)  # what they are called, by partition
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
        now = replace(self, known=self.known | called(record).keys(), new=self._new_in(record))
        accuracy = accuracy_of(record)
        if accuracy is None:
            return now
        return replace(now, new={}, round=record["round"], accuracy=accuracy)

    def fall(self, record: Mapping[str, Any]) -> str:
        """Return a line if the accuracy of this round fell and somebody is new in it, else nothing.

        Where most are new, as in the first rounds, nobody in particular is.
        """
        accuracy = accuracy_of(record)
        if accuracy is None or self.accuracy is None or self.accuracy - accuracy < FALL:
            return ""
        new = self._new_in(record)
        if not new or 2 * len(new) > len(self.known | new.keys()):
            return ""
        names = [name for _, name in sorted(new.items())]
        named = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
        return (
            f"round {record['round']}: accuracy fell from {100 * self.accuracy:.1f} % (round "
            f"{self.round}) to {100 * accuracy:.1f} %, and partition{'s' * (len(new) > 1)} {named} "
            "took part for the first time: look at the data there; server.change_bound limits how "
            "far one client may move the model"
        )

    def _new_in(self, record: Mapping[str, Any]) -> dict[int, str]:
        """Return who is new since the last scores, this round's clients included."""
        newest = {p: name for p, name in called(record).items() if p not in self.known}
        return {**self.new, **newest}


def called(record: Mapping[str, Any]) -> dict[int, str]:
    """Return what the clients merged in a round are called: the partition, and the site if told."""
    clients = record.get("clients") or ()
    sites = {client["partition"]: client.get("name") for client in clients}
    return {p: f"{p} ({site})" if site else str(p) for p, site in sites.items()}


def accuracy_of(record: Mapping[str, Any]) -> float | None:
    """Return the accuracy of the global model at its mean in a round, where it was scored."""
    gm = record.get("gm") or {}
    scored = ((gm.get(part) or {}).get("mean") for part in PARTS)
    return next((scores.get("accuracy") for scores in scored if scores), None)
