"""The layers that the models are made of, besides torch's own."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class BaseHead(nn.Module):
    """A model of two parts: logits = head(base(inputs)), where the head is one linear layer."""

    def __init__(self, base: nn.Module, num_features: int, num_classes: int):
        super().__init__()
        self.base = base
        self.head = nn.Linear(num_features, num_classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        logits: torch.Tensor = self.head(self.base(inputs))
        return logits


class MeanOverPlaces(nn.Module):
    """The mean over the places of a sequence: (N, places, features) becomes (N, features)."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the mean."""
        return inputs.mean(1)


class ChannelsLast(nn.Module):
    """The same images with their channels innermost in memory.

    Convolution and pooling are fastest there on a CPU. It is written with `permute`, because
    `contiguous(memory_format=torch.channels_last)` leaves images of one channel as they are, and
    torch then takes the slow layout for all layers that follow. There is no copy if the batch is so
    laid out already, as arrays of (N, height, width, channels) are that were permuted into torch's
    order.
    """

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the images, moved in memory if need be."""
        if inputs.stride(1) == 1:
            return inputs
        innermost = inputs.permute(0, 2, 3, 1).clone(memory_format=torch.contiguous_format)
        return innermost.permute(0, 3, 1, 2)


class MaxPool2(nn.MaxPool2d):
    """2x2 max pooling, several times as fast as torch's where no gradient is asked for.

    torch's notes where each maximum was, for the way back. Here two passes take the larger ones of
    columns and then of rows, with the same numbers; that pays where channels are innermost.
    """

    def __init__(self) -> None:
        super().__init__(2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the largest of every 2x2 pixels; a last row or column that is odd is left out."""
        height, width = (side // 2 * 2 for side in inputs.shape[-2:])
        innermost = inputs.device.type == "cpu" and inputs.stride(1) == 1
        if torch.is_grad_enabled() or not innermost or height * width == 0:
            outputs: torch.Tensor = super().forward(inputs)
            return outputs
        wide = torch.maximum(inputs[..., 0:width:2], inputs[..., 1:width:2])
        return torch.maximum(wide[..., 0:height:2, :], wide[..., 1:height:2, :])


class ZeroPaddedShortcut(nn.Module):
    """He et al.'s option A: every second pixel, and zeros for the channels that are new.

    It has no parameters.
    """

    def __init__(self, stride: int, new_channels: int):
        super().__init__()
        self.stride = stride
        self.new_channels = new_channels

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the smaller images, with their new channels on both sides of the old ones."""
        before = self.new_channels // 2
        pixels = inputs[:, :, :: self.stride, :: self.stride]
        return functional.pad(pixels, (0, 0, 0, 0, before, self.new_channels - before))


class ResidualBlock(nn.Module):
    """The block ReLU(shortcut(x) + BN(conv(ReLU(BN(conv(x)))))) of He et al. 2016, Figure 2."""

    def __init__(self, channels_in: int, channels: int, stride: int):
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(channels_in, channels, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )
        same = stride == 1 and channels == channels_in
        self.shortcut = (
            nn.Identity() if same else ZeroPaddedShortcut(stride, channels - channels_in)
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        return functional.relu(self.shortcut(inputs) + self.residual(inputs))


class MonteCarloDropout(nn.Dropout):
    """Dropout that predictions leave on when they draw samples (Gal and Ghahramani 2016)."""
