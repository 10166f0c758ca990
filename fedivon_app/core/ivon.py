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

With `noise` "fast" or "faster" the random numbers come from a table, see core/normals.py; with
"fused" a compiled loop draws them, and makes a sample, or a step, of them as it goes.

With `step_bound` no step moves a coordinate by more than so many of its sigmas 1/sqrt(s), those of
the sample. A step divides by h, so that where h is far below hess_init a rate that was fine in the
beginning throws the mean out of all that the samples have seen; a bound in sigmas grows with
1/sqrt(h) alone, and is a bound on the divergence from before the step, (m' - m)^2 s / 2.

With `precision` training begins at a posterior that is known, in place of s = ess (hess_init + wd).

With `gradient_noise` sigma the gradients are known to have noise N(0, sigma^2) of their own, as
private ones do. It is independent of epsilon, so that h_hat stays right on average, but its square
is in the last term of the line for h, which grows by 0.5 (1 - b2)^2 ess sigma^2 a step. That is
what h_hat is lowered by, over (1 - b2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import unwrap
from math import inf
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from fedivon_app.core.flat import Array
from fedivon_app.core.flat_parameters import FlatParameters
from fedivon_app.core.ivon_options import check_options
from fedivon_app.core.ivon_passes import passes
from fedivon_app.core.ivon_samples import Average, Samples
from fedivon_app.core.ivon_step import LARGEST, SMALLEST, Numbers, Sampled, Vectors
from fedivon_app.core.normals import Noise
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.transfer import sent

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

    _scaled: Tensor  # d = h + wd = precision / ess

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
        step_bound: float = inf,
        antithetic: bool = False,
        gradient_noise: float = 0.0,
        prior: Posterior | None = None,
        dual: tuple[np.ndarray, np.ndarray] | None = None,
        noise: Noise = "torch",
        precision: Array | None = None,
    ):
        options = {
            "lr": lr,
            "ess": ess,
            "hess_init": hess_init,
            "beta1": beta1,
            "beta2": beta2,
            "weight_decay": weight_decay,
            "clip_radius": clip_radius,
            "step_bound": step_bound,
            "gradient_noise": gradient_noise,
        }
        check_options(options | {"mc_samples": mc_samples})
        super().__init__(params, options)
        self.mc_samples = mc_samples
        self.debias = debias
        self.rescale_lr = rescale_lr
        self.current_step = 0
        self._flat = FlatParameters([p for group in self.param_groups for p in group["params"]])
        self._mean = self._flat.mean
        self._momentum = torch.zeros_like(self._mean)
        self._root = torch.empty_like(self._mean)  # 1/sqrt(d)
        self._samples = Samples(
            self._mean,
            expected=mc_samples,
            mirrored=antithetic,
        )
        self._passes = passes(noise, self._mean.device)
        self._prior_mean = None if prior is None else self._vector(prior.mean, "prior")
        self._v = None if dual is None else self._vector(dual[0], "dual")
        self._u = None if dual is None else self._vector(dual[1], "dual")
        self._note_groups(prior)
        if precision is None:
            self._scaled = self._first_scaled()
        else:
            self.precision = precision

    def _vector(self, values: np.ndarray, name: str) -> Tensor:
        vector = sent(torch.tensor(np.asarray(values, np.float32)), self._mean.device)
        if vector.shape != self._mean.shape:
            raise ValueError(
                f"the {name} has {vector.numel()} values; the parameters have {self._mean.numel()}"
            )
        return vector

    def _note_groups(self, prior: Posterior | None) -> None:
        """Note each group's place in the vector and its wd."""
        precision = None if prior is None else self._vector(prior.known_precision, "prior")
        offset = 0
        for group in self.param_groups:
            part = slice(offset, offset + sum(p.numel() for p in group["params"]))
            group["slice"] = part
            group["decay"] = (
                group["weight_decay"] if precision is None else precision[part] / group["ess"]
            )
            self._note_pull(group)
            offset = part.stop

    def _first_scaled(self) -> Tensor:
        """Return d = hess_init + wd."""
        scaled = torch.empty_like(self._mean)
        for group in self.param_groups:
            scaled[group["slice"]] = group["hess_init"] + group["decay"]
        if not bool(scaled.min() > 0):
            raise ValueError(
                "hess_init + weight_decay (or the prior's precision / ess) "
                "must be above 0 everywhere"
            )
        return scaled

    def _note_pull(self, group: Group) -> None:
        """Note wd - u, which every step needs."""
        decay = group["decay"]
        group["pull"] = decay if self._u is None else decay - self._u[group["slice"]]

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Clear the flat gradient; its views stay bound, whatever `set_to_none` says."""
        self._flat.clear_gradient()

    @contextmanager
    def sampled_params(self, train: bool = False) -> Iterator[None]:
        """Let the parameters hold a draw from the posterior inside the block.

        With `train`, the gradient that they have at its end counts for `step`.
        """
        with torch.no_grad():
            draw = self._samples.next() if train else self._samples.aside()
            for group in self.param_groups:  # one after the other, as ivon-opt draws
                part = group["slice"]
                at = Sampled(
                    mean=_cut(self._mean, part),
                    scaled=_cut(self._scaled, part),
                    root=_cut(self._root, part),
                    noise=_cut(draw.noise, part),
                    drawn=_cut(self._flat.drawn, part),
                    new=draw.new,
                )
                self._passes.sample(at, width=draw.sign * group["ess"] ** -0.5)
            if train:
                self.zero_grad()
        self._flat.show_drawn()
        try:
            yield
            if train:
                with torch.no_grad():
                    self._samples.keep(self._flat.collect_gradient())
        finally:
            self._flat.show_mean()

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
        average = self._samples.take(self._flat.gradient)
        self.current_step += 1
        for group in self.param_groups:
            self._update(group, average)
        if self.current_step % _BOUND_EVERY == 0:
            self._scaled.clamp_(SMALLEST, LARGEST)
        return loss

    def _update(self, group: Group, average: Average) -> None:
        """Move the group's h, its momentum and its m."""
        part = group["slice"]
        at = Vectors(
            mean=_cut(self._mean, part),
            momentum=_cut(self._momentum, part),
            scaled=_cut(self._scaled, part),
            root=_cut(self._root, part),
            gradient=_cut(average.gradient, part),
            noise=_cut(average.noise, part),
            free=_cut(self._flat.drawn, part),
            sign=average.sign,
            multiplied=average.multiplied,
            decay=group["decay"],
            pull=group["pull"],
            prior_mean=None if self._prior_mean is None else _cut(self._prior_mean, part),
            v=None if self._v is None else _cut(self._v, part),
            u=None if self._u is None else _cut(self._u, part),
        )
        by = Numbers(
            ess=group["ess"],
            beta1=group["beta1"],
            beta2=group["beta2"],
            learning_rate=group["lr"],
            hess_init=group["hess_init"],
            rescaled=self.rescale_lr,
            correction=1 - group["beta1"] ** self.current_step if self.debias else 1.0,
            clip_radius=group["clip_radius"],
            step_bound=group["step_bound"],
            gradient_noise=group["gradient_noise"],
        )
        self._passes.move(at, by)

    @property
    def hess(self) -> Tensor:
        """Return h = s/ess - wd as a new flat tensor; assign to it to set it."""
        value = self._scaled.clone()
        for group in self.param_groups:
            value[group["slice"]] -= group["decay"]
        return value

    @hess.setter
    def hess(self, value: Array) -> None:
        self._set_scaled(value, _with_decay)

    @property
    def precision(self) -> Tensor:
        """Return s = ess (h + wd) as a new flat tensor; assign to it to set it."""
        value = torch.empty_like(self._scaled)
        for group in self.param_groups:
            part = group["slice"]
            self._passes.end(_cut(self._scaled, part), group["ess"], out=_cut(value, part))
        return value

    @precision.setter
    def precision(self, value: Array) -> None:
        self._set_scaled(
            value, lambda part, group, out: self._passes.begin(part, group["ess"], out)
        )

    def _set_scaled(self, value: Array, convert: Callable[[Tensor, Group, Tensor], bool]) -> None:
        if isinstance(value, Tensor):
            given = value.to(self._mean)
        else:
            given = sent(torch.from_numpy(np.require(value, np.float32, "W")), self._mean.device)
        if given.shape != self._mean.shape:
            raise ValueError(f"got {given.numel()} values for {self._mean.numel()} parameters")
        scaled = torch.empty_like(self._mean)
        above = True
        for group in self.param_groups:
            part = group["slice"]
            above &= convert(_cut(given, part), group, _cut(scaled, part))
        if not above:
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
        derived = ("params", "slice", "decay", "pull")
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
            self._note_pull(group)
        state = state_dict["state"]
        self.current_step = state["step"]
        self._samples.forget()
        self._momentum.copy_(state["momentum"])
        self._scaled.copy_(state["scaled"])
        self._mean.copy_(state["mean"])


def _with_decay(hessian: Tensor, group: Group, out: Tensor) -> bool:
    """Let `out` be d = h + wd, and tell whether it is above 0 everywhere."""
    return bool(torch.add(hessian, group["decay"], out=out).min() > 0)


def _cut(vector: Tensor, part: slice) -> Tensor:
    """Return a part of a vector; where that is all of it, no new tensor is made for it."""
    return vector if part.stop - part.start == vector.numel() else vector[part]


def _size(group: Group) -> int:
    part: slice = group["slice"]
    return int(part.stop - part.start)
