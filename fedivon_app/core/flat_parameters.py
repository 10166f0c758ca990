"""The parameters of an optimizer as views of flat vectors, which show one of two sets of values."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedivon_app.core.flat import flat_view, views_like


class FlatParameters:
    """Parameters that hold the `mean` of a posterior or what was `drawn` from it.

    Both are flat vectors, and so is the `gradient`, to which the parameters' own are bound. Where
    they are views of one vector already, as in a Flat, that vector is the mean.
    """

    def __init__(self, parameters: Sequence[Tensor]):
        self.parameters = list(parameters)
        if any(p.dtype != torch.float32 for p in self.parameters):
            raise ValueError("IVON works on float32 parameters; cast the model with .float()")
        values = [p.data for p in self.parameters]
        self.mean = flat_view(values)
        self.drawn = torch.empty_like(self.mean)
        self._mean_views = _views(self.mean, values)
        self._drawn_views = views_like(self.drawn, values)
        if self._mean_views is not values:
            self.show_mean()
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        complete = len(gradients) == len(self.parameters)
        self.gradient = flat_view(gradients) if complete else torch.zeros_like(self.mean)
        self._gradient_views = _views(self.gradient, gradients if complete else values)

    def show_mean(self) -> None:
        """Let the parameters hold the mean from now on."""
        self._show(self._mean_views)

    def show_drawn(self) -> None:
        """Let the parameters hold what was drawn from now on."""
        self._show(self._drawn_views)

    def _show(self, views: list[Tensor]) -> None:
        for p, view in zip(self.parameters, views, strict=True):
            p.data = view

    def clear_gradient(self) -> None:
        """Set the flat gradient to zero, and bind the parameters' gradients to it."""
        self.gradient.zero_()
        for p, view in zip(self.parameters, self._gradient_views, strict=True):
            if p.requires_grad and p.grad is not view:
                p.grad = view

    def collect_gradient(self) -> Tensor:
        """Return the flat gradient, also where somebody put other tensors into `p.grad`.

        `model.zero_grad()` does so.
        """
        for p, view in zip(self.parameters, self._gradient_views, strict=True):
            if p.requires_grad and p.grad is not view:
                view.zero_() if p.grad is None else view.copy_(p.grad)
                p.grad = view
        return self.gradient


def _views(vector: Tensor, tensors: list[Tensor]) -> list[Tensor]:
    """Return the tensors themselves if this vector is a view of them, or else views like them."""
    same = tensors[0].data_ptr() == vector.data_ptr()
    return tensors if same else views_like(vector, tensors)
