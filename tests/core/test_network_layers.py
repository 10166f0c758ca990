"""The layers of the models that are not torch's own."""

import pytest
import torch

from fedivon_app.core.models import build
from fedivon_app.core.network_layers import ChannelsLast, MaxPool2, ZeroPaddedShortcut


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_last_moves_memory_and_no_pixel(channels):
    inputs = torch.rand(2, channels, 5, 4)
    moved = ChannelsLast()(inputs)
    assert torch.equal(moved, inputs)
    assert moved.stride() == (20 * channels, 1, 4 * channels, channels)
    assert ChannelsLast()(moved) is moved


@pytest.mark.parametrize("size", [(6, 8), (7, 8), (6, 5), (3, 3)])
def test_pooling_without_gradients_gives_torchs_numbers(size):
    inputs = ChannelsLast()(torch.randn(3, 5, *size))
    inputs[0, 1, 1, 0] = torch.nan
    expected = torch.nn.functional.max_pool2d(inputs, 2)
    with torch.no_grad():
        outputs = MaxPool2()(inputs)
    assert torch.equal(outputs.nan_to_num(9), expected.nan_to_num(9))
    assert outputs.isnan().sum() == 1
    assert outputs.stride() == expected.stride()


@pytest.mark.parametrize(
    ("name", "shape"), [("lenet", (28, 28, 1)), ("lenet", (9, 8, 3)), ("cnn6", (12, 10, 3))]
)
def test_networks_with_pooling_give_the_same_with_gradients_and_without(name, shape):
    torch.manual_seed(0)
    network = build(name, shape, 10).eval()
    inputs = torch.rand(7, *shape).permute(0, 3, 1, 2)
    with torch.no_grad():
        without = network(inputs)
    assert torch.equal(network(inputs), without)


def test_shortcut_of_resnet_takes_every_second_pixel_and_adds_empty_channels():
    inputs = torch.rand(1, 2, 4, 4)
    outputs = ZeroPaddedShortcut(stride=2, new_channels=2)(inputs)
    assert torch.equal(outputs[:, 1:3], inputs[:, :, ::2, ::2])
    assert not outputs[:, [0, 3]].any()
