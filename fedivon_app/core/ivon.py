"""IVON, the improved variational online Newton optimizer (Shen et al. 2024), on flat buffers.

It learns q(theta) = N(m, 1/s), s = ess (h + wd), by the step of Pal et al. 2025, Algorithm 1:

    theta ~ q,  g_hat = gradient of the mean minibatch loss at theta
    h_hat = g_hat (theta - m) ess (h + wd) - u
    g = b1 g + (1 - b1) g_hat
    h = b2 h + (1 - b2) h_hat + 0.5 (1 - b2)^2 (h - h_hat)^2 / (h + wd)
    m = m - lr clip[ (g / (1 - b1^t) + wd (m - m_p) + v - u m) / (h + wd) ]

`wd` is the scalar weight decay with m_p = 0, or, under a Gaussian prior N(m_p, 1/s_p), the vector s_p / ess. The
duals (v, u) are zero unless given. The buffer that is kept is d = h + wd = s/ess: with y = 1 + (1 - b2)(h_hat - h)/d
the second line above is d <- d (1 + y^2) / 2, which is positive whatever the gradients.

With `antithetic` every second sample mirrors the one before it, m - epsilon/sqrt(s) after m + epsilon/sqrt(s): each is
a draw from q as before, a pair needs half the random numbers, and what the gradient at m adds to h_hat cancels in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import unwrap
from math import inf, isinf

import numpy as np
import torch
from torch import Tensor

from fedivon_app.core.posterior import Posterior

_SMALLEST = 1e-30
_LARGEST = 1e30  # bounds of d: far outside what is meant, inside what float32 can square-root
_BOUND_EVERY = 16  # steps; d halves at most in one, so that it stays a float32 in between


class IVON(torch.optim.Optimizer):
    """The optimizer; interface and random numbers as in the `ivon-opt` package.

        with optimizer.sampled_params(train=True):
            loss(model(inputs), labels).backward()
        optimizer.step()

    The parameters become views of one flat vector (and their gradients of another), unless they are so already.
    Inside `sampled_params` they hold a draw from the posterior, outside of it the posterior's mean.
    """

    # Bare, for torch's wrapper imports its compiler, which takes every new process of a client more than a second.
    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)

    def __init__(
        self,
        params,
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
        _check(lr >= 0, "lr", lr, "at least 0")
        _check(ess > 0, "ess", ess, "above 0")
        _check(hess_init >= 0, "hess_init", hess_init, "at least 0")
        _check(0 <= beta1 < 1, "beta1", beta1, "at least 0 and below 1")
        _check(0 <= beta2 <= 1, "beta2", beta2, "between 0 and 1")
        _check(weight_decay >= 0, "weight_decay", weight_decay, "at least 0")
        _check(mc_samples >= 1, "mc_samples", mc_samples, "at least 1")
        _check(clip_radius > 0, "clip_radius", clip_radius, "above 0")
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
        self._sign = -1  # the sign of epsilon in the last sample of training
        self.current_step = 0
        self._parameters = [p for group in self.param_groups for p in group["params"]]
        if any(p.dtype != torch.float32 for p in self._parameters):
            raise ValueError("IVON works on float32 parameters; cast the model with .float()")
        self._mean = flat_view([p.data for p in self._parameters])
        self._drawn = torch.empty_like(self._mean)
        self._mean_views, self._drawn_views = (
            _split(v, self._parameters) for v in (self._mean, self._drawn)
        )
        self._show(self._mean_views)
        gradients = [p.grad for p in self._parameters]
        missing = any(gradient is None for gradient in gradients)
        self._gradient = torch.zeros_like(self._mean) if missing else flat_view(gradients)
        self._gradient_views = _split(self._gradient, self._parameters)
        self._momentum = torch.zeros_like(self._mean)
        self._noise = torch.empty_like(self._mean)  # epsilon of theta = m +- epsilon/sqrt(s)
        self._root = torch.empty_like(self._mean)  # 1/sqrt(d)
        self._gradient_sum = self._noise_sum = (
            None  # only where more than one sample is drawn a step
        )
        self._samples = 0
        self._prior_mean, prior_precision = self._vectors(
            prior and (prior.mean, prior.precision), "prior"
        )
        self._dual = self._vectors(dual, "dual")
        self._scaled = torch.empty_like(self._mean)  # d = h + wd = precision / ess
        offset = 0
        for group in self.param_groups:
            end = offset + sum(p.numel() for p in group["params"])
            group["slice"] = slice(offset, end)
            decay = (
                group["weight_decay"]
                if prior is None
                else prior_precision[offset:end] / group["ess"]
            )
            group["decay"] = decay
            self._scaled[offset:end] = group["hess_init"] + decay
            offset = end
        if not bool(self._scaled.min() > 0):
            raise ValueError(
                "hess_init + weight_decay (or the prior's precision / ess) must be above 0 everywhere"
            )

    def _vectors(self, pair, name: str) -> tuple[Tensor | None, Tensor | None]:
        if pair is None:
            return None, None
        tensors = tuple(
            torch.tensor(np.asarray(a, np.float32), device=self._mean.device) for a in pair
        )
        for tensor in tensors:
            if tensor.shape != self._mean.shape:
                raise ValueError(
                    f"the {name} has {tensor.numel()} values; the parameters have {self._mean.numel()}"
                )
        return tensors

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Clears the flat gradient; its views stay bound, whatever `set_to_none` says."""
        self._gradient.zero_()
        for p, view in zip(self._parameters, self._gradient_views, strict=True):
            if p.requires_grad and p.grad is not view:
                p.grad = view

    def _collect_gradient(self) -> Tensor:
        """The flat gradient, also where somebody put other tensors into `p.grad` (`model.zero_grad()` does)."""
        for p, view in zip(self._parameters, self._gradient_views, strict=True):
            if p.requires_grad and p.grad is not view:
                view.zero_() if p.grad is None else view.copy_(p.grad)
                p.grad = view
        return self._gradient

    @contextmanager
    def sampled_params(self, train: bool = False) -> Iterator[None]:
        """The parameters hold a draw from the posterior inside; with `train`, their gradient counts for `step`."""
        with torch.no_grad():
            noise, sign = self._draw_noise(train)
            torch.rsqrt(self._scaled, out=self._root)
            for group in self.param_groups:
                part = group["slice"]
                scale = sign * group["ess"] ** -0.5
                torch.addcmul(
                    self._mean[part],
                    noise[part],
                    self._root[part],
                    value=scale,
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
        """The next epsilon and its sign."""
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
        """The parameters hold these values from now on."""
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
        elif self._gradient_sum is None:
            raise RuntimeError(
                f"{self._samples} samples were drawn before one step; say so with IVON(..., mc_samples={self._samples})"
            )
        else:
            self._gradient_sum.add_(gradient)
            self._noise_sum.addcmul_(self._noise, gradient, value=self._sign)

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """One step of m and h from the samples drawn since the last one; `closure` draws them itself if given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = sum(closure() for _ in range(self.mc_samples)) / self.mc_samples
        if self._samples == 0:
            raise RuntimeError(
                "step() needs a gradient: run backward() inside `with optimizer.sampled_params(train=True)`"
            )
        gradient = self._gradient
        noise = self._noise
        averaged = self._gradient_sum is not None
        if averaged:
            gradient = self._gradient_sum.div_(self._samples)
            noise = self._noise_sum.div_(self._samples)
        self.current_step += 1
        for group in self.param_groups:
            self._update(group, gradient, noise, averaged)
        if self.current_step % _BOUND_EVERY == 0:
            self._scaled.clamp_(_SMALLEST, _LARGEST)
        self._samples = 0
        self._gradient_sum = None
        self._noise_sum = None
        return loss

    def _update(self, group: dict, gradient: Tensor, noise: Tensor, averaged: bool) -> None:
        """The group's m and h; `noise` is epsilon without its sign, or epsilon g_hat averaged over samples."""
        part = group["slice"]
        decay = group["decay"]
        ess = group["ess"]
        rate = 1 - group["beta2"]
        mean = self._mean[part]
        momentum = self._momentum[part]
        scaled = self._scaled[part]
        root = self._root[part]
        dual_mean, dual_precision = (
            vector if vector is None else vector[part] for vector in self._dual
        )

        # y = 1 + rate (h_hat - h)/d with h_hat = sqrt(ess d) epsilon g_hat - u and h = d - decay, then d (1 + y^2)/2;
        # in units of 1/sqrt(2): c + k (epsilon g_hat + (decay - u)/sqrt(ess d)) / sqrt(d)
        growth = noise[part]
        factor = rate * (0.5 * ess) ** 0.5
        free = self._drawn[part]  # nobody looks at the sample any more, but epsilon may be mirrored
        scalar = dual_precision is None and not isinstance(decay, Tensor)
        if (
            scalar and decay and not averaged
        ):  # in units of decay/sqrt(ess), for one pass in place of two
            unit = decay * ess**-0.5
            growth = torch.addcmul(root, growth, gradient[part], value=self._sign / unit, out=free)
            factor *= unit
        else:
            if not averaged:
                growth = torch.addcmul(
                    self._constant(0), growth, gradient[part], value=self._sign, out=free
                )
            if scalar:
                growth.add_(root, alpha=decay * ess**-0.5)
            else:
                growth.addcmul_(
                    root,
                    decay if dual_precision is None else decay - dual_precision,
                    value=ess**-0.5,
                )
        torch.addcmul(self._constant((1 - rate) * 0.5**0.5), growth, root, value=factor, out=growth)
        scaled.mul_(torch.addcmul(self._constant(0.5), growth, growth, out=growth))
        momentum.lerp_(gradient[part], 1 - group["beta1"])

        # m - lr (g/correction + decay (m - m_p) + v - u m) / d, coordinate-wise clipped
        learning_rate = (
            group["lr"] * (group["hess_init"] + decay) if self.rescale_lr else group["lr"]
        )
        correction = 1 - group["beta1"] ** self.current_step if self.debias else 1.0
        if self._prior_mean is None and dual_mean is None and isinf(group["clip_radius"]):
            step = torch.add(momentum, mean, alpha=decay * correction, out=growth)
            mean.addcdiv_(step, scaled, value=-learning_rate / correction)
            return
        step = (
            mean * decay
            if self._prior_mean is None
            else (mean - self._prior_mean[part]).mul_(decay)
        )
        step.add_(momentum, alpha=1 / correction)
        if dual_mean is not None:
            step.add_(dual_mean).addcmul_(dual_precision, mean, value=-1)
        mean.sub_(
            step.div_(scaled)
            .clamp_(-group["clip_radius"], group["clip_radius"])
            .mul_(learning_rate)
        )

    def _constant(self, value: float) -> Tensor:
        return self._mean.new_tensor(value)

    @property
    def hess(self) -> Tensor:
        """h = s/ess - wd, a new flat tensor; assign to it to set it."""
        value = self._scaled.clone()
        for group in self.param_groups:
            value[group["slice"]] -= group["decay"]
        return value

    @hess.setter
    def hess(self, value) -> None:
        self._set_scaled(value, lambda part, group: part.add_(group["decay"]))

    @property
    def precision(self) -> Tensor:
        """s = ess (h + wd), a new flat tensor; assign to it to set it."""
        value = self._scaled.clamp(_SMALLEST, _LARGEST)
        for group in self.param_groups:
            value[group["slice"]] *= group["ess"]
        return value

    @precision.setter
    def precision(self, value) -> None:
        self._set_scaled(value, lambda part, group: part.div_(group["ess"]))

    def _set_scaled(self, value, convert: Callable[[Tensor, dict], Tensor]) -> None:
        if isinstance(value, Tensor):
            value = value.to(self._mean, copy=True)
        else:
            value = torch.tensor(value, dtype=torch.float32, device=self._mean.device)
        if value.shape != self._mean.shape:
            raise ValueError(f"got {value.numel()} values for {self._mean.numel()} parameters")
        for group in self.param_groups:
            convert(value[group["slice"]], group)
        if not bool(value.min() > 0):
            raise ValueError(
                "hess + weight_decay must be above 0 everywhere: it is the posterior's precision / ess"
            )
        self._scaled = value

    def posterior(self) -> Posterior:
        """The Gaussian learned so far, as new arrays."""
        return Posterior(self._mean.cpu().numpy().copy(), self.precision.cpu().numpy())

    def state_dict(self) -> dict:
        derived = ("params", "slice", "decay")
        groups = [
            {k: v for k, v in g.items() if k not in derived} | {"size": _size(g)}
            for g in self.param_groups
        ]
        state = {
            "step": self.current_step,
            "momentum": self._momentum.clone(),
            "scaled": self._scaled.clone(),
        }
        return {"state": state | {"mean": self._mean.clone()}, "param_groups": groups}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict) -> None:
        """Restores hyper-parameters, mean, momentum, precision and the step count (not the prior, nor the duals); the
        next sample is a new one, not the mirror of one drawn before."""
        saved = state_dict["param_groups"]
        if [g["size"] for g in saved] != [_size(g) for g in self.param_groups]:
            raise ValueError("the saved state has other parameter groups than this optimizer")
        for group, values in zip(self.param_groups, saved, strict=True):
            group.update({k: v for k, v in values.items() if k != "size"})
            if not isinstance(group["decay"], Tensor):
                group["decay"] = group["weight_decay"]
        state = state_dict["state"]
        self.current_step = state["step"]
        self._sign = -1
        self._momentum.copy_(state["momentum"])
        self._scaled.copy_(state["scaled"])
        self._mean.copy_(state["mean"])


def flat_view(tensors: Sequence[Tensor]) -> Tensor:
    """One flat vector over `tensors`: the one that they already are consecutive views of, or else a new one."""
    first = tensors[0]
    offset = tensors[0].storage_offset()
    for tensor in tensors:
        same = tensor.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        if not (same and tensor.is_contiguous() and tensor.storage_offset() == offset):
            return torch.cat([t.detach().reshape(-1) for t in tensors])
        offset += tensor.numel()
    numel = offset - first.storage_offset()
    return first.new_empty(0).set_(first.untyped_storage(), first.storage_offset(), (numel,))


def _split(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    return [
        part.view_as(p)
        for part, p in zip(vector.split([p.numel() for p in like]), like, strict=True)
    ]


def _size(group: dict) -> int:
    return group["slice"].stop - group["slice"].start


def _check(condition: bool, name: str, value: float, right: str) -> None:
    if not condition:
        raise ValueError(f"IVON: {name} is {value}; it must be {right}")
