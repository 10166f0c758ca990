"""BayesADMM and its relatives on small problems, without a federation, round by round: for `fedivon illustrate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedivon_app.core import dense, duality
from fedivon_app.core.dense import Dense, Diverged, Loss
from fedivon_app.core.duality import Space
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.regression import LogisticRegression, Ridge, SoftmaxRegression
from fedivon_app.datasets.resize import fit
from fedivon_app.datasets.sources import DataError, load

PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))  # the classes of the five clients
STRETCH = {
    "step": 1 / 40,
    "most": 40,
}  # of VON: 63 % of the way of a straight descent; see illustrate.figure_3a
Show = Callable[[str], None]


@dataclass(frozen=True)
class Variant:
    """A method of the family by its steps; `alpha` None is ADMM's 1/(1 + rho K)."""

    name: str
    rho: float
    step: float
    alpha: float | None = None
    space: Space = "natural"


VARIANTS = (  # of Figure 3a, with the steps of appendix F.1
    Variant("PVI", 1.0, 1.0, alpha=1.0),
    Variant("PVI, damped", 1.0, 1 / len(PAIRS), alpha=1.0),
    Variant("BregmanADMM", 1.0, 1 / len(PAIRS), space="expectation"),
    Variant("BayesADMM", 1.0, 1.0),
)


@dataclass(frozen=True)
class Family:
    """What a method needs of a family of Gaussians; `merge` also says how many precisions had to be raised."""

    prior: Callable[[int, float], Any]
    solve: Callable[..., Any]
    dual_step: Callable[..., tuple[np.ndarray, np.ndarray]]
    merge: Callable[..., tuple[Any, int]]


class DiagonalSoftmax(SoftmaxRegression):
    """Under a diagonal Gaussian the logits of an example are independent; of the Hessian, the diagonal."""

    def expected(self, q: Posterior) -> dense.Derivatives:
        mean, variance = (
            array.astype(np.float64).reshape(-1, self.num_classes) for array in (q.mean, q.variance)
        )
        squares = np.square(self.x)
        logits = (self.x @ mean)[:, None] + np.sqrt(squares @ variance)[:, None] * self.noise
        logits -= logits.max(2, keepdims=True)
        p = np.exp(logits)
        total = p.sum(2, keepdims=True)
        p /= total
        mean_p = p.mean(1)
        value = -float((self.truth * (logits - np.log(total)).mean(1)).sum())
        curvature = squares.T @ (mean_p - np.square(p).mean(1))
        return value, (self.x.T @ (mean_p - self.truth)).reshape(-1), curvature.reshape(-1)


def solve_diagonal(
    loss: Loss,
    server: Posterior,
    dual: dense.Dual,
    rho: float,
    step: float,
    most: int,
    tolerance: float = 0.0,
) -> Posterior:
    """`dense.solve_client` for diagonal Gaussians."""
    (v, u) = dual
    own = server
    for _ in range(most):
        _, gradient, hessian = loss.expected(own)
        target = server.precision + (hessian - u) / rho
        precision = np.maximum((1 - step) * own.precision + step * target, own.precision / 4)
        slope = (gradient + v - u * own.mean) / rho + server.precision * (own.mean - server.mean)
        own = Posterior(own.mean - step * slope / precision, precision)
        if own.fault():
            raise Diverged(f"the client's {own.fault()}")
    return own


def merge_diagonal(
    clients: Sequence[Posterior], duals: dense.Dual, delta: float, alpha: float
) -> tuple[Posterior, int]:
    """`dense.merge` for diagonal Gaussians (Algorithm 1, lines 9 to 11)."""
    precision = (1 - alpha) * np.mean([q.precision for q in clients], axis=0) + alpha * (
        delta + duals[1]
    )
    shift = (1 - alpha) * np.mean([q.precision * q.mean for q in clients], axis=0) + alpha * duals[
        0
    ]
    low = precision <= 0
    precision[low] = 0.01 * delta
    return Posterior(shift / precision, precision), int(low.sum())


FULL = Family(Dense.isotropic, dense.solve_client, dense.dual_step, dense.merge)
DIAGONAL = Family(
    lambda size, delta: Posterior(np.zeros(size), np.full(size, delta)),
    solve_diagonal,
    duality.dual_step,
    merge_diagonal,
)


def federate(
    family: Family, losses: Sequence[Loss], variant: Variant, delta: float, size: int, **von: Any
) -> Iterator[list[Any]]:
    """The posteriors after each round, the server's and then the clients', from the prior N(0, I/delta)."""
    server = family.prior(size, delta)
    duals: list[tuple[Any, Any]] = [(0 * server.mean, 0 * server.precision) for _ in losses]
    alpha = variant.alpha or 1 / (1 + variant.rho * len(losses))
    while True:
        own = [
            family.solve(loss, server, d, variant.rho, **von)
            for loss, d in zip(losses, duals, strict=True)
        ]
        steps = [family.dual_step(q, server, variant.step, variant.space) for q in own]
        duals = [(d[0] + more[0], d[1] + more[1]) for d, more in zip(duals, steps, strict=True)]
        sums = sum(d[0] for d in duals), sum(d[1] for d in duals)
        server, raised = family.merge(own, sums, delta, alpha)
        if raised or server.fault():
            raise Diverged("the server's precision is not positive definite")
        yield [server, *own]


def trace(
    rounds: Iterator[Any], number: int, score: Callable[[Any], float]
) -> tuple[list[float], str]:
    """The score of the server after each of so many rounds; and, where it ends before that, why."""
    scores: list[float] = []
    try:
        while len(scores) < number:
            scores.append(score(next(rounds)[0]))
    except Diverged as error:
        return scores, f"diverged in round {len(scores) + 1}: {error}"
    return scores, ""


def negative_elbo(q: Any, losses: Sequence[Loss], prior: Any) -> float:
    """sum_k E_q[l_k] + KL(q || prior), Eq. 3."""
    return sum(loss.expected(q)[0] for loss in losses) + q.kl(prior)


def point_admm(
    losses: Sequence[Loss], delta: float, rho: float, size: int
) -> Iterator[list[np.ndarray]]:
    """Federated ADMM (Figure 2a), clients by damped Newton steps; the points of a round, the server's first."""
    mean = np.zeros(size)
    duals = [np.zeros(size) for _ in losses]
    while True:
        own = [_proximal(loss, v, rho, mean) for loss, v in zip(losses, duals, strict=True)]
        duals = [v + rho * (theta - mean) for v, theta in zip(duals, own, strict=True)]
        tie = rho * len(losses)
        mean = (tie * np.mean(own, axis=0) + sum(duals)) / (delta + tie)
        yield [mean, *own]


def _proximal(loss: Loss, v: np.ndarray, rho: float, centre: np.ndarray) -> np.ndarray:
    """argmin loss(theta) + <v, theta> + rho/2 |theta - centre|^2."""

    def objective(theta: np.ndarray) -> float:
        return loss.at(theta)[0] + v @ theta + rho / 2 * np.square(theta - centre).sum()

    theta = centre
    for _ in range(100):
        _, gradient, hessian = loss.at(theta)
        slope = gradient + v + rho * (theta - centre)
        if np.abs(slope).max() < 1e-10:
            break
        way = np.linalg.solve(hessian + rho * np.eye(len(theta)), slope)
        length = 1.0
        here = objective(theta)
        while length > 1e-6 and objective(theta - length * way) > here:
            length /= 2
        theta = theta - length * way
    return theta


def reduced(source: str, side: int, per_class: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Some pictures of each of ten classes as rows of numbers in [0, 1], at most `side` pixels a side; and labels."""
    data = load(source)
    if data.num_classes != 2 * len(PAIRS) or len(data.shape) != 3:
        raise DataError(
            f"source {source}: illustrate needs pictures in ten classes, such as mnist, fmnist or digits"
        )
    rng = np.random.default_rng(seed)
    labels = np.asarray(data.y_train)
    rows = np.concatenate(
        [rng.permutation(np.flatnonzero(labels == c))[:per_class] for c in range(data.num_classes)]
    )
    small = (min(side, data.shape[0]), min(side, data.shape[1]), data.shape[2])
    return fit(source, np.asarray(data.x_train[rows]), small).reshape(len(rows), -1) / 255, labels[
        rows
    ]


def by_pairs(
    x: np.ndarray, y: np.ndarray, labels: np.ndarray, kind: Callable[..., Loss]
) -> list[Loss]:
    """The clients' losses."""
    return [kind(x[part], y[part]) for part in (np.isin(labels, pair) for pair in PAIRS)]


def ridge_distances(source: str, rounds: int, show: Show) -> dict[str, list[float]]:
    """|m - m*| / |m*| after each round, by the method's name, with the best settings of a small grid by the last."""
    x, labels = reduced(source, 7, 100)
    y = labels % 2 * 2.0 - 1
    delta = 25.0
    size = x.shape[1]
    losses = by_pairs(x, y, labels, Ridge)
    exact = np.linalg.solve(x.T @ x + delta * np.eye(size), x.T @ y)

    def distance(server: Dense | np.ndarray) -> float:
        mean = server.mean if isinstance(server, Dense) else server
        return max(float(np.linalg.norm(mean - exact) / np.linalg.norm(exact)), 1e-16)

    def dense_run(rho: float, step: float, space: Space) -> Iterator[Any]:
        return federate(FULL, losses, Variant("", rho, step, space=space), delta, size, step=1.0)

    share = 1 / len(PAIRS)
    tried = {
        "federated ADMM": {
            f"rho {rho:g}": point_admm(losses, delta, rho, size) for rho in (1, 3, 10, 30, 100, 300)
        },
        "BregmanADMM": {
            f"rho {rho:g}, step {step:g}": dense_run(rho, step, "expectation")
            for rho in (share, 1.0)
            for step in (0.1, 0.2, 1.0, 5.0)
        },
        "BayesADMM": {f"rho = step = {share:g}": dense_run(share, share, "natural")},
    }
    found: dict[str, list[float]] = {}
    for name, settings in tried.items():
        runs = {words: trace(run, rounds, distance) for words, run in settings.items()}
        whole = {words: values for words, (values, end) in runs.items() if not end}
        words = min(whole, key=lambda w: whole[w][-1])
        best = f", best of {len(runs)}" if len(runs) > 1 else ""
        found[f"{name} ({words}{best})"] = whole[words]
        show(
            f"3b, {name}, {words}{best}: {' '.join(f'{v:.1e}' for v in whole[words][:4])} ... {whole[words][-1]:.1e}"
        )
    return found


def two_clients(seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Points in the plane and labels: client 1 has classes far apart and, last, an outlier; client 2 close ones."""
    rng = np.random.default_rng(seed)
    clouds = (((-4, 0), (4, 0), 20, 0.6), ((-1.6, -0.4), (0.6, 0.6), 40, 0.35))
    points = [
        np.concatenate([rng.normal(c, width, (n, 2)) for c in (a, b)]) for a, b, n, width in clouds
    ]
    labels = [np.repeat([0, 1], n) for _, _, n, _ in clouds]
    return [
        (np.append(points[0], [[3.2, -2.4]], axis=0), np.append(labels[0], 0)),
        (points[1], labels[1]),
    ]


def toy_rounds(
    data: Sequence[tuple[np.ndarray, np.ndarray]], rounds: int
) -> dict[str, tuple[list[Any], np.ndarray]]:
    """Of both methods, delta = rho = 0.2 (appendix F.3): what each round gave, and the pooled solution of its kind."""
    delta = rho = 0.2
    losses = [LogisticRegression(np.c_[x, np.ones(len(x))], y) for x, y in data]
    x, y = (np.concatenate(part) for part in zip(*data, strict=True))
    whole = LogisticRegression(np.c_[x, np.ones(len(x))], y)
    bayes = federate(
        FULL, losses, Variant("BayesADMM", rho, rho), delta, 3, tolerance=0.0, **STRETCH
    )
    points = point_admm(losses, delta, rho, 3)
    mode = _proximal(whole, np.zeros(3), delta, np.zeros(3))
    mean = dense.solve_client(
        whole, Dense.isotropic(3, delta), dense.no_dual(3), 1.0, step=0.3
    ).mean
    return {
        "Federated ADMM": ([next(points) for _ in range(rounds)], mode),
        "BayesADMM": ([next(bayes) for _ in range(rounds)], mean),
    }


def turned(theta: np.ndarray, other: np.ndarray) -> float:
    """The angle in degrees between two lines a x + b y + c = 0, with their sides."""
    (a, b) = theta[:2]
    (c, d) = other[:2]
    return float(np.degrees(abs(np.arctan2(a * d - b * c, a * c + b * d))))
