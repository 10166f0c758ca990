"""Liars' data: what clients of a simulation train on, and how many examples they claim to have."""

from __future__ import annotations

from torch import Tensor

from fedivon_app.core.attack_settings import AttackSettings
from fedivon_app.core.settings import AnySettings
from fedivon_app.core.trigger import with_trigger


def lies(settings: AnySettings, number: int) -> bool:
    """Tell whether this client of a simulation is one of those that attack the run."""
    return number in settings.attack.liars(settings.data.clients or 0, settings.seed)


def poisoned(
    attack: AttackSettings, inputs: Tensor, labels: Tensor, num_classes: int
) -> tuple[Tensor, Tensor]:
    """Return a liar's training examples as its attack has them.

    A label flip turns class c into C - 1 - c. A backdoor marks a share of the examples, its
    strength, and gives them the label that it is after.
    """
    if attack.kind == "label-flip":
        return inputs, num_classes - 1 - labels
    if attack.kind == "backdoor":
        count = round(min(attack.value, 1.0) * len(labels))
        marked = inputs.clone()
        told = labels.clone()
        marked[:count] = with_trigger(inputs)[:count]
        told[:count] = attack.target
        return marked, told
    return inputs, labels


def claimed_size(attack: AttackSettings, num_train: int) -> int:
    """Return how many examples a liar claims to have."""
    return round(attack.value * num_train) if attack.kind == "claimed-size" else num_train
