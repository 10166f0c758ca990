"""A client's personal model (PM) among what it keeps from round to round."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

import numpy as np

from fedivon_app.core.codec import Payload, Raw

PREFIX = "pm."


def keep(memory: MutableMapping[str, np.ndarray], model: Payload) -> None:
    """Puts the PM in the place of the one that was there."""
    for name in [name for name in memory if name.startswith(PREFIX)]:
        del memory[name]
    memory.update({f"{PREFIX}{name}": array for name, array in Raw().encode(model).items()})


def recall(memory: Mapping[str, np.ndarray]) -> Payload | None:
    """The PM, or None for a client that has not trained yet."""
    arrays = {name.removeprefix(PREFIX): array for name, array in memory.items() if name.startswith(PREFIX)}
    return Raw().decode(arrays) if arrays else None
