from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn

from fedivon_app.core import predict as module_under_test
from fedivon_app.core.chunks import chunk_sizes
from fedivon_app.core.flat import Flat
from fedivon_app.core.metrics import uncertainty
from fedivon_app.core.models import build, with_dropout
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.predict import (
    has_samples,
    predict,
    predict_mean,
    predict_moments,
    predict_point,
    predict_samples,
    sampled_weights,
)

NETWORKS = [
    ("linear", (60,)),
    ("mlp", (8, 8, 1)),
    ("lenet", (8, 8, 1)),
    ("cnn6", (8, 8, 3)),
    ("zenke-cnn", (12, 12, 1)),
    ("resnet20", (8, 8, 1)),
]


def network(name: str = "lenet", shape: tuple[int, ...] = (8, 8, 1), precision: float = 400.0):
    torch.manual_seed(0)
    flat = Flat(build(name, shape, 4))
    inputs = torch.rand(13, *(shape if len(shape) == 1 else (shape[2], *shape[:2])))
    return flat, Posterior(flat.mean(), np.full(len(flat), precision)), inputs


def one_by_one(
    flat: Flat, posterior: Posterior, inputs: torch.Tensor, num_samples: int, seed: int
) -> np.ndarray:
    """The definition: load a sample, run the network, next."""
    mean = flat.mean()
    results = []
    flat.module.eval()
    with torch.no_grad():
        for sample in range(num_samples):
            noise = np.random.default_rng([seed, sample]).standard_normal(len(flat), np.float32)
            flat.load(posterior.mean + noise / np.sqrt(posterior.precision))
            results.append(flat.module(inputs).softmax(1).numpy())
    flat.load(mean)
    flat.module.train()
    return np.stack(results)


@pytest.mark.parametrize(("name", "shape"), NETWORKS)
@pytest.mark.parametrize("samples_at_once", [None, 1, 2, 5])
def test_samples_are_those_of_a_plain_loop(name, shape, samples_at_once):
    flat, posterior, inputs = network(name, shape)
    expected = one_by_one(flat, posterior, inputs, 5, seed=3)
    drawn = predict_samples(flat, posterior, inputs, 5, 3, samples_at_once=samples_at_once)
    assert drawn.shape == (5, 13, 4)
    assert drawn.dtype == np.float32
    np.testing.assert_allclose(drawn, expected, atol=2e-6)
    averaged = predict(flat, posterior, inputs, 5, 3, samples_at_once=samples_at_once)
    assert averaged.dtype == np.float32
    np.testing.assert_allclose(averaged, expected.mean(0), atol=2e-6)


@pytest.mark.parametrize(("name", "shape"), [("mlp", (8, 8, 1)), ("lenet", (8, 8, 1))])
def test_memory_bound_changes_the_chunks_and_not_the_result(name, shape, monkeypatch):
    flat, posterior, inputs = network(name, shape)
    seen = []
    run = module_under_test._probabilities

    def watched(flat, weights, inputs, buffers, likelihood):
        seen.append((len(weights), len(inputs)))
        return run(flat, weights, inputs, buffers)

    monkeypatch.setattr(module_under_test, "_probabilities", watched)
    roomy = predict(flat, posterior, inputs, 6, 0)
    assert seen == ([(6, 13)] if name == "mlp" else [(1, 13)] * 6)
    seen.clear()
    tight = predict(flat, posterior, inputs, 6, 0, memory_mb=1e-3)
    assert seen == [(1, 1)] * 6 * 13
    np.testing.assert_allclose(tight, roomy, atol=1e-6)


def test_the_memory_bound_holds_for_the_bytes_that_a_chunk_needs():
    flat, _, inputs = network("mlp", (8, 8, 1))
    megabytes = 1.0
    samples, batch_size = chunk_sizes(flat, inputs.repeat(100, 1, 1, 1), megabytes * 2**20)
    activations = 4 * (64 + 200 + 100 + 4)
    assert samples >= 1
    assert batch_size >= 1
    assert samples * (4 * len(flat) + batch_size * activations) <= megabytes * 2**20


def test_a_sample_depends_on_seed_and_number_only():
    flat, posterior, inputs = network()
    few = predict_samples(flat, posterior, inputs, 2, 7)
    many = predict_samples(flat, posterior, inputs, 4, 7)
    np.testing.assert_array_equal(few, many[:2])
    assert not np.allclose(many[0], many[1])
    assert not np.allclose(few, predict_samples(flat, posterior, inputs, 2, 8))
    torch.manual_seed(1)
    state = torch.get_rng_state()
    np.testing.assert_array_equal(few, predict_samples(flat, posterior, inputs, 2, 7))
    assert torch.equal(torch.get_rng_state(), state)


def test_logits_of_a_linear_model_have_the_closed_form_moments():
    flat = Flat(build("linear", (3,), 2))
    rng = np.random.default_rng(0)
    posterior = Posterior(rng.normal(size=8), rng.uniform(1, 4, 8))
    inputs = torch.tensor([[0.5, -1.0, 2.0]])
    drawn = predict_samples(flat, posterior, inputs, 4000, 0)[:, 0]
    margin = np.log(drawn[:, 0] / drawn[:, 1]).astype(np.float64)
    features = np.array([0.5, -1.0, 2.0])
    weights = posterior.mean[:6].reshape(2, 3)
    biases = posterior.mean[6:]
    weight_variances = posterior.variance[:6].reshape(2, 3)
    expected = (weights[0] - weights[1]) @ features + biases[0] - biases[1]
    variance = weight_variances.sum(0) @ features**2 + posterior.variance[6:].sum()
    assert margin.mean() == pytest.approx(expected, abs=4 * np.sqrt(variance / 4000))
    assert margin.var() == pytest.approx(variance, rel=0.1)


def test_at_the_mean():
    flat, posterior, inputs = network()
    expected = flat.module.eval()(inputs).softmax(1).detach().numpy()
    flat.load(np.zeros(len(flat)))
    for result in (
        predict_mean(flat, posterior, inputs),
        predict_mean(flat, posterior, inputs, batch_size=5),
        predict(flat, posterior, inputs, 0, 0),
        predict(flat, Posterior(posterior.mean), inputs, 8, 0),
    ):
        assert result.dtype == np.float32
        np.testing.assert_allclose(result, expected, atol=1e-6)


def test_a_certain_posterior_predicts_as_its_mean():
    flat, posterior, inputs = network(precision=1e14)
    np.testing.assert_allclose(
        predict(flat, posterior, inputs, 3, 0), predict_mean(flat, posterior, inputs), atol=1e-5
    )


def test_given_batch_norm_statistics_are_used_and_the_modules_own_stay():
    flat, posterior, inputs = network("resnet20", (8, 8, 1))
    own = flat.buffers
    flat.module(inputs)
    trained = flat.buffers
    flat.load_buffers(own)
    at_own, at_trained = (
        predict(flat, posterior, inputs, 2, 0, buffers=b) for b in (None, trained)
    )
    assert not np.allclose(at_own, at_trained, atol=1e-3)
    np.testing.assert_array_equal(flat.buffers, own)
    flat.load_buffers(trained)
    np.testing.assert_allclose(predict(flat, posterior, inputs, 2, 0), at_trained, atol=1e-6)
    np.testing.assert_allclose(
        predict(flat, posterior, inputs, 2, 0, samples_at_once=2, buffers=trained),
        at_trained,
        atol=1e-5,
    )


class InPlace(nn.Module):
    """Writes to its inputs and to its activations."""

    def __init__(self):
        super().__init__()
        self.register_buffer("centre", torch.full((3,), 0.5))
        self.first = nn.Sequential(nn.Linear(3, 8), nn.ReLU(inplace=True))
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 4)

    def forward(self, inputs):
        hidden = self.norm(self.first(inputs.sub_(self.centre)))
        hidden += 1
        return self.head(hidden.mul_(2))


@pytest.mark.parametrize("samples_at_once", [1, 4])
def test_networks_may_work_in_place(samples_at_once):
    torch.manual_seed(0)
    flat = Flat(InPlace())
    posterior = Posterior(flat.mean(), np.full(len(flat), 10.0))
    inputs = torch.rand(6, 3)
    before = inputs.clone()
    drawn = predict_samples(flat, posterior, inputs, 4, 0, samples_at_once=samples_at_once)
    assert torch.equal(inputs, before)
    for sample in range(4):
        flat.load(posterior.sample(np.random.default_rng([0, sample])))
        expected = flat.module.eval()(inputs.clone()).softmax(1).detach().numpy()
        np.testing.assert_allclose(drawn[sample], expected, atol=1e-6)
    np.testing.assert_allclose(predict(flat, posterior, inputs, 4, 0), drawn.mean(0), atol=1e-6)


class Failing(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.head = nn.Linear(3, 4)
        self.calls = 0
        self.failing_call = -1

    def forward(self, inputs):
        self.calls += 1
        if self.calls == self.failing_call:
            raise RuntimeError("no more")
        return self.head(self.norm(inputs))


@pytest.mark.parametrize("failing_call", [-1, 1, 3])
@pytest.mark.parametrize("call", [predict, predict_samples])
def test_the_module_is_left_as_it_was_even_after_an_error(failing_call, call):
    flat = Flat(Failing())
    flat.module.train()
    flat.module.norm.eval()
    flat.module.failing_call = failing_call
    flat.gradient.fill_(2.0)
    posterior = Posterior(np.zeros(len(flat)), np.ones(len(flat)))
    vector = flat.mean()
    buffers = flat.buffers
    parameters = list(flat.module.parameters())
    fails = pytest.raises(RuntimeError, match="no more") if failing_call > 0 else nullcontext()
    with fails:
        call(flat, posterior, torch.rand(6, 3), num_samples=4, seed=0, samples_at_once=1)
    assert flat.module.training
    assert not flat.module.norm.training
    assert flat.module.head.training
    assert torch.is_grad_enabled()
    assert all(now is then for now, then in zip(flat.module.parameters(), parameters, strict=True))
    np.testing.assert_array_equal(flat.mean(), vector)
    np.testing.assert_array_equal(flat.buffers, buffers)
    assert (flat.gradient == 2).all()
    assert (
        flat.module.head.bias.grad.data_ptr() == flat.gradient[flat.slices["head.bias"]].data_ptr()
    )


def test_shared_weights_are_sampled_once():
    module = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    module[1].weight = module[0].weight
    flat = Flat(module)
    posterior = Posterior(np.zeros(9), np.ones(9))
    inputs = torch.rand(5, 3)
    expected = one_by_one(flat, posterior, inputs, 3, 0)
    np.testing.assert_allclose(predict_samples(flat, posterior, inputs, 3, 0), expected, atol=1e-6)


def test_mistakes_are_named():
    flat, posterior, inputs = network()
    point = Posterior(posterior.mean)
    short = Posterior(np.zeros(5), np.ones(5))
    negative = Posterior(posterior.mean, -posterior.precision)
    for call, message in [
        (
            lambda: predict(flat, short, inputs, 2, 0),
            f"5 weights does not fit a model with {len(flat)}",
        ),
        (
            lambda: predict_mean(flat, short, inputs),
            f"5 weights does not fit a model with {len(flat)}",
        ),
        (lambda: predict(flat, negative, inputs, 2, 0), "not positive"),
        (lambda: predict(flat, posterior, inputs[:0], 2, 0), "no inputs"),
        (lambda: predict_mean(flat, posterior, inputs[:0]), "no inputs"),
        (lambda: predict(flat, posterior, inputs, -1, 0), "num_samples must be at least 0"),
        (lambda: predict(flat, posterior, inputs, 2, -1), "seed must be at least 0"),
        (
            lambda: predict(flat, posterior, inputs, 2, 0, samples_at_once=0),
            "samples_at_once at least 1",
        ),
        (lambda: predict_samples(flat, posterior, inputs, 0, 0), "num_samples must be at least 1"),
        (lambda: predict_samples(flat, point, inputs, 2, 0), "without precision"),
        (lambda: predict(flat, posterior, inputs, 2, 0, buffers=np.zeros(3)), "0 buffers"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


def test_moments_are_those_of_the_samples():
    flat, posterior, inputs = network()
    drawn = predict_samples(flat, posterior, inputs, 7, 3).astype(np.float64)
    moments = predict_moments(flat, posterior, inputs, 7, 3)
    np.testing.assert_allclose(moments.mean, drawn.mean(0), atol=1e-9)
    np.testing.assert_allclose(moments.second, np.square(drawn).mean(0), atol=1e-9)
    expected = uncertainty(drawn)
    for name, values in moments.uncertainty().items():
        np.testing.assert_allclose(values, expected[name], atol=1e-8)


def test_at_the_mean_there_is_no_epistemic_uncertainty():
    flat, posterior, inputs = network()
    parts = predict_moments(flat, posterior, inputs, 0, 0).uncertainty()
    np.testing.assert_array_equal(parts["epistemic"], 0)
    assert (parts["aleatoric"] > 0).all()


def dropping(rate: float = 0.5):
    torch.manual_seed(0)
    flat = Flat(with_dropout(build("lenet", (8, 8, 1), 4), rate))
    return flat, Posterior(flat.mean()), torch.rand(13, 1, 8, 8)


def test_dropout_is_on_in_samples_and_off_at_the_mean():
    flat, point, inputs = dropping()
    assert has_samples(flat, point) and not has_samples(network()[0], point)
    samples = predict_samples(flat, point, inputs, 6, 0)
    assert samples.std(0).max() > 1e-3
    mean = predict_mean(flat, point, inputs)
    flat.module.eval()
    with torch.no_grad():
        np.testing.assert_allclose(mean, flat.module(inputs).softmax(1).numpy(), atol=1e-6)
    moments = predict_moments(flat, point, inputs, 6, 0)
    np.testing.assert_allclose(moments.mean, samples.astype(np.float64).mean(0), atol=1e-9)
    assert moments.uncertainty()["epistemic"].max() > 0


def test_a_network_with_dropout_is_scored_with_it():
    flat, point, inputs = dropping()
    np.testing.assert_array_equal(
        predict_point(flat, point, inputs, 6, 0), predict(flat, point, inputs, 6, 0)
    )
    sharp = Posterior(point.mean, np.full(len(flat), 4.0))
    np.testing.assert_array_equal(
        predict_point(flat, sharp, inputs, 6, 0), predict(flat, point, inputs, 6, 0)
    )
    flat, posterior, inputs = network()
    np.testing.assert_array_equal(
        predict_point(flat, posterior, inputs, 6, 0), predict_mean(flat, posterior, inputs)
    )


def test_dropout_masks_depend_on_the_seed_and_the_sample_alone():
    flat, point, inputs = dropping()
    flat.module.train()
    modes = [part.training for part in flat.module.modules()]
    state = torch.get_rng_state()
    one = predict_samples(flat, point, inputs, 3, seed=1)
    assert torch.equal(torch.get_rng_state(), state)  # the global generator is as it was
    assert [part.training for part in flat.module.modules()] == modes
    torch.rand(5)
    np.testing.assert_array_equal(predict_samples(flat, point, inputs, 5, seed=1)[:3], one)
    np.testing.assert_array_equal(predict_samples(flat, point, inputs, 3, seed=1, memory_mb=1), one)
    assert not np.array_equal(predict_samples(flat, point, inputs, 3, seed=2), one)
    assert not np.array_equal(one[0], one[1])


def test_dropout_and_weight_samples_go_together():
    flat, point, inputs = dropping(0.1)
    both = (
        predict_samples(flat, Posterior(point.mean, np.full(len(flat), 50.0)), inputs, 40, 0)
        .var(0)
        .mean()
    )
    assert both > 1.2 * predict_samples(flat, point, inputs, 40, 0).var(0).mean()


@pytest.mark.parametrize("samples_at_once", [1, 3, None])
def test_antithetic_samples_mirror_each_other_at_the_mean(samples_at_once):
    flat, posterior, inputs = network("mlp")
    options = {"samples_at_once": samples_at_once, "antithetic": True}
    drawn = predict_samples(flat, posterior, inputs, 5, 3, **options)
    independent = predict_samples(flat, posterior, inputs, 3, 3)
    np.testing.assert_allclose(drawn[::2], independent, atol=2e-6)
    for number in range(2):
        noise = np.random.default_rng([3, number]).standard_normal(len(flat), np.float32)
        mirror = Posterior(posterior.mean - noise / np.sqrt(posterior.precision))
        expected = predict_mean(flat, mirror, inputs)
        np.testing.assert_allclose(drawn[2 * number + 1], expected, atol=2e-6)


@pytest.mark.parametrize("antithetic", [False, True])
def test_weights_in_a_row_are_those_by_number_to_the_bit(antithetic):
    _, posterior, _ = network()
    draws = module_under_test._Draws(num_samples=5, seed=3, antithetic=antithetic)
    for number, weights in enumerate(module_under_test._weights(posterior, draws)):
        alone = sampled_weights(posterior, 3, number, antithetic=antithetic)
        np.testing.assert_array_equal(weights, alone)


def test_antithetic_samples_are_as_good_as_many_independent_ones():
    flat, posterior, inputs = network("linear", (60,), precision=2000.0)
    exact = predict(flat, posterior, inputs, 2000, 1)

    def error(antithetic):
        tries = [
            predict(flat, posterior, inputs, 8, seed, antithetic=antithetic)
            for seed in range(100, 130)
        ]
        return np.mean(np.square(np.stack(tries) - exact))

    assert error(antithetic=True) < error(antithetic=False) / 4
