"""pFedMe and Per-FedAvg: steps towards a point that is good to start from."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import functional_call

from fedivon_app.clients.perfedavg import PerFedAvgClient
from fedivon_app.clients.pfedme import PFedMeClient
from fedivon_app.clients.task import Task
from fedivon_app.core.codec import Payload
from fedivon_app.core.flat import Flat
from fedivon_app.core.network import Architecture
from fedivon_app.core.posterior import Posterior
from fedivon_app.methods import method, settings_of
from fedivon_app.strategies.base import Reply, Round
from tests.clients.helpers import BATCH_NORM, EACH, SMALL, SOURCE, client_of, instructions, trained
from tests.simulated import federate, initial_network

# Quadratic losses a/2 |theta - c|^2, one for each client, on which everything is known.

CURVATURE = (0.5, 1.5)


def centre(k: int) -> np.ndarray:
    return np.random.default_rng([7, k]).standard_normal(10).astype(np.float32)


@dataclass(frozen=True)
class QuadraticTask(Task):
    """A task whose loss is a function of the weights alone, whatever they say of the examples."""

    flat: Flat | None = None
    number: int = 0

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        theta = torch.cat([weights.reshape(-1) for weights in self.flat.module.parameters()])
        distance = theta - torch.from_numpy(centre(self.number))
        return CURVATURE[self.number] / 2 * distance.square().sum()


class Quadratic:
    """What a client has whose tasks are such."""

    def task(self, told, memory=None, plan=None):
        task = super().task(told, memory, plan)
        return QuadraticTask(**vars(task), flat=self.flat, number=self.partition.number)


class QuadraticPFedMe(Quadratic, PFedMeClient):
    pass


class QuadraticPerFedAvg(Quadratic, PerFedAvgClient):
    pass


def weighted(weights: list[float]) -> np.ndarray:
    return np.average([centre(k) for k in range(2)], axis=0, weights=weights)


def test_pfedme_moves_theta_on_every_minibatch_and_w_after_it(tmp_path):
    rate = 0.02
    personal_rate = 0.05
    pull = 4.0
    client = {
        "learning_rate": rate,
        "personal_learning_rate": personal_rate,
        "proximal": pull,
        "inner_steps": 3,
        "epochs": 2,
        "batch_size": EACH // 2,
    }
    found = federate("pfedme", 1, client, {}, tmp_path, SOURCE, 2, kind=QuadraticPFedMe)
    for k, a in enumerate(CURVATURE):
        theta = w = initial_network(SOURCE).mean().astype(np.float64)
        for _ in range(4):
            for _ in range(3):
                theta = theta - personal_rate * (a * (theta - centre(k)) + pull * (theta - w))
            w = w - rate * pull * (w - theta)
        np.testing.assert_allclose(found.personal[k].posterior.mean, theta, atol=1e-6)
        np.testing.assert_allclose(found.replies[k].posterior.mean, w, atol=1e-6)


@pytest.mark.parametrize(("pull", "beta"), [(0.1, 1.0), (2.0, 1.0), (2.0, 2.0)])
def test_pfedme_finds_the_minimum_of_the_moreau_envelopes(pull, beta, tmp_path):
    """w = sum b_k c_k / sum b_k with b_k = a_k / (a_k + lambda).

    And theta_k = (a_k c_k + lambda w) / (a_k + lambda).
    """
    client = {
        "learning_rate": 0.9 / pull,
        "personal_learning_rate": 0.9 / (max(CURVATURE) + pull),
        "proximal": pull,
        "inner_steps": 25,
        "batch_size": EACH,
    }
    found = federate(
        "pfedme", 30, client, {"beta": beta}, tmp_path, SOURCE, 2, kind=QuadraticPFedMe
    )
    w = weighted([a / (a + pull) for a in CURVATURE])
    np.testing.assert_allclose(found.server.mean, w, atol=1e-3)
    for k, a in enumerate(CURVATURE):
        theta = (a * centre(k) + pull * w) / (a + pull)
        np.testing.assert_allclose(found.personal[k].posterior.mean, theta, atol=1e-3)


@pytest.mark.parametrize("pull", [1e-4, 1e4])
def test_pfedmes_personal_points_are_the_clients_own_or_the_servers_at_the_limits(pull, tmp_path):
    client = {
        "learning_rate": 0.5 / pull,
        "personal_learning_rate": 0.5 / (1 + pull),
        "proximal": pull,
        "inner_steps": 60,
        "batch_size": EACH,
    }
    found = federate("pfedme", 1, client, {}, tmp_path, SOURCE, 2, kind=QuadraticPFedMe)
    for k in range(2):
        limit = centre(k) if pull < 1 else initial_network(SOURCE).mean()
        np.testing.assert_allclose(found.personal[k].posterior.mean, limit, atol=2e-3)


@pytest.mark.parametrize(
    ("beta", "merged"), [(0.5, [1.0, 10.5]), (1.0, [2.0, 11.0]), (2.0, [4.0, 12.0])]
)
def test_pfedmes_server_goes_towards_the_average_or_beyond(beta, merged):
    settings = settings_of("pfedme").model_validate(
        {"experiment": "test", "strategy": "pfedme", "merge": {"beta": beta}}
    )
    replies = [
        Reply(k, 1, 0, Payload(Posterior(np.array(mean))), {})
        for k, mean in enumerate([[1.0, 8.0], [3.0, 14.0]])
    ]
    strategy = method("pfedme").strategy(settings, Architecture())
    found = strategy.merge(
        Round(
            number=1,
            replies=replies,
            weights=np.array([0.5, 0.5]),
            previous=Payload(Posterior(np.array([0.0, 10.0]))),
            num_clients=2,
        )
    )
    assert found.posterior.mean.tolist() == merged


@pytest.mark.parametrize(("variant", "power"), [("first-order", 1), ("hessian-free", 2)])
def test_perfedavg_finds_the_best_point_to_adapt_from(variant, power, tmp_path):
    """A step of one's own leaves a/2 (1 - alpha a)^2 |w - c|^2.

    So w is the mean of the c_k with weights a_k (1 - alpha a_k)^2; to first order, which forgets
    that the step depends on w, with weights a_k (1 - alpha a_k).
    """
    alpha = 0.4
    beta = 1.0
    client = {
        "learning_rate": beta,
        "inner_learning_rate": alpha,
        "variant": variant,
        "batch_size": EACH,
    }
    found = federate(
        "perfedavg",
        50,
        client,
        {"weighting": "equal"},
        tmp_path,
        SOURCE,
        clients=2,
        kind=QuadraticPerFedAvg,
    )
    slope = [a * (1 - alpha * a) ** power for a in CURVATURE]
    w = weighted(slope)
    np.testing.assert_allclose(found.server.mean, w, atol=1e-4)
    for k, a in enumerate(CURVATURE):
        sent = w - beta * slope[k] * (w - centre(k))
        np.testing.assert_allclose(found.replies[k].posterior.mean, sent, atol=1e-4)
        adapted = sent - alpha * a * (sent - centre(k))
        np.testing.assert_allclose(found.personal[k].posterior.mean, adapted, atol=1e-4)


@pytest.mark.parametrize("difference", [1e-1, 1e-2, 1e-3])
def test_differences_of_gradients_are_the_hessian_times_the_gradient(difference, tmp_path):
    """On a network, against autograd in float64.

    The first-order variant lacks this term and nothing else.
    """
    alpha = 0.5
    words = [*SMALL, f"client.inner_learning_rate={alpha}", f"client.difference={difference}"]
    asked = client_of("perfedavg", tmp_path, *words, "client.variant=hessian-free")
    client = asked.client
    first = client_of("perfedavg", tmp_path, *words, "client.variant=first-order").client
    task = client.task(instructions(client))
    batches = [(task.inputs[rows], task.labels[rows]) for rows in torch.arange(60).split(20)]
    by_name = dict(zip(("inner", "outer", "third"), batches, strict=True))
    weights = client.flat.checked(asked.start.posterior.mean)

    def loss(theta, batch):
        logits = functional_call(
            client.flat.module, client.flat.named_parameters(theta), (batch[0].double(),)
        )
        return torch.nn.functional.cross_entropy(logits, batch[1])

    def slope(theta, batch):
        return torch.autograd.grad(loss(theta, batch), theta, create_graph=True)[0]

    here = weights.double().requires_grad_()
    ahead = (here - alpha * slope(here, by_name["inner"])).detach().requires_grad_()
    gradient = slope(ahead, by_name["outer"]).detach()
    (curved,) = torch.autograd.grad(slope(here, by_name["third"]) @ gradient, here)
    to_first_order = first.meta_gradient(weights, task, **by_name).double()
    to_second = client.meta_gradient(weights, task, **by_name).double()
    assert (to_first_order - gradient).norm() < 1e-4 * gradient.norm()
    assert (to_second - (gradient - alpha * curved)).norm() < 1e-2 * (alpha * curved).norm()
    assert (alpha * curved).norm() > 0.1 * gradient.norm()  # so the term is one that counts


def test_a_step_of_perfedavg_is_down_the_loss_after_adaptation(tmp_path):
    """With all examples in every minibatch: the gradient of f(w - alpha grad f(w)).

    It is compared with autograd through the step.
    """
    words = [
        "client.epochs=1",
        "client.batch_size=1000",
        "client.learning_rate=0.1",
        "client.inner_learning_rate=0.5",
        "client.adapt_steps=2",
    ]
    asked = client_of("perfedavg", tmp_path, *SMALL, *words)
    flat = asked.client.flat
    found = trained(asked.client, asked.start)
    task = asked.client.task(instructions(asked.client))

    def loss(theta):
        logits = functional_call(flat.module, flat.named_parameters(theta), (task.inputs.double(),))
        return torch.nn.functional.cross_entropy(logits, task.labels)

    def adapted(theta):
        return theta - 0.5 * torch.autograd.grad(loss(theta), theta, create_graph=True)[0]

    here = torch.from_numpy(asked.start.posterior.mean).double().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(adapted(here)), here)
    point = (here - 0.1 * gradient).detach().requires_grad_()
    np.testing.assert_allclose(found.sent.posterior.mean, point.detach().numpy(), atol=1e-5)
    personal = adapted(adapted(point)).detach().numpy()
    np.testing.assert_allclose(found.own.posterior.mean, personal, atol=1e-5)


@pytest.mark.parametrize(("variant", "gradients"), [("first-order", 2), ("hessian-free", 4)])
def test_each_step_of_perfedavg_has_minibatches_of_its_own(
    variant, gradients, tmp_path, monkeypatch
):
    words = [*SMALL, "client.batch_size=4", f"client.variant={variant}"]
    asked = client_of("perfedavg", tmp_path, *words)
    client = asked.client
    seen = []
    plain = client.gradient_at

    def noted(weights, task, batch):
        seen.append(batch[0])
        return plain(weights, task, batch)

    monkeypatch.setattr(client, "gradient_at", noted)
    trained(client, asked.start)
    steps = [seen[i : i + gradients] for i in range(0, len(seen) - 1, gradients)]
    expected = list(client.task(instructions(client)).batches())
    assert len(steps) == len(expected)
    assert len(seen) == gradients * len(steps) + 1  # and one to adapt
    for (inner, outer, *third), (inputs, _) in zip(steps, expected, strict=True):
        assert torch.equal(outer, inputs) and not torch.equal(inner, outer)
        assert all(torch.equal(third[0], side) and not torch.equal(side, inner) for side in third)


def test_adaptation_is_the_clients_own_affair(tmp_path):
    """What is sent does not depend on it, batch norm's statistics included."""
    sent = []
    kept = []
    for steps in (0, 3):
        words = [*BATCH_NORM, f"client.adapt_steps={steps}"]
        asked = client_of("perfedavg", tmp_path / str(steps), *words)
        found = trained(asked.client, asked.start)
        sent.append(found.sent)
        kept.append(found.own)
    np.testing.assert_array_equal(sent[0].posterior.mean, sent[1].posterior.mean)
    np.testing.assert_array_equal(sent[0].buffers, sent[1].buffers)
    np.testing.assert_array_equal(kept[0].posterior.mean, sent[0].posterior.mean)
    assert np.abs(kept[1].posterior.mean - sent[1].posterior.mean).max() > 1e-4
    assert np.abs(kept[1].buffers - sent[1].buffers).max() > 1e-4
