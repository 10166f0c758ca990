"""Models by name, each a base and a head: logits = head(base(inputs)).

A model is built for the data's shape, (height, width, channels) for images or (features,) for vectors, and takes
batches in torch's order: (N, channels, height, width) or (N, features). The head is the last linear layer, the base
everything before it, so that methods which personalise the head find it under the same name in every model.
Initial weights are torch's defaults, drawn from the global generator: `torch.manual_seed` before `build` fixes them.
"""

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable

import torch
from torch import nn
from torch.nn import functional

Shape = tuple[int, ...]
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
}


class BaseHead(nn.Module):
    """logits = head(base(inputs)); the head is one linear layer."""

    def __init__(self, base: nn.Module, num_features: int, num_classes: int):
        super().__init__()
        self.base = base
        self.head = nn.Linear(num_features, num_classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.base(inputs))


class ChannelsLast(nn.Module):
    """The same images with their channels innermost in memory, where convolution and pooling are fastest on a CPU.

    Written with `permute`, because `contiguous(memory_format=torch.channels_last)` leaves images of one channel as they
    are, and torch then takes the slow layout for all layers that follow. No copy if the batch is so laid out already,
    as arrays of (N, height, width, channels) are that were permuted into torch's order.
    """

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if inputs.stride(1) == 1:
            return inputs
        return (
            inputs.permute(0, 2, 3, 1)
            .clone(memory_format=torch.contiguous_format)
            .permute(0, 3, 1, 2)
        )


class ZeroPaddedShortcut(nn.Module):
    """He et al.'s option A: every second pixel, and zeros for the channels that are new; no parameters."""

    def __init__(self, stride: int, new_channels: int):
        super().__init__()
        self.stride = stride
        self.new_channels = new_channels

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        before = self.new_channels // 2
        pixels = inputs[:, :, :: self.stride, :: self.stride]
        return functional.pad(pixels, (0, 0, 0, 0, before, self.new_channels - before))


class ResidualBlock(nn.Module):
    """ReLU(shortcut(x) + BN(conv(ReLU(BN(conv(x)))))), He et al. 2016, Figure 2."""

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
        return functional.relu(self.shortcut(inputs) + self.residual(inputs))


class MonteCarloDropout(nn.Dropout):
    """Dropout that `core.predict` leaves on when it draws samples (Gal and Ghahramani 2016)."""


def with_dropout(module: nn.Module, rate: float, logits: bool = False) -> nn.Module:
    """The module with Monte Carlo dropout after every linear and convolution layer; the last one's outputs are the
    logits, which are left alone unless `logits` says otherwise.

    Changed in place: each such layer becomes Sequential(layer, dropout), so that the flat vector stays the same.
    """
    if not 0 < rate < 1:
        raise ValueError(f"the rate of dropout must lie between 0 and 1, not {rate}")
    layers = [
        name for name, part in module.named_modules() if isinstance(part, nn.Linear | nn.Conv2d)
    ]
    for name in layers if logits else layers[:-1]:
        parent, _, child = name.rpartition(".")
        module.get_submodule(parent).register_module(
            child, nn.Sequential(module.get_submodule(name), MonteCarloDropout(rate))
        )
    return module


def linear(shape: Shape, num_classes: int) -> nn.Module:
    """Multinomial logistic regression: the base only flattens."""
    return BaseHead(nn.Flatten(), _size(shape), num_classes)


def mlp(
    shape: Shape,
    num_classes: int,
    sizes: int | Iterable[int] = (200, 100),
    activation: str = "relu",
) -> nn.Module:
    """Fully connected layers; 200-100 with sigmoid is BayesADMM's network for MNIST and Fashion-MNIST."""
    layers, features = _fully_connected(_size(shape), _positive("sizes", sizes), activation)
    return BaseHead(nn.Sequential(nn.Flatten(), *layers), features, num_classes)


def lenet(
    shape: Shape,
    num_classes: int,
    channels: Iterable[int] = (16, 32),
    hidden: int | Iterable[int] = 128,
) -> nn.Module:
    """5x5 convolutions, each with ReLU and 2x2 max pooling, then hidden linear layers with ReLU.

    The convolutions are not padded, except for images with a side below 16 (the 8x8 digits), which would vanish: those
    get same-padding. `hidden=(120, 84)` is pFedVEM's network for CIFAR-10.
    """
    padding = "same" if min(shape[:2]) < 16 else "valid"
    layers = []
    channels_in = shape[2]
    for channels_out in _positive("channels", channels):
        layers += [
            nn.Conv2d(channels_in, channels_out, 5, padding=padding),
            nn.MaxPool2d(2),
            nn.ReLU(),
        ]
        channels_in = channels_out
    return _convolutional(layers, shape, num_classes, _positive("hidden", hidden))


def acar_cnn(shape: Shape, num_classes: int) -> nn.Module:
    """FedDyn's network (Acar et al. 2021): two 5x5 convolutions of 64 channels, linear layers of 384 and 192."""
    return lenet(shape, num_classes, channels=(64, 64), hidden=(384, 192))


def cnn6(shape: Shape, num_classes: int, channels: Iterable[int] = (32, 64, 128)) -> nn.Module:
    """Six 3x3 convolutions, a pair for each entry of `channels`, for CIFAR-100.

    Same-padding and ReLU throughout, 2x2 max pooling between the pairs and the average over all pixels after the last.
    """
    layers = []
    channels_in = shape[2]
    for channels_out in _positive("channels", channels):
        layers += [nn.MaxPool2d(2)] if layers else []
        layers += [nn.Conv2d(channels_in, channels_out, 3, padding=1), nn.ReLU()]
        layers += [nn.Conv2d(channels_out, channels_out, 3, padding=1), nn.ReLU()]
        channels_in = channels_out
    return _convolutional([*layers, nn.AdaptiveAvgPool2d(1)], shape, num_classes)


def zenke_cnn(shape: Shape, num_classes: int) -> nn.Module:
    """The CIFAR network of Zenke et al. 2017: two pairs of 3x3 convolutions (32, 64 channels) with dropout."""
    layers = []
    channels_in = shape[2]
    for channels_out in (32, 64):
        layers += [nn.Conv2d(channels_in, channels_out, 3, padding=1), nn.ReLU()]
        layers += [
            nn.Conv2d(channels_out, channels_out, 3),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Dropout(0.25),
        ]
        channels_in = channels_out
    model = _convolutional(layers, shape, num_classes, (512,))
    model.base.append(nn.Dropout(0.5))
    return model


def resnet(
    shape: Shape, num_classes: int, channels: Iterable[int] = (16, 32, 64), blocks: int = 3
) -> nn.Module:
    """He et al.'s networks for CIFAR (2016, section 4.2): a stage of `blocks` blocks for each entry of `channels`.

    Every stage but the first halves the image. The defaults are ResNet-20; `channels=(8, 16, 32), blocks=1` is a small
    one of eight layers.
    """
    channels = _positive("channels", channels)
    (blocks,) = _positive("blocks", blocks)
    channels_in = channels[0]
    layers = [
        nn.Conv2d(shape[2], channels_in, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels_in),
        nn.ReLU(),
    ]
    for stage, channels_out in enumerate(channels):
        for block in range(blocks):
            layers.append(
                ResidualBlock(channels_in, channels_out, 2 if stage and block == 0 else 1)
            )
            channels_in = channels_out
    return _convolutional([*layers, nn.AdaptiveAvgPool2d(1)], shape, num_classes)


def resnet20(shape: Shape, num_classes: int) -> nn.Module:
    """ResNet-20: three stages of three blocks, 16, 32 and 64 channels."""
    return resnet(shape, num_classes)


MODELS: dict[str, Callable[..., nn.Module]] = {
    "linear": linear,
    "mlp": mlp,
    "lenet": lenet,
    "cnn6": cnn6,
    "acar-cnn": acar_cnn,
    "zenke-cnn": zenke_cnn,
    "resnet": resnet,
    "resnet20": resnet20,
}
VECTOR_MODELS = ("linear", "mlp")


def options_of(name: str) -> dict[str, object]:
    """The options that `build` takes for this model, with their defaults."""
    _known("there is no model", name, MODELS)
    parameters = inspect.signature(MODELS[name]).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def build(name: str, shape: Shape, num_classes: int, **options) -> nn.Module:
    """The model of this name for inputs of this shape, (height, width, channels) or (features,)."""
    valid = options_of(name)
    shape = _checked_shape(shape)
    if num_classes < 2:
        raise ValueError(f"num_classes must be at least 2, not {num_classes}")
    for option in options:
        _known(f"model {name!r} has no option", option, valid)
    if len(shape) == 1 and name not in VECTOR_MODELS:
        takers = " and ".join(VECTOR_MODELS)
        raise ValueError(
            f"model {name!r} needs images (height, width, channels), not vectors {shape}; {takers} take them"
        )
    try:
        return MODELS[name](shape, num_classes, **options)
    except _TooSmall:
        size = "x".join(map(str, shape))
        raise ValueError(
            f"images of {size} are too small for model {name!r}: nothing is left after pooling"
        ) from None


def build_custom(factory: str, shape: Shape, num_classes: int, **options) -> nn.Module:
    """The user's own model: `package.module:function` is called as function(shape, num_classes, **options).

    Its module has to turn a float32 batch, (N, channels, height, width) or (N, features), into (N, num_classes) logits.
    """
    shape = _checked_shape(shape)
    function = _imported(factory)
    try:
        model = function(shape, num_classes, **options)
    except Exception as error:
        given = ", ".join(["shape", "num_classes", *options])
        raise ValueError(
            f"model factory {factory!r}, called with ({given}), fails: {error}"
        ) from error
    if not isinstance(model, nn.Module):
        raise ValueError(
            f"model factory {factory!r} returned a {type(model).__name__}, not a torch.nn.Module"
        )
    try:
        logits = _dry_run(model, shape, batch_size=2)
    except Exception as error:
        batch = (2, *_channels_first(shape))
        raise ValueError(
            f"the model of factory {factory!r} fails on a batch of shape {batch}: {error}"
        ) from error
    found = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
    if found != (2, num_classes):
        raise ValueError(
            f"the model of factory {factory!r} gives {found} for 2 inputs, not {(2, num_classes)} logits"
        )
    return model


class _TooSmall(Exception):
    pass


def _convolutional(
    layers: list[nn.Module], shape: Shape, num_classes: int, hidden: tuple[int, ...] = ()
) -> nn.Module:
    base = nn.Sequential(ChannelsLast(), *layers, nn.Flatten())
    try:
        features = _dry_run(base, shape, batch_size=1).shape[1]
    except RuntimeError as error:
        raise _TooSmall from error
    more, features = _fully_connected(features, hidden, "relu")
    return BaseHead(base.extend(more), features, num_classes)


def _fully_connected(
    features: int, sizes: tuple[int, ...], activation: str
) -> tuple[list[nn.Module], int]:
    _known("there is no activation", activation, ACTIVATIONS)
    layers = []
    for size in sizes:
        layers += [nn.Linear(features, size), ACTIVATIONS[activation]()]
        features = size
    return layers, features


def _dry_run(module: nn.Module, shape: Shape, batch_size: int) -> torch.Tensor:
    """The module's output for zeros, in eval mode so that batch-norm statistics and generators stay untouched."""
    training = module.training
    module.eval()
    device = next((parameter.device for parameter in module.parameters()), None)
    try:
        with torch.no_grad():
            return module(torch.zeros(batch_size, *_channels_first(shape), device=device))
    finally:
        module.train(training)


def _imported(factory: str) -> Callable[..., object]:
    path, colon, attribute = factory.partition(":")
    if not (path and colon and attribute):
        raise ValueError(f"model factory {factory!r} must be written package.module:function")
    try:
        module = importlib.import_module(path)
    except ImportError as error:
        raise ValueError(f"model factory {factory!r}: cannot import {path!r} ({error})") from error
    function = getattr(module, attribute, None)
    if not callable(function):
        public = [name for name in vars(module) if not name.startswith("_")]
        raise ValueError(
            f"model factory {factory!r}: {path!r} has no function {attribute!r}{_nearest(attribute, public)}"
        )
    return function


def _checked_shape(shape: Iterable[int]) -> Shape:
    shape = tuple(int(side) for side in shape)
    if len(shape) not in (1, 3) or min(shape) < 1:
        raise ValueError(f"an input shape is (height, width, channels) or (features,), not {shape}")
    return shape


def _channels_first(shape: Shape) -> Shape:
    return shape if len(shape) == 1 else (shape[2], shape[0], shape[1])


def _size(shape: Shape) -> int:
    return torch.Size(shape).numel()


def _positive(option: str, sizes: int | Iterable[int]) -> tuple[int, ...]:
    sizes = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    if not sizes or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise ValueError(f"{option} must be one or more positive whole numbers, not {sizes}")
    return sizes


def _known(complaint: str, name: str, valid: Iterable[str]) -> None:
    valid = list(valid)
    if name not in valid:
        choice = f"; choose from {', '.join(valid)}" if valid else " nor any other"
        raise ValueError(f"{complaint} {name!r}{_nearest(name, valid) or choice}")


def _nearest(name: str, valid: Iterable[str]) -> str:
    match = difflib.get_close_matches(name, list(valid), n=1)
    return f"; did you mean {match[0]!r}?" if match else ""
