"""Every point method on logistic regression over clients that differ.

The clients are real ones and take several local steps. The labels are noisy, so that the pooled
optimum is finite; it is where the gradient of the pooled loss vanishes.
"""

import numpy as np
import pytest
import torch

from fedivon_app.core.dense import Dense, no_dual, solve_client
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.flat import Flat
from fedivon_app.core.laplace import curvature_diagonal
from fedivon_app.core.models import build
from fedivon_app.core.network import Architecture
from fedivon_app.core.regression import SoftmaxRegression
from fedivon_app.datasets.base import Source
from fedivon_app.methods import method, settings_of
from tests import simulated as federation

K = 3
EACH = 40
FEATURES = 3
CLASSES = 3


def world() -> Source:
    """Clients with inputs of their own and mostly one label each."""
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [rng.standard_normal((EACH, FEATURES)) + shift for shift in (-1.0, 0.0, 1.0)]
    ).astype(np.float32)
    y = np.concatenate(
        [np.where(rng.random(EACH) < 0.6, k, rng.integers(0, CLASSES, EACH)) for k in range(K)]
    )
    return Source("convex", x, y, x, y, CLASSES)


SOURCE = world()


def pooled_gradient(mean: np.ndarray, decay: float = 0.0) -> float:
    """The norm of the gradient of the mean loss over all clients, and of decay |mean|^2 / 2."""
    flat = Flat(build("linear", (FEATURES,), CLASSES))
    flat.load(mean)
    inputs = torch.from_numpy(SOURCE.x_train)
    labels = torch.from_numpy(SOURCE.y_train)
    torch.nn.functional.cross_entropy(flat.module(inputs), labels).backward()
    return float((flat.gradient + decay * flat.vector).norm())


def federate(name, rounds, client, merge, state_root):
    return federation.federate(name, rounds, client, merge, state_root, SOURCE, K).server


LOCAL = {  # ten full-batch steps
    "batch_size": EACH,
    "epochs": 10,
    "optimizer": "sgd",
    "learning_rate": 0.5,
}
BY_IVON = {
    "batch_size": EACH,
    "epochs": 40,
    "learning_rate": 0.02,
    "hess_init": 0.1,
    "beta2": 0.95,
    "rescale_lr": False,
    "momentum": "fresh",
    "mc_samples": 2,
}


def test_an_average_of_points_is_not_the_pooled_optimum(tmp_path):
    reached = federate("fedavg", 20, LOCAL, {}, tmp_path)
    assert pooled_gradient(reached.mean) > 0.02


@pytest.mark.parametrize(
    ("name", "client", "merge"),
    [
        ("scaffold", {}, {"weighting": "equal"}),
        ("feddyn", {"loss": "share"}, {"rho": 0.1, "dual_step": 0.1, "prior_precision": 0.0}),
        ("fed-admm", {}, {"rho": 10.0, "dual_step": 10.0, "prior_precision": 1e-3}),
        (
            "fedlap",
            {"temperature": 20.0},
            {"rho": 1.0, "alpha": 1.0, "dual_step": 0.3, "prior_precision": 1.0},
        ),
    ],
)
def test_points_with_duals_or_controls_reach_it(name, client, merge, tmp_path):
    """With a prior the optimum is where delta tau m / N comes to the gradient.

    The prior N(0, 1/delta) stands beside sum loss / tau.
    """
    reached = federate(name, 70, LOCAL | client, merge, tmp_path)
    decay = merge.get("prior_precision", 0) * client.get("temperature", 1) / (K * EACH)
    assert pooled_gradient(reached.mean, decay) < 0.001


def test_a_proximal_term_holds_a_client_near_the_server(tmp_path):
    start = federation.initial_network(SOURCE).mean()

    def way(mu: float) -> float:
        client = LOCAL | {"proximal": mu, "optimizer_state": "fresh"}
        reached = federate(
            "fedprox", rounds=1, client=client, merge={}, state_root=tmp_path / str(mu)
        )
        return float(np.linalg.norm(reached.mean - start))

    assert 0 < way(1.0) < 0.7 * way(0.0)


@pytest.mark.parametrize("name", ["fedlap-cov", "bayes-admm", "pvi"])
def test_posteriors_with_duals_come_near_it_and_know_their_precision(name, tmp_path):
    """The precision at the end is the prior's and the clients' curvatures.

    It is so as far as the clients' own precisions can tell.
    """
    merge = {"rho": 1.0, "dual_step": 0.2, "prior_precision": 1.0}
    if name != "bayes-admm":
        merge["alpha"] = 1.0
    client = LOCAL if name == "fedlap-cov" else BY_IVON
    reached = federate(name, 30, client, merge, tmp_path)
    assert pooled_gradient(reached.mean) < 0.035
    flat = Flat(build("linear", (FEATURES,), CLASSES))
    flat.load(reached.mean)

    inputs = torch.from_numpy(SOURCE.x_train)
    labels = torch.from_numpy(SOURCE.y_train)
    expected = 1.0 + K * EACH * curvature_diagonal(flat, inputs, labels).numpy()
    np.testing.assert_allclose(reached.precision, expected, rtol=0.35)


def test_fedlaplace_adds_up_what_the_clients_know(tmp_path):
    client = LOCAL | {"curvature": "ggn", "prior_strength": 1.0, "first_precision": 0.5}
    one = federate("fedlaplace", 1, client, {"rule": "product"}, tmp_path)
    two = federate("fedlaplace", 2, client, {"rule": "product"}, tmp_path)
    assert (one.precision > 0.5).all() and (two.precision > one.precision).all()


FULL = {"rho": 1 / K, "dual_step": 1 / K, "prior_precision": 2.0}


def test_full_covariance_reaches_the_pooled_ridge_posterior_in_one_round(tmp_path):
    """Over the wire, with the network's own order of weights; and it stays there."""
    client = {"loss": "squares", "learning_rate": 1.0}
    inputs = np.c_[SOURCE.x_train, np.ones(len(SOURCE.x_train))]
    truth = np.eye(CLASSES)[SOURCE.y_train]
    precision = inputs.T @ inputs + 2.0 * np.eye(FEATURES + 1)
    theta = np.linalg.solve(precision, inputs.T @ truth)
    for rounds in (1, 3):
        reached = federate("bayes-admm-full", rounds, client, FULL, tmp_path / str(rounds))
        flat = Flat(build("linear", (FEATURES,), CLASSES))
        flat.load(reached.mean)
        logits = flat.module(torch.from_numpy(SOURCE.x_train)).detach().numpy()
        # the network computes in float32
        np.testing.assert_allclose(logits, inputs @ theta, atol=1e-5)
        weights = reached.mean[: CLASSES * FEATURES].reshape(CLASSES, FEATURES)
        biases = reached.mean[-CLASSES:]
        np.testing.assert_allclose(np.c_[weights, biases].T, theta, atol=1e-6)
        one_class = np.r_[0:FEATURES, CLASSES * FEATURES]  # class 0's weights and bias
        block = reached.precision[np.ix_(one_class, one_class)]
        np.testing.assert_allclose(block, precision, rtol=1e-6)
    other = federate("bayes-admm-full", 1, client, FULL | {"rho": 1.0}, tmp_path / "other")
    assert np.abs(other.mean - reached.mean).max() > 1e-2


@pytest.mark.parametrize(
    "variant", [{"rho": 1.0, "dual_step": 1.0}, {"rho": 1.0, "dual_step": 0.3, "alpha": 1.0}]
)
def test_full_covariance_reaches_the_pooled_variational_posterior(variant, tmp_path):
    """BayesADMM and damped PVI on logistic regression end where VON on all data ends."""
    reached = federate(
        "bayes-admm-full", 20, {"tolerance": 1e-9, "draws": 100}, FULL | variant, tmp_path
    )
    inputs = np.c_[SOURCE.x_train, np.ones(len(SOURCE.x_train))].astype(np.float64)
    pooled = SoftmaxRegression(inputs, SOURCE.y_train, CLASSES, draws=100)
    size = CLASSES * (FEATURES + 1)
    exact = solve_client(pooled, Dense.isotropic(size, 2.0), no_dual(size), 1.0)
    weights = reached.mean[: CLASSES * FEATURES].reshape(CLASSES, FEATURES)
    biases = reached.mean[-CLASSES:]
    np.testing.assert_allclose(np.c_[weights, biases].T.reshape(-1), exact.mean, atol=0.005)
    np.testing.assert_allclose(
        np.linalg.eigvalsh(reached.precision), np.linalg.eigvalsh(exact.precision), rtol=0.03
    )


def test_full_covariance_is_for_one_small_linear_layer(tmp_path):
    values = {"experiment": "convex", "strategy": "bayes-admm-full", "data": {"clients": K}}
    settings = settings_of("bayes-admm-full").model_validate(values)
    with pytest.raises(SettingsError, match="model.name=linear, not mlp"):
        method("bayes-admm-full").strategy(settings, Architecture())
    with pytest.raises(SettingsError, match="merge.largest_size allows 5 weights"):
        federate("bayes-admm-full", 1, {}, FULL | {"largest_size": 5}, tmp_path)
