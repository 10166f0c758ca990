"""What methods share, on the second device: the same numbers as on the CPU."""

import numpy as np
import pytest
import torch

from fedivon_app.core.flat import Flat
from fedivon_app.core.ivon import IVON
from fedivon_app.core.laplace import curvature_diagonal
from fedivon_app.core.models import build, with_dropout
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.predict import predict_mean, predict_moments, predict_samples
from fedivon_app.core.variational import VariationalNetwork
from tests.second_device import device
from tests.second_device.places import HERE, THERE, on_both

SHAPE = (8, 8, 1)
OPTIONS = {
    "mlp": {"sizes": [6]},
    "lenet": {"channels": (2, 3), "hidden": 5},
    "resnet": {"channels": [4], "blocks": 1},
}


def flat_on(where: torch.device, name: str = "mlp", dropout: float | None = None) -> Flat:
    torch.manual_seed(2)
    shape = (16, 16, 1) if name == "lenet" else SHAPE
    module = build(name, shape, 3, **OPTIONS[name])
    return Flat((with_dropout(module, dropout) if dropout else module).to(where))


def examples_on(where: torch.device, name: str = "mlp") -> tuple[torch.Tensor, torch.Tensor]:
    side = 16 if name == "lenet" else 8
    generator = torch.Generator().manual_seed(3)
    inputs = torch.rand(9, 1, side, side, generator=generator)
    return inputs.to(where), (torch.arange(9) % 3).to(where)


def vectors(size: int) -> tuple[Posterior, tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(4)
    prior = Posterior(0.1 * rng.standard_normal(size), 50 + 50 * rng.random(size))
    return prior, (0.01 * rng.standard_normal(size), 0.01 * rng.random(size))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"antithetic": True},
        {"mc_samples": 2},
        {"clip_radius": 0.1, "step_bound": 1.0},
        {"prior": True, "dual": True},
        {"noise": "fused"},
    ],
    ids=str,
)
def test_ivon_takes_the_same_steps_and_never_waits(options):
    def steps(where):
        flat = flat_on(where)
        inputs, labels = examples_on(where)
        prior, dual = vectors(len(flat))
        given = options | {"prior": prior, "dual": dual} if "prior" in options else options
        if where == HERE:
            given = given | {"noise": "torch"}  # which fused noise is there
        torch.manual_seed(0)
        optimizer = IVON(flat.module.parameters(), lr=0.1, ess=100, **given)
        optimizer.hess = np.full(len(flat), 0.5)
        device.waits.clear()
        for _ in range(17):
            for _ in range(optimizer.mc_samples):
                with optimizer.sampled_params(train=True):
                    loss = torch.nn.functional.cross_entropy(flat.module(inputs), labels)
                    loss.backward()
            optimizer.step()
        waited = dict(device.waits)
        saved = optimizer.state_dict()
        saved["state"] = {
            name: value.cpu() if isinstance(value, torch.Tensor) else value
            for name, value in saved["state"].items()
        }
        optimizer.load_state_dict(saved)  # as from a file
        with optimizer.sampled_params():
            drawn = flat.module(inputs).detach().cpu()
        return waited, optimizer.posterior(), optimizer.hess.cpu(), drawn

    (_, here, hess_here, drawn_here), (waited, there, hess_there, drawn_there) = on_both(steps)
    assert not waited
    assert np.array_equal(here.mean, there.mean)
    assert np.array_equal(here.precision, there.precision)
    assert torch.equal(hess_here, hess_there) and torch.equal(drawn_here, drawn_there)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("dropout", [None, 0.3])
def test_predictions_are_the_same(name, dropout):
    def predictions(where):
        flat = flat_on(where, name, dropout)
        posterior = Posterior(flat.mean(), np.full(len(flat), 200.0))
        inputs, _ = examples_on(where, name)
        buffers = flat.buffers
        moments = predict_moments(flat, posterior, inputs, 3, 0, buffers=buffers)
        point = predict_mean(flat, posterior, inputs.cpu(), buffers=buffers)  # sent there
        samples = predict_samples(flat, posterior, inputs, 3, 0, buffers=buffers)
        return point, moments.mean, moments.second, samples, moments.uncertainty()["epistemic"]

    # samples run together on a device, by grouped convolutions, which round differently
    for here, there in zip(*on_both(predictions), strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-4, atol=1e-6)


def test_prediction_leaves_the_streams_of_both_devices_as_they_were():
    flat = flat_on(THERE, dropout=0.3)
    inputs, _ = examples_on(THERE)
    torch.manual_seed(5)
    expected = torch.randn(3, device=THERE).cpu(), torch.randn(3)
    torch.manual_seed(5)
    predict_moments(flat, Posterior(flat.mean()), inputs, num_samples=2, seed=0)
    assert torch.equal(torch.randn(3, device=THERE).cpu(), expected[0])
    assert torch.equal(torch.randn(3), expected[1])


@pytest.mark.parametrize("kind", ["ggn", "fisher", "empirical"])
@pytest.mark.parametrize("name", ["mlp", "lenet", "resnet"])
def test_curvature_is_the_same(name, kind):
    def diagonal(where):
        inputs, labels = examples_on(where, name)
        flat = flat_on(where, name)
        torch.manual_seed(0)
        return curvature_diagonal(flat, inputs, labels, kind).cpu()

    here, there = on_both(diagonal)
    torch.testing.assert_close(here, there, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("name", ["mlp", "lenet"])
def test_a_flipout_network_has_the_same_gradients(name):
    def gradients(where):
        inputs, labels = examples_on(where, name)
        network = VariationalNetwork(flat_on(where, name), np.float64(0.05))
        torch.manual_seed(0)
        torch.nn.functional.cross_entropy(network(inputs), labels).backward()
        divergence = network.add_divergence(0.0, 1.0, num_examples=9)
        return divergence.cpu(), *(p.grad.cpu() for p in network.parameters())

    for here, there in zip(*on_both(gradients), strict=True):
        torch.testing.assert_close(here, there, rtol=1e-6, atol=1e-9)


def test_a_network_is_read_and_written_over_the_border():
    flat = flat_on(THERE, "resnet")
    values = np.random.default_rng(0).standard_normal(len(flat)).astype(np.float32)
    flat.load(values)
    assert np.array_equal(flat.mean(), values)
    buffers = flat.buffers
    flat.load_buffers(buffers + 1)
    assert np.array_equal(flat.buffers, buffers + 1)
    assert flat.vector.device == THERE and HERE != THERE
