"""Sites and a server that make one sum by the protocol, all in this process."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from fedivon_app.core.secure.fixed_point import Layout, Slot, Summed, Words
from fedivon_app.core.secure.joining import Joint
from fedivon_app.core.secure.messages import Masked, Roster, Session, Shared, Told
from fedivon_app.core.secure.site import Conditions, advertise, mask, share, unmask

SESSION = Session(run="trial", round=3, what="train")
NO_CONDITIONS = Conditions()


@dataclass
class Trial:
    """A sum up to the point where masked vectors are in, with all that was sent."""

    values: Mapping[int, Mapping[str, np.ndarray]]
    layout: Layout
    lost_early: Collection[int] = ()  # before they mask
    lost_late: Collection[int] = ()  # after they masked: their vector is in, they tell nothing
    lost_between: Collection[int] = ()  # they sealed shares, and their vector never comes
    conditions: Conditions = NO_CONDITIONS
    joint: Joint = field(init=False)
    shared: dict[int, Shared] = field(default_factory=dict)
    masked: dict[int, Masked] = field(default_factory=dict)
    sent: dict[int, Words] = field(default_factory=dict)
    cohort: set[int] = field(default_factory=set)

    def __post_init__(self):
        told = {n: advertise(SESSION, n, self.conditions) for n in self.values}
        self.joint = Joint(SESSION, Roster(keys={n: one.public for n, one in told.items()}))
        boxes = {}
        for number, one in told.items():
            if number not in self.lost_early:
                self.shared[number], boxes[number] = share(one, self.joint.roster, self.conditions)
        self.joint.check(boxes, "sealed their shares")
        passed_on = self.joint.boxes_for(boxes)
        self.cohort = set(passed_on)
        for number in self.cohort - set(self.lost_between):
            words = self.layout.encode(self.values[number])
            self.masked[number], self.sent[number] = mask(
                self.shared[number], passed_on[number], words, self.conditions
            )
        self.joint.check(self.sent, "sent their vectors")

    def told(self, survivors: Collection[int]) -> dict[int, Told]:
        return {
            number: unmask(one, survivors, self.conditions)
            for number, one in self.masked.items()
            if number not in self.lost_late
        }

    def summed(self, alter: Callable[[dict[int, Told]], None] = lambda told: None) -> Summed:
        told = self.told(set(self.sent))
        alter(told)
        total = self.layout.zeros()
        for words in self.sent.values():
            total.add(words)
        words = self.joint.unmasked(total, self.cohort, set(self.sent), told)
        return self.joint.read(words, self.layout, set(self.sent))


def integers(clients: int, size: int = 5, seed: int = 0) -> dict[int, dict[str, np.ndarray]]:
    """Whole numbers, which fixed point holds exactly, for sites with gaps between their numbers."""
    rng = np.random.default_rng(seed)
    return {
        3 * k + 1: {
            "narrow": rng.integers(-1000, 1000, size).astype(float),
            "wide": rng.integers(-(10**9), 10**9, 2).astype(float),
        }
        for k in range(clients)
    }


def exact_layout(clients: int, size: int = 5) -> Layout:
    """A layout in which a step is a power of two, so that whole numbers are exact."""
    return Layout(
        {
            "narrow": Slot(size, bound=(2.0**31 - 1) / (clients * 2**16)),
            "wide": Slot(2, bound=(2.0**63 - 1) / (clients * 2.0**20), bits=64),
        },
        clients,
    )
