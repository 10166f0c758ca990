"""Losses of linear models, with their expectations under a full-covariance Gaussian, `Dense`."""

from __future__ import annotations

import numpy as np

from fedivon_app.core.dense import Dense, Derivatives


class Ridge:
    """The squared error |x Theta - y|^2 / 2.

    y is (examples,) or (examples, outputs); Theta, (features, outputs), is given as a flat vector.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray):
        outputs = y.reshape(len(x), -1)
        self.gram = np.kron(x.T @ x, np.eye(outputs.shape[1]))
        self.shift = (x.T @ outputs).reshape(-1)
        self.constant = 0.5 * float(np.square(y).sum())

    def at(self, theta: np.ndarray) -> Derivatives:
        """Return the derivatives at a point."""
        slope = self.gram @ theta
        value = float(0.5 * theta @ slope - self.shift @ theta + self.constant)
        return Derivatives(value, slope - self.shift, self.gram)

    def expected(self, q: Dense) -> Derivatives:
        """Return the expectations of the derivatives, which are exact."""
        at_mean = self.at(q.mean)
        spread = 0.5 * float(np.trace(np.linalg.solve(q.precision, self.gram)))
        return at_mean._replace(value=at_mean.value + spread)


class SoftmaxRegression:
    """The summed cross-entropy of the logits x Theta.

    Theta, (features, classes), is given as a flat vector. The logits of an example are Gaussian
    under a Gaussian Theta: expectations are over draws of them, each example's with noise of its
    own, (examples, draws, classes), that stays the same from call to call.
    """

    def __init__(
        self, x: np.ndarray, labels: np.ndarray, num_classes: int, draws: int = 16, seed: int = 0
    ):
        self.x = x
        self.truth = np.eye(num_classes)[labels]
        self.num_classes = num_classes
        half = np.random.default_rng(seed).standard_normal((len(x), draws // 2, num_classes))
        self.noise = np.concatenate([half, -half], axis=1)

    def at(self, theta: np.ndarray) -> Derivatives:
        """Return the derivatives at a point."""
        return self._derivatives((self.x @ theta.reshape(-1, self.num_classes))[:, None])

    def expected(self, q: Dense) -> Derivatives:
        """Return the expectations of the derivatives, over draws of the logits."""
        size = self.x.shape[1]
        classes = self.num_classes
        half = (self.x @ q.covariance().reshape(size, -1)).reshape(-1, classes, size, classes)
        spread = np.einsum("ncef,ne->ncf", half, self.x)
        root = np.linalg.cholesky(spread + 1e-12 * np.eye(classes))
        centre = self.x @ q.mean.reshape(size, classes)
        return self._derivatives(centre[:, None] + np.einsum("ncf,nmf->nmc", root, self.noise))

    def _derivatives(self, logits: np.ndarray) -> Derivatives:
        """Return the derivatives from logits (examples, draws, classes), averaged over draws."""
        logits = logits - logits.max(2, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(2, keepdims=True))
        p = np.exp(log_p)
        mean_p = p.mean(1)
        second = np.einsum("nma,nmb->nab", p, p) / p.shape[1]
        size = self.x.shape[1]
        classes = self.num_classes
        hessian = np.empty((size, classes, size, classes))
        for a in range(classes):
            for b in range(a, classes):
                weight = (mean_p[:, a] if a == b else 0) - second[:, a, b]
                hessian[:, a, :, b] = hessian[:, b, :, a] = self.x.T @ (weight[:, None] * self.x)
        value = -float((self.truth * log_p.mean(1)).sum())
        gradient = self.x.T @ (mean_p - self.truth)
        return Derivatives(
            value, gradient.reshape(-1), hessian.reshape(size * classes, size * classes)
        )


class LogisticRegression:
    """The summed cross-entropy of one logit, x theta, with labels 0 and 1.

    Expectations are by Gauss-Hermite quadrature.
    """

    def __init__(self, x: np.ndarray, labels: np.ndarray, nodes: int = 30):
        self.x = x
        self.labels = labels
        self.nodes, weights = np.polynomial.hermite_e.hermegauss(nodes)
        self.weights = weights / weights.sum()

    def at(self, theta: np.ndarray) -> Derivatives:
        """Return the derivatives at a point."""
        return self._derivatives((self.x @ theta)[:, None], np.ones(1))

    def expected(self, q: Dense) -> Derivatives:
        """Return the expectations of the derivatives, by quadrature over each example's logit."""
        deviation = np.sqrt(np.einsum("nd,de,ne->n", self.x, q.covariance(), self.x))
        logits = (self.x @ q.mean)[:, None] + deviation[:, None] * self.nodes
        return self._derivatives(logits, self.weights)

    def _derivatives(self, logits: np.ndarray, weights: np.ndarray) -> Derivatives:
        """Return the derivatives from logits (examples, nodes) and the weights of the nodes."""
        p = np.exp(-np.logaddexp(0, -logits))
        value = float((np.logaddexp(0, logits) @ weights - self.labels * (logits @ weights)).sum())
        gradient = self.x.T @ (p @ weights - self.labels)
        curvature = (p * (1 - p)) @ weights
        return Derivatives(value, gradient, self.x.T @ (curvature[:, None] * self.x))
