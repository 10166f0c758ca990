import copy

import numpy as np
import pytest
import torch
from torch import nn

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.flat import Flat, flat_view, part_of, views_like
from fedivon_app.core.models import MODELS, build


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


class Tied(nn.Module):
    """out = W W x + b: one weight under two names."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3, bias=False)
        self.head = nn.Linear(3, 3)
        self.head.weight = self.first.weight

    def forward(self, inputs):
        return self.head(self.first(inputs))


def test_vector_is_torchs_own_order():
    module = small()
    expected = nn.utils.parameters_to_vector(module.parameters()).detach().clone()
    flat = Flat(module)
    assert len(flat) == 3 * 4 + 4 + 4 * 2 + 2
    assert torch.equal(flat.vector, expected)
    np.testing.assert_array_equal(flat.mean(), expected.numpy())
    assert flat.slices == {
        "0.weight": slice(0, 12),
        "0.bias": slice(12, 16),
        "2.weight": slice(16, 24),
        "2.bias": slice(24, 26),
    }


def test_vector_and_parameters_share_memory():
    flat = Flat(small())
    flat.vector.zero_()
    assert not any(parameter.any() for parameter in flat.module.parameters())
    with torch.no_grad():
        flat.module[2].bias.fill_(3.0)
    assert flat.vector[24:].tolist() == [3.0, 3.0]


def test_the_flat_view_changes_no_output():
    module = small()
    inputs = torch.rand(5, 3)
    expected = module(inputs)
    assert torch.equal(Flat(module).module(inputs), expected)


def test_gradients_accumulate_in_the_flat_gradient():
    flat = Flat(small())
    reference = small()
    inputs = torch.rand(5, 3)
    reference(inputs).square().sum().backward()
    expected = torch.cat([parameter.grad.reshape(-1) for parameter in reference.parameters()])
    gradient = flat.gradient
    flat.module(inputs).square().sum().backward()
    torch.testing.assert_close(gradient, expected)
    flat.module(inputs).square().sum().backward()
    torch.testing.assert_close(gradient, 2 * expected)
    flat.zero_gradient()
    assert flat.gradient is gradient
    assert not gradient.any()
    assert all(parameter.grad is not None for parameter in flat.module.parameters())


def test_gradients_set_to_none_by_others_come_back():
    flat = Flat(small())
    flat.module.zero_grad(set_to_none=True)
    flat.zero_gradient()
    flat.module(torch.rand(5, 3)).sum().backward()
    assert flat.gradient.any()


def test_torch_optimizers_move_the_vector():
    flat = Flat(small())
    before = flat.mean()
    flat.gradient.fill_(2.0)
    torch.optim.SGD(flat.module.parameters(), lr=0.5).step()
    np.testing.assert_allclose(flat.mean(), before - 1.0, atol=1e-6)


def test_mean_is_a_copy():
    flat = Flat(small())
    mean = flat.mean()
    flat.vector.zero_()
    assert mean.any()
    assert mean.dtype == np.float32


@pytest.mark.parametrize("kind", [np.float32, np.float64, torch.tensor, "read-only"])
def test_load_copies_whatever_kind_of_vector(kind):
    flat = Flat(small())
    values = np.arange(26, dtype=np.float64) / 8
    if kind == "read-only":
        given = values.astype(np.float32)
        given.flags.writeable = False
    else:
        given = torch.tensor(values) if kind is torch.tensor else values.astype(kind)
    flat.load(given)
    np.testing.assert_array_equal(flat.mean(), values)
    flat.vector.zero_()
    assert given[-1] == values[-1]


@pytest.mark.parametrize("shape", [(25,), (27,), (26, 1)])
def test_a_vector_of_another_length_is_refused_with_both_lengths(shape):
    flat = Flat(small())
    with pytest.raises(ValueError, match=rf"{shape[0]}.*26 parameters"):
        flat.load(np.zeros(shape, np.float32))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shape", [(28, 28, 1), (32, 32, 3)])
def test_base_and_head_cover_the_vector_exactly(name, shape):
    flat = Flat(build(name, shape, 10))
    touched = np.zeros(len(flat), int)
    touched[flat.part("base")] += 1
    touched[flat.part("head")] += 1
    assert (touched == 1).all()
    head = nn.utils.parameters_to_vector(flat.module.head.parameters())
    assert torch.equal(flat.vector[flat.part("head")], head)


def test_parts_index_arrays_and_tensors_alike():
    flat = Flat(build("mlp", (3,), 2, sizes=4))
    assert flat.part("base") == slice(0, 16)
    assert flat.part("head") == slice(16, 26)
    assert Flat(build("linear", (3,), 2)).part("base") == slice(0, 0)


def test_a_head_elsewhere_is_found_by_its_prefix():
    flat = Flat(small())
    assert flat.part("head", head="2") == slice(16, 26)
    assert flat.part("head", head="0") == slice(0, 16)
    middle = Flat(nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1), nn.Linear(1, 1)))
    assert middle.part("head", head="1") == slice(2, 4)
    base = middle.part("base", head="1")
    assert base.tolist() == [True, True, False, False, True, True]
    middle.vector[base] = 7.0
    assert (middle.vector == 7).tolist() == base.tolist()


def test_a_prefix_does_not_match_half_a_name():
    flat = Flat(nn.ModuleDict({"head": nn.Linear(1, 1), "header": nn.Linear(1, 1)}))
    assert flat.part("head") == slice(0, 2)


def test_missing_parts_are_named():
    flat = Flat(small())
    with pytest.raises(SettingsError, match="no parameters under 'head'.*submodules are: 0, 2$"):
        flat.part("head")
    with pytest.raises(ValueError, match="'base' and 'head', not 'tail'"):
        flat.part("tail")


def test_parts_are_found_by_the_places_of_the_parameters_alone():
    flat = Flat(build("mlp", (3,), 2, sizes=4))
    for name in ("base", "head"):
        assert part_of(flat.slices, len(flat), name, "head") == flat.part(name)
    with pytest.raises(SettingsError, match="under 'tail' for its head; .* are: base, head$"):
        part_of(flat.slices, len(flat), "base", "tail")


def test_consecutive_views_have_their_vector_back():
    vector = torch.arange(10.0)
    shapes = [torch.empty(2, 3), torch.empty(()), torch.empty(3)]
    views = views_like(vector, shapes)
    assert [view.shape for view in views] == [shape.shape for shape in shapes]
    assert flat_view(views).data_ptr() == vector.data_ptr()
    assert torch.equal(flat_view(views), vector)
    others = flat_view(views[1:])
    assert others.data_ptr() == views[1].data_ptr() and len(others) == 4
    assert flat_view(views[::-1]).tolist() == [7, 8, 9, 6, 0, 1, 2, 3, 4, 5]


def test_shared_parameters_count_once():
    flat = Flat(Tied())
    assert len(flat) == 9 + 3
    flat.load(np.concatenate([2 * np.eye(3).ravel(), np.ones(3)]))
    inputs = torch.rand(4, 3)
    torch.testing.assert_close(flat.module(inputs), 4 * inputs + 1)
    flat.module(inputs).sum().backward()
    assert torch.equal(flat.gradient[9:], torch.full((3,), 4.0))


def test_batch_norm_statistics_make_a_round_trip():
    torch.manual_seed(0)
    flat = Flat(build("resnet20", (8, 8, 1), 10))
    channels = 7 * 16 + 6 * 32 + 6 * 64
    fresh = flat.buffers
    assert fresh.shape == (2 * channels,)
    flat.module(torch.rand(6, 1, 8, 8))
    trained = flat.buffers
    assert not np.array_equal(fresh, trained)
    outputs = flat.module.eval()(torch.ones(2, 1, 8, 8))
    other = Flat(build("resnet20", (8, 8, 1), 10))
    other.load(flat.vector)
    other.load_buffers(trained)
    np.testing.assert_array_equal(other.buffers, trained)
    assert torch.equal(other.module.eval()(torch.ones(2, 1, 8, 8)), outputs)


def test_models_without_batch_norm_have_no_buffers():
    flat = Flat(small())
    assert flat.buffers is None
    flat.load_buffers(None)
    with pytest.raises(ValueError, match="0 buffers"):
        flat.load_buffers(np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="8 buffers"):
        Flat(nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4))).load_buffers(None)


def test_named_parameters_are_views_of_each_row():
    flat = Flat(small())
    rows = torch.rand(5, 26)
    named = flat.named_parameters(rows)
    assert named["2.weight"].shape == (5, 2, 4)
    rows.zero_()
    assert not named["2.weight"].any()


def test_scalar_parameters_have_their_place():
    module = nn.Module()
    module.scale = nn.Parameter(torch.tensor(2.0))
    module.shift = nn.Parameter(torch.tensor([1.0, 3.0]))
    assert Flat(module).mean().tolist() == [2.0, 1.0, 3.0]
    assert module.scale.shape == ()


def test_only_float32_and_only_with_parameters():
    with pytest.raises(SettingsError, match=r"'0.weight' is torch.float64"):
        Flat(small().double())
    with pytest.raises(SettingsError, match="Flatten has no parameters"):
        Flat(nn.Flatten())


def test_a_vector_that_lost_its_parameters_says_so():
    module = small()
    first = Flat(module)
    second = Flat(module)
    second.load(np.zeros(26))
    for use in (first.mean, first.zero_gradient, lambda: first.load(np.ones(26))):
        with pytest.raises(RuntimeError, match="no longer views"):
            use()


def test_a_deep_copy_is_independent():
    flat = Flat(small())
    other = Flat(copy.deepcopy(flat.module))
    other.vector.zero_()
    assert flat.vector.any()
