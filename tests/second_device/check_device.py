"""The second device itself: it computes as the CPU does, and refuses what CUDA would refuse."""

import pytest
import torch
from torch import nn

from tests.second_device import device
from tests.second_device.places import HERE, THERE


def test_a_network_computes_the_same_gradients_on_it():
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    )
    inputs = torch.randn(7, 1, 8, 8)
    found = []
    for where in (HERE, THERE):
        network.to(where).zero_grad()
        network(inputs.to(where)).square().sum().backward()
        found.append([p.grad.cpu() for p in network.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_views_share_memory_and_autograd_knows_of_them():
    vector = torch.zeros(6, device=THERE)
    rows = vector.view(2, 3)
    rows[1].add_(5)
    assert vector.cpu().tolist() == [0, 0, 0, 5, 5, 5]
    assert vector[3:].untyped_storage().data_ptr() == vector.untyped_storage().data_ptr()
    weights = torch.ones(3, device=THERE, requires_grad=True)
    used = weights * 2
    product = used * used
    used.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


@pytest.mark.parametrize(
    "mistake",
    [
        lambda there: there + torch.ones(3),
        lambda there: torch.ones(3) @ there,
        lambda there: torch.cat([there, torch.ones(3)]),
        lambda there: torch.add(there, there, out=torch.ones(3)),
        lambda there: there[torch.tensor([0, 1])],
        lambda there: nn.Linear(3, 2)(there),
        lambda there: there.normal_(generator=torch.Generator()),
    ],
)
def test_where_two_devices_meet_it_raises(mistake):
    with pytest.raises(RuntimeError, match=r"device|generator"):
        mistake(torch.ones(3, device=THERE))


def test_numpy_is_not_for_tensors_of_a_device():
    with pytest.raises(TypeError, match="can't convert second:0 device type tensor to numpy"):
        torch.ones(3, device=THERE).numpy()


def test_a_number_without_dimensions_may_come_from_the_cpu():
    assert (torch.ones(3, device=THERE) * torch.tensor(2.0)).cpu().tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (lambda there: there * 2 + there.sum(), 0),
        (lambda there: there[there.long()], 0),
        (lambda there: there.clone(), 0),
        (lambda there: torch.ones(3).pin_memory().to(THERE, non_blocking=True), 0),
        (lambda there: torch.ones(3).pin_memory().to(THERE), 1),
        (lambda there: torch.ones(3).to(THERE), 1),
        (lambda there: torch.tensor(1.0, device=THERE), 1),
        (lambda there: there.cpu(), 1),
        (lambda there: there.sum().item(), 1),
        (lambda there: bool(there.sum() > 0), 1),
        (lambda there: there[there > 0], 1),
        (lambda there: there.nonzero(), 1),
    ],
)
def test_what_the_host_would_wait_for_is_counted(work, expected):
    there = torch.zeros(3, device=THERE)
    device.waits.clear()
    work(there)
    assert sum(device.waits.values()) == expected


def test_it_has_a_stream_of_random_numbers_of_its_own():
    torch.manual_seed(1)
    first = torch.randn(4, device=THERE).cpu()
    host = torch.randn(4)
    torch.manual_seed(1)
    assert torch.equal(torch.randn(4), host)
    assert torch.equal(torch.randn(4, device=THERE).cpu(), first)
    torch.default_generator.manual_seed(1)  # which seeds the CPU alone
    assert not torch.equal(torch.randn(4, device=THERE).cpu(), first)
