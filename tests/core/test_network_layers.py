"""The layers of the models that are not torch's own."""

import pytest
import torch

from fedivon_app.core.network_layers import ChannelsLast, ZeroPaddedShortcut


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_last_moves_memory_and_no_pixel(channels):
    inputs = torch.rand(2, channels, 5, 4)
    moved = ChannelsLast()(inputs)
    assert torch.equal(moved, inputs)
    assert moved.stride() == (20 * channels, 1, 4 * channels, channels)
    assert ChannelsLast()(moved) is moved


def test_shortcut_of_resnet_takes_every_second_pixel_and_adds_empty_channels():
    inputs = torch.rand(1, 2, 4, 4)
    outputs = ZeroPaddedShortcut(stride=2, new_channels=2)(inputs)
    assert torch.equal(outputs[:, 1:3], inputs[:, :, ::2, ::2])
    assert not outputs[:, [0, 3]].any()
