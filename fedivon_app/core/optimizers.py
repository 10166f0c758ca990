"""Adam and SGD without torch's compiler, which their own methods import.

The import takes more than a second, in every new process of a client.
"""

from __future__ import annotations

from inspect import unwrap
from typing import Any

import torch

_bare_adam_step = unwrap(torch.optim.Adam.step)
_bare_sgd_step = unwrap(torch.optim.SGD.step)


class Adam(torch.optim.Adam):
    """torch's Adam, with the same numbers."""

    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Take one step."""
        return _bare_adam_step(self, closure)


class SGD(torch.optim.SGD):
    """torch's SGD, with the same numbers."""

    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Take one step."""
        return _bare_sgd_step(self, closure)
