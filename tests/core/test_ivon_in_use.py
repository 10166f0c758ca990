"""IVON inside a program: restored, interrupted, misused, and among other code."""

import subprocess
import sys
from math import inf

import numpy as np
import pytest
import torch
from torch import nn

from fedivon_app.core.flat import Flat, flat_view
from fedivon_app.core.ivon import IVON
from fedivon_app.core.posterior import Posterior
from tests.core.ivon_problem import INPUTS, LABELS, small_network, train


def test_the_mean_is_restored_when_the_body_raises():
    model = small_network()
    optimizer = IVON(model.parameters(), lr=0.1, ess=10)
    before = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    with pytest.raises(ZeroDivisionError), optimizer.sampled_params(train=True):
        assert not torch.equal(nn.utils.parameters_to_vector(model.parameters()), before)
        raise ZeroDivisionError
    assert torch.equal(nn.utils.parameters_to_vector(model.parameters()), before)
    with pytest.raises(RuntimeError, match="needs a gradient"):
        optimizer.step()


def test_state_dict_round_trip_continues_the_same_way():
    model, optimizer = train(IVON, 20)
    state = optimizer.state_dict()
    twin = small_network()
    other = IVON(twin.parameters(), lr=9.0, ess=1.0)
    other.load_state_dict(state)
    for m, o in ((model, optimizer), (twin, other)):
        torch.manual_seed(5)
        with o.sampled_params(train=True):
            nn.functional.cross_entropy(m(INPUTS), LABELS).backward()
        o.step()
    np.testing.assert_array_equal(optimizer.posterior().mean, other.posterior().mean)
    np.testing.assert_allclose(
        optimizer.posterior().precision, other.posterior().precision, rtol=1e-6
    )
    with pytest.raises(ValueError, match="other parameter groups"):
        IVON([nn.Parameter(torch.zeros(3))], lr=0.1, ess=1).load_state_dict(state)


def test_works_on_the_flat_vector_without_copies():
    flat = Flat(small_network())
    optimizer = IVON(flat.module.parameters(), lr=0.1, ess=100)
    with optimizer.sampled_params(train=True):
        nn.functional.cross_entropy(flat.module(INPUTS), LABELS).backward()
    assert flat.gradient.abs().sum() > 0
    optimizer.step()
    np.testing.assert_array_equal(flat.mean(), optimizer.posterior().mean)
    views = [p.data for p in flat.module.parameters()]
    assert flat_view(views).data_ptr() == flat.vector.data_ptr()
    assert flat_view(views[::-1]).data_ptr() != flat.vector.data_ptr()


def test_gradients_count_even_if_the_model_cleared_them_to_none():
    model, optimizer = train(IVON, 5)
    twin, other = train(IVON, 5)
    for m, o, clear in ((model, optimizer, True), (twin, other, False)):
        torch.manual_seed(5)
        with o.sampled_params(train=True):
            if clear:
                m.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(m(INPUTS), LABELS).backward()
        o.step()
    np.testing.assert_array_equal(optimizer.posterior().mean, other.posterior().mean)


def test_hess_and_precision_can_be_set():
    optimizer = IVON(small_network().parameters(), lr=0.1, ess=50, weight_decay=0.5)
    size = len(optimizer.posterior())
    optimizer.hess = torch.full((size,), 2.0)
    np.testing.assert_allclose(optimizer.posterior().precision, 50 * 2.5)
    optimizer.precision = np.full(size, 75.0)
    torch.testing.assert_close(optimizer.hess, torch.full((size,), 1.0))
    with pytest.raises(ValueError, match="above 0"):
        optimizer.hess = torch.full((size,), -0.5)


def test_training_may_begin_at_a_precision_that_is_known():
    begun = []
    for how in ("given", "set"):
        network = small_network()
        size = sum(p.numel() for p in network.parameters())
        known = np.linspace(1, 40, size, dtype=np.float32)
        given = {"precision": known} if how == "given" else {}
        optimizer = IVON(network.parameters(), lr=0.1, ess=100, hess_init=0.3, **given)
        if how == "set":
            optimizer.precision = known
        np.testing.assert_allclose(optimizer.posterior().precision, known, rtol=1e-6)
        torch.manual_seed(0)
        with optimizer.sampled_params(train=True):
            nn.functional.cross_entropy(network(INPUTS), LABELS).backward()
        optimizer.step()
        begun.append(optimizer.posterior())
    np.testing.assert_array_equal(begun[0].mean, begun[1].mean)
    np.testing.assert_array_equal(begun[0].precision, begun[1].precision)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"ess": -1}, "ess is -1; it must be above 0"),
        ({"lr": -0.1}, "lr is -0.1"),
        ({"beta2": 1.5}, "beta2 is 1.5"),
        ({"mc_samples": 0}, "mc_samples is 0"),
        ({"clip_radius": 0}, "clip_radius is 0"),
        ({"hess_init": 0.0, "weight_decay": 0.0}, "must be above 0 everywhere"),
        ({"prior": Posterior([1.0], [1.0])}, "prior has 1 values"),
    ],
)
def test_wrong_arguments_are_named(wrong, says):
    with pytest.raises(ValueError, match=says):
        IVON(small_network().parameters(), **({"lr": 0.1, "ess": 1.0, "clip_radius": inf} | wrong))


def test_more_samples_than_announced_are_an_error():
    theta = nn.Parameter(torch.zeros(2))
    optimizer = IVON([theta], lr=0.1, ess=1)
    with optimizer.sampled_params(train=True):
        theta.sum().backward()
    with pytest.raises(RuntimeError, match="mc_samples=2"), optimizer.sampled_params(train=True):
        theta.sum().backward()


def test_drawing_for_evaluation_between_backward_and_step_changes_nothing():
    found = []
    for look in (False, True):
        model, optimizer = train(IVON, 5)
        torch.manual_seed(5)
        with optimizer.sampled_params(train=True):
            nn.functional.cross_entropy(model(INPUTS), LABELS).backward()
        if look:
            with optimizer.sampled_params(), torch.no_grad():
                model(INPUTS)
        optimizer.step()
        found.append(optimizer.posterior())
    np.testing.assert_array_equal(found[0].mean, found[1].mean)
    np.testing.assert_array_equal(found[0].precision, found[1].precision)


def test_weights_loaded_into_the_model_are_the_new_mean():
    model, optimizer = train(IVON, 5)
    other = nn.Sequential(nn.Linear(64, 30), nn.Tanh(), nn.Linear(30, 10))
    model.load_state_dict(other.state_dict())
    with optimizer.sampled_params():
        pass
    expected = nn.utils.parameters_to_vector(other.parameters()).detach().numpy()
    np.testing.assert_array_equal(optimizer.posterior().mean, expected)


def test_a_new_process_of_a_client_does_not_load_torchs_compiler():
    """It would take a second of every round on a SuperNode, where a message is a process."""
    program = """
import sys, torch
from fedivon_app.core.ivon import IVON
net = torch.nn.Linear(2, 1)
optimizer = IVON(net.parameters(), lr=0.1, ess=10)
with optimizer.sampled_params(train=True):
    net(torch.ones(1, 2)).sum().backward()
optimizer.step()
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
