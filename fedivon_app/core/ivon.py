"""IVON, the improved variational online Newton optimizer (Shen et al. 2024), on flat buffers.

It learns q(theta) = N(m, 1/s), s = ess (h + wd), by the step of Pal et al. 2025, Algorithm 1:

    theta ~ q,  g_hat = gradient of the mean minibatch loss at theta
    h_hat = g_hat (theta - m) ess (h + wd) - u
    g = b1 g + (1 - b1) g_hat
    h = b2 h + (1 - b2) h_hat + 0.5 (1 - b2)^2 (h - h_hat)^2 / (h + wd)
    m = m - lr clip[ (g / (1 - b1^t) + wd (m - m_p) + v - u m) / (h + wd) ]

`wd` is the scalar weight decay with m_p = 0, or, under a Gaussian prior N(m_p, 1/s_p), the vector
s_p / ess. The duals (v, u) are zero unless given. The buffer that is kept is d = h + wd = s/ess:
with y = 1 + (1 - b2)(h_hat - h)/d the line for h above is d <- d (1 + y^2) / 2, which is positive
whatever the gradients.

With `antithetic` every second sample mirrors the one before it, m - epsilon/sqrt(s) after
m + epsilon/sqrt(s): each is a draw from q as before, a pair needs half the random numbers, and what
the gradient at m adds to h_hat cancels in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import unwrap
from math import inf, isinf
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from fedivon_app.core.flat import Array, flat_view, views_like
from fedivon_app.core.posterior import Posterior

_SMALLEST = 1e-30
_LARGEST = 1e30  # bounds of d: far outside what is meant, inside what float32 can square-root
_BOUND_EVERY = 16  # steps; d halves at most in one, so that it stays a float32 in between

Group = dict[str, Any]  # of parameters, with the hyper-parameters that hold for them


class IVON(torch.optim.Optimizer):
    """The optimizer, with the interface and the random numbers of the `ivon-opt` package.

        with optimizer.sampled_params(train=True):
            loss(model(inputs), labels).backward()
        optimizer.step()

    The parameters become views of one flat vector, and their gradients of another, unless they are
    so already. Inside `sampled_params` they hold a draw from the posterior, outside of it its mean.
    """

    # Bare, for torch's wrapper imports its compiler, which would cost every new process of a client
    # more than a second.
    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        ess: float,
        hess_init: float = 1.0,
        beta1: float = 0.9,
        beta2: float = 0.99999,
        weight_decay: float = 1e-4,
        mc_samples: int = 1,
        clip_radius: float = inf,
        debias: bool = True,
        rescale_lr: bool = True,
        antithetic: bool = False,
        prior: Posterior | None = None,
        dual: tuple[np.ndarray, np.ndarray] | None = None,
    ):
        _require(lr >= 0, f"lr is {lr}; it must be at least 0")
        _require(ess > 0, f"ess is {ess}; it must be above 0")
        _require(hess_init >= 0, f"hess_init is {hess_init}; it must be at least 0")
        _require(0 <= beta1 < 1, f"beta1 is {beta1}; it must be at least 0 and below 1")
        _require(0 <= beta2 <= 1, f"beta2 is {beta2}; it must be between 0 and 1")
        _require(weight_decay >= 0, f"weight_decay is {weight_decay}; it must be at least 0")
        _require(mc_samples >= 1, f"mc_samples is {mc_samples}; it must be at least 1")
        _require(clip_radius > 0, f"clip_radius is {clip_radius}; it must be above 0")
        defaults = {
            "lr": lr,
            "ess": ess,
            "hess_init": hess_init,
            "beta1": beta1,
            "beta2": beta2,
            "weight_decay": weight_decay,
            "clip_radius": clip_radius,
        }
        super().__init__(params, defaults)
        self.mc_samples = mc_samples
        self.debias = debias
        self.rescale_lr = rescale_lr
        self.antithetic = antithetic
        self.current_step = 0
        self._parameters: list[Tensor] = [p for group in self.param_groups for p in group["params"]]
        if any(p.dtype != torch.float32 for p in self._parameters):
            raise ValueError("IVON works on float32 parameters; cast the model with .float()")
        self._mean = flat_view([p.data for p in self._parameters])
        self._drawn = torch.empty_like(self._mean)
        self._mean_views = views_like(self._mean, self._parameters)
        self._drawn_views = views_like(self._drawn, self._parameters)
        self._show(self._mean_views)
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        complete = len(gradients) == len(self._parameters)
        self._gradient = flat_view(gradients) if complete else torch.zeros_like(self._mean)
        self._gradient_views = views_like(self._gradient, self._parameters)
        self._momentum = torch.zeros_like(self._mean)
        self._noise = torch.empty_like(self._mean)  # epsilon of theta = m +- epsilon/sqrt(s)
        self._root = torch.empty_like(self._mean)  # 1/sqrt(d)
        self._sign = -1  # of epsilon in the last sample of training
        self._samples = 0  # since the last step
        self._gradient_sum: Tensor | None = None  # over the samples of a step, if they are several
        self._noise_sum: Tensor | None = None  # of epsilon g_hat, likewise
        self._prior_mean = None if prior is None else self._vector(prior.mean, "prior")
        self._v = None if dual is None else self._vector(dual[0], "dual")
        self._u = None if dual is None else self._vector(dual[1], "dual")
        self._scaled = self._first_scaled(prior)  # d = h + wd = precision / ess
        if not bool(self._scaled.min() > 0):
            raise ValueError(
                "hess_init + weight_decay (or the prior's precision / ess) "
                "must be above 0 everywhere"
            )

    def _vector(self, values: np.ndarray, name: str) -> Tensor:
        vector = torch.tensor(np.asarray(values, np.float32), device=self._mean.device)
        if vector.shape != self._mean.shape:
            raise ValueError(
                f"the {name} has {vector.numel()} values; the parameters have {self._mean.numel()}"
            )
        return vector

    def _first_scaled(self, prior: Posterior | None) -> Tensor:
        """Return d = hess_init + wd, and note each group's place in the vector and its wd."""
        precision = None if prior is None else self._vector(prior.known_precision, "prior")
        scaled = torch.empty_like(self._mean)
        offset = 0
        for group in self.param_groups:
            part = slice(offset, offset + sum(p.numel() for p in group["params"]))
            group["slice"] = part
            group["decay"] = (
                group["weight_decay"] if precision is None else precision[part] / group["ess"]
            )
            scaled[part] = group["hess_init"] + group["decay"]
            offset = part.stop
        return scaled

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Clear the flat gradient; its views stay bound, whatever `set_to_none` says."""
        self._gradient.zero_()
        for p, view in zip(self._parameters, self._gradient_views, strict=True):
            if p.requires_grad and p.grad is not view:
                p.grad = view

    def _collect_gradient(self) -> Tensor:
        """Return the flat gradient, also where somebody put other tensors into `p.grad`.

        `model.zero_grad()` does so.
        """
        for p, view in zip(self._parameters, self._gradient_views, strict=True):
            if p.requires_grad and p.grad is not view:
                view.zero_() if p.grad is None else view.copy_(p.grad)
                p.grad = view
        return self._gradient

    @contextmanager
    def sampled_params(self, train: bool = False) -> Iterator[None]:
        """Let the parameters hold a draw from the posterior inside the block.

        With `train`, the gradient that they have at its end counts for `step`.
        """
        with torch.no_grad():
            noise, sign = self._draw_noise(train)
            torch.rsqrt(self._scaled, out=self._root)
            for group in self.param_groups:
                part = group["slice"]
                torch.addcmul(
                    self._mean[part],
                    noise[part],
                    self._root[part],
                    value=sign * group["ess"] ** -0.5,
                    out=self._drawn[part],
                )
            if train:
                self.zero_grad()
        self._show(self._drawn_views)
        try:
            yield
            if train:
                self._keep_sample()
        finally:
            self._show(self._mean_views)

    def _draw_noise(self, train: bool) -> tuple[Tensor, int]:
        """Return the next epsilon and its sign."""
        noise = torch.empty_like(self._mean)
        sign = 1  # a kept sample is not drawn over
        if train:
            noise = self._noise
            sign = -self._sign if self.antithetic else 1
            self._sign = sign
        if sign > 0:
            for group in self.param_groups:  # group after group, as ivon-opt draws
                noise[group["slice"]].normal_()
        return noise, sign

    def _show(self, views: list[Tensor]) -> None:
        """Let the parameters hold these values from now on."""
        for p, view in zip(self._parameters, views, strict=True):
            p.data = view

    @torch.no_grad()
    def _keep_sample(self) -> None:
        gradient = self._collect_gradient()
        self._samples += 1
        if self.mc_samples == 1 and self._samples == 1:
            return
        if self._samples == 1:
            self._gradient_sum = gradient.clone()
            self._noise_sum = (self._noise * gradient).mul_(self._sign)
        elif self._gradient_sum is None or self._noise_sum is None:
            raise RuntimeError(
                f"{self._samples} samples were drawn before one step; "
                f"say so with IVON(..., mc_samples={self._samples})"
            )
        else:
            self._gradient_sum.add_(gradient)
            self._noise_sum.addcmul_(self._noise, gradient, value=self._sign)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Move m and h by one step, from the samples drawn since the last one.

        A `closure` draws a sample, runs backward and returns the loss; if one is given it is called
        `mc_samples` times, and the mean of its losses is returned.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = sum(closure() for _ in range(self.mc_samples)) / self.mc_samples
        if self._samples == 0:
            raise RuntimeError(
                "step() needs a gradient: "
                "run backward() inside `with optimizer.sampled_params(train=True)`"
            )
        gradient = self._gradient
        noise = self._noise
        averaged = self._gradient_sum is not None
        if self._gradient_sum is not None and self._noise_sum is not None:
            gradient = self._gradient_sum.div_(self._samples)
            noise = self._noise_sum.div_(self._samples)
        self.current_step += 1
        for group in self.param_groups:
            self._update(group, gradient, noise, averaged=averaged)
        if self.current_step % _BOUND_EVERY == 0:
            self._scaled.clamp_(_SMALLEST, _LARGEST)
        self._samples = 0
        self._gradient_sum = None
        self._noise_sum = None
        return loss

    def _update(self, group: Group, gradient: Tensor, noise: Tensor, averaged: bool) -> None:
        """Move the group's m and h.

        `noise` is epsilon without its sign, or epsilon g_hat if it is `averaged` over samples.
        """
        part = group["slice"]
        decay = group["decay"]
        ess = group["ess"]
        rate = 1 - group["beta2"]
        mean = self._mean[part]
        momentum = self._momentum[part]
        scaled = self._scaled[part]
        root = self._root[part]
        v = None if self._v is None else self._v[part]
        u = None if self._u is None else self._u[part]

        # y = 1 + rate (h_hat - h)/d with h_hat = sqrt(ess d) epsilon g_hat - u and h = d - decay,
        # then d (1 + y^2)/2; in units of 1/sqrt(2):
        # c + k (epsilon g_hat + (decay - u)/sqrt(ess d)) / sqrt(d)
        growth = noise[part]
        factor = rate * (0.5 * ess) ** 0.5
        free = self._drawn[part]  # nobody looks at the sample any more, but epsilon may be mirrored
        scalar = u is None and not isinstance(decay, Tensor)
        if scalar and decay and not averaged:
            unit = decay * ess**-0.5  # for one pass in place of two
            growth = torch.addcmul(root, growth, gradient[part], value=self._sign / unit, out=free)
            factor *= unit
        else:
            if not averaged:
                zero = self._constant(0)
                growth = torch.addcmul(zero, growth, gradient[part], value=self._sign, out=free)
            if scalar:
                growth.add_(root, alpha=decay * ess**-0.5)
            else:
                growth.addcmul_(root, decay if u is None else decay - u, value=ess**-0.5)
        torch.addcmul(self._constant((1 - rate) * 0.5**0.5), growth, root, value=factor, out=growth)
        scaled.mul_(torch.addcmul(self._constant(0.5), growth, growth, out=growth))
        momentum.lerp_(gradient[part], 1 - group["beta1"])

        # m - lr (g/correction + decay (m - m_p) + v - u m) / d, coordinate-wise clipped
        learning_rate = group["lr"]
        if self.rescale_lr:
            learning_rate = learning_rate * (group["hess_init"] + decay)
        correction = 1 - group["beta1"] ** self.current_step if self.debias else 1.0
        radius = group["clip_radius"]
        if self._prior_mean is None and v is None and isinf(radius):
            step = torch.add(momentum, mean, alpha=decay * correction, out=growth)
            mean.addcdiv_(step, scaled, value=-learning_rate / correction)
            return
        if self._prior_mean is None:
            step = mean * decay
        else:
            step = (mean - self._prior_mean[part]).mul_(decay)
        step.add_(momentum, alpha=1 / correction)
        if v is not None and u is not None:
            step.add_(v).addcmul_(u, mean, value=-1)
        mean.sub_(step.div_(scaled).clamp_(-radius, radius).mul_(learning_rate))

    def _constant(self, value: float) -> Tensor:
        return self._mean.new_tensor(value)

    @property
    def hess(self) -> Tensor:
        """Return h = s/ess - wd as a new flat tensor; assign to it to set it."""
        value = self._scaled.clone()
        for group in self.param_groups:
            value[group["slice"]] -= group["decay"]
        return value

    @hess.setter
    def hess(self, value: Array) -> None:
        self._set_scaled(value, lambda part, group: part.add_(group["decay"]))

    @property
    def precision(self) -> Tensor:
        """Return s = ess (h + wd) as a new flat tensor; assign to it to set it."""
        value = self._scaled.clamp(_SMALLEST, _LARGEST)
        for group in self.param_groups:
            value[group["slice"]] *= group["ess"]
        return value

    @precision.setter
    def precision(self, value: Array) -> None:
        self._set_scaled(value, lambda part, group: part.div_(group["ess"]))

    def _set_scaled(self, value: Array, convert: Callable[[Tensor, Group], Tensor]) -> None:
        if isinstance(value, Tensor):
            scaled = value.to(self._mean, copy=True)
        else:
            scaled = torch.tensor(value, dtype=torch.float32, device=self._mean.device)
        if scaled.shape != self._mean.shape:
            raise ValueError(f"got {scaled.numel()} values for {self._mean.numel()} parameters")
        for group in self.param_groups:
            convert(scaled[group["slice"]], group)
        if not bool(scaled.min() > 0):
            raise ValueError(
                "hess + weight_decay must be above 0 everywhere: "
                "it is the posterior's precision / ess"
            )
        self._scaled = scaled

    def posterior(self) -> Posterior:
        """Return the Gaussian learned so far, as new arrays."""
        return Posterior(self._mean.cpu().numpy().copy(), self.precision.cpu().numpy())

    def state_dict(self) -> dict[str, Any]:
        """Return hyper-parameters, mean, momentum, precision and the step count, as copies."""
        derived = ("params", "slice", "decay")
        groups = [
            {key: value for key, value in group.items() if key not in derived}
            | {"size": _size(group)}
            for group in self.param_groups
        ]
        state = {
            "step": self.current_step,
            "momentum": self._momentum.clone(),
            "scaled": self._scaled.clone(),
            "mean": self._mean.clone(),
        }
        return {"state": state, "param_groups": groups}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` gave; the prior and the duals stay those of this optimizer.

        The next sample is a new one, not the mirror of one that was drawn before.
        """
        saved = state_dict["param_groups"]
        if [group["size"] for group in saved] != [_size(group) for group in self.param_groups]:
            raise ValueError("the saved state has other parameter groups than this optimizer")
        for group, values in zip(self.param_groups, saved, strict=True):
            group.update({key: value for key, value in values.items() if key != "size"})
            if not isinstance(group["decay"], Tensor):
                group["decay"] = group["weight_decay"]
        state = state_dict["state"]
        self.current_step = state["step"]
        self._sign = -1
        self._momentum.copy_(state["momentum"])
        self._scaled.copy_(state["scaled"])
        self._mean.copy_(state["mean"])


def _size(group: Group) -> int:
    part: slice = group["slice"]
    return int(part.stop - part.start)


def _require(condition: bool, complaint: str) -> None:
    if not condition:
        raise ValueError(f"IVON: {complaint}")
