"""Models by name, each a base and a head: logits = head(base(inputs)).

A model is built for the data's shape, (height, width, channels) for images or (features,) for
vectors, and takes batches in torch's order: (N, channels, height, width) or (N, features). The head
is the last linear layer, the base everything before it, so that methods which personalise the head
find it under the same name in every model. Initial weights are torch's defaults, drawn from the
global generator: `torch.manual_seed` before `build` fixes them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable

import torch
from torch import nn

from fedivon_app.core.dry_run import Shape, checked_outputs, dry_run
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.library_models import of_library
from fedivon_app.core.network_layers import (
    BaseHead,
    ChannelsLast,
    MaxPool2,
    MeanOverPlaces,
    MonteCarloDropout,
    ResidualBlock,
)
from fedivon_app.core.registry import Registry, import_by_path, is_import_path
from fedivon_app.core.text import did_you_mean, one_line

ACTIVATIONS: Registry[type[nn.Module]] = Registry(
    "activation",
    {"relu": nn.ReLU, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh},
    kind=nn.Module,
    classes=True,
)


def with_dropout(module: nn.Module, rate: float, logits: bool = False) -> nn.Module:
    """Return the module with Monte Carlo dropout after every linear and convolution layer.

    The last such layer's outputs are the logits, which are left alone unless `logits` says
    otherwise. The module is changed in place: each such layer becomes Sequential(layer, dropout),
    so that the flat vector stays the same.
    """
    if not 0 < rate < 1:
        raise SettingsError(f"the rate of dropout must lie between 0 and 1, not {rate}")
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
    """Build multinomial logistic regression: the base only flattens."""
    return BaseHead(nn.Flatten(), _size(shape), num_classes)


def mlp(
    shape: Shape,
    num_classes: int,
    sizes: int | Iterable[int] = (200, 100),
    activation: str = "relu",
) -> nn.Module:
    """Build fully connected layers.

    200-100 with sigmoid is BayesADMM's network for MNIST and Fashion-MNIST.
    """
    layers, features = _fully_connected(_size(shape), _positive("sizes", sizes), activation)
    return BaseHead(nn.Sequential(nn.Flatten(), *layers), features, num_classes)


def tokens(
    shape: Shape,
    num_classes: int,
    vocabulary: int = 1000,
    width: int = 32,
    sizes: int | Iterable[int] = (32,),
) -> nn.Module:
    """Build an embedding of tokens, their mean, and fully connected layers with ReLU.

    Inputs are whole numbers from 0 to vocabulary - 1 (data.scaling=tokens).
    """
    (vocabulary,) = _positive("vocabulary", vocabulary)
    (width,) = _positive("width", width)
    layers, features = _fully_connected(width, _positive("sizes", sizes), "relu")
    base = nn.Sequential(nn.Embedding(vocabulary, width), MeanOverPlaces(), *layers)
    return BaseHead(base, features, num_classes)


def lenet(
    shape: Shape,
    num_classes: int,
    channels: Iterable[int] = (16, 32),
    hidden: int | Iterable[int] = 128,
) -> nn.Module:
    """Build 5x5 convolutions with ReLU and 2x2 max pooling each, then hidden layers with ReLU.

    The convolutions are not padded, except for images with a side below 16 (the 8x8 digits), which
    would vanish: those get same-padding. `hidden=(120, 84)` is pFedVEM's network for CIFAR-10.
    """
    padding = "same" if min(shape[:2]) < 16 else "valid"
    layers: list[nn.Module] = []
    channels_in = shape[2]
    for channels_out in _positive("channels", channels):
        layers += [
            nn.Conv2d(channels_in, channels_out, 5, padding=padding),
            MaxPool2(),
            nn.ReLU(),
        ]
        channels_in = channels_out
    return _convolutional(layers, shape, num_classes, hidden=_positive("hidden", hidden))


def acar_cnn(shape: Shape, num_classes: int) -> nn.Module:
    """Build FedDyn's network (Acar et al. 2021).

    It has two 5x5 convolutions of 64 channels, and linear layers of 384 and 192.
    """
    return lenet(shape, num_classes, channels=(64, 64), hidden=(384, 192))


def cnn6(shape: Shape, num_classes: int, channels: Iterable[int] = (32, 64, 128)) -> nn.Module:
    """Build six 3x3 convolutions, a pair for each entry of `channels`, for CIFAR-100.

    There are same-padding and ReLU throughout, 2x2 max pooling between the pairs and the average
    over all pixels after the last.
    """
    layers: list[nn.Module] = []
    channels_in = shape[2]
    for channels_out in _positive("channels", channels):
        layers += [MaxPool2()] if layers else []
        layers += [nn.Conv2d(channels_in, channels_out, 3, padding=1), nn.ReLU()]
        layers += [nn.Conv2d(channels_out, channels_out, 3, padding=1), nn.ReLU()]
        channels_in = channels_out
    return _convolutional([*layers, nn.AdaptiveAvgPool2d(1)], shape, num_classes)


def zenke_cnn(shape: Shape, num_classes: int) -> nn.Module:
    """Build the CIFAR network of Zenke et al. 2017.

    It has two pairs of 3x3 convolutions, of 32 and 64 channels, with dropout.
    """
    layers: list[nn.Module] = []
    channels_in = shape[2]
    for channels_out in (32, 64):
        layers += [nn.Conv2d(channels_in, channels_out, 3, padding=1), nn.ReLU()]
        layers += [
            nn.Conv2d(channels_out, channels_out, 3),
            MaxPool2(),
            nn.ReLU(),
            nn.Dropout(0.25),
        ]
        channels_in = channels_out
    return _convolutional(layers, shape, num_classes, hidden=(512,), last=[nn.Dropout(0.5)])


def resnet(
    shape: Shape, num_classes: int, channels: Iterable[int] = (16, 32, 64), blocks: int = 3
) -> nn.Module:
    """Build one of He et al.'s networks for CIFAR (2016, section 4.2).

    It has a stage of `blocks` blocks for each entry of `channels`; every stage but the first halves
    the image. The defaults are ResNet-20; `channels=(8, 16, 32), blocks=1` is a small one of eight
    layers.
    """
    channels = _positive("channels", channels)
    (blocks,) = _positive("blocks", blocks)
    channels_in = channels[0]
    layers: list[nn.Module] = [
        nn.Conv2d(shape[2], channels_in, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels_in),
        nn.ReLU(),
    ]
    for stage, channels_out in enumerate(channels):
        for block in range(blocks):
            stride = 2 if stage and block == 0 else 1
            layers.append(ResidualBlock(channels_in, channels_out, stride))
            channels_in = channels_out
    return _convolutional([*layers, nn.AdaptiveAvgPool2d(1)], shape, num_classes)


def resnet20(shape: Shape, num_classes: int) -> nn.Module:
    """Build ResNet-20, which has three stages of three blocks, of 16, 32 and 64 channels."""
    return resnet(shape, num_classes)


MODELS: Registry[Callable[..., nn.Module]] = Registry(
    "model",
    {
        "linear": linear,
        "mlp": mlp,
        "tokens": tokens,
        "lenet": lenet,
        "cnn6": cnn6,
        "acar-cnn": acar_cnn,
        "zenke-cnn": zenke_cnn,
        "resnet": resnet,
        "resnet20": resnet20,
    },
)
VECTOR_MODELS = ("linear", "mlp", "tokens")


def options_of(name: str) -> dict[str, object]:
    """Return the options that `build` takes for this model, with their defaults."""
    if is_import_path(name):
        raise SettingsError(f"there is no model {name!r}: model.factory is for one of your own")
    parameters = inspect.signature(MODELS.find(name)).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def build(name: str, shape: Shape, num_classes: int, **options: object) -> nn.Module:
    """Return the model of this name for inputs of this shape.

    The shape is (height, width, channels) or (features,). `torchvision/NAME` and `timm/NAME` are
    networks of these libraries.
    """
    if "/" in name:
        return of_library(name, _checked_shape(shape), num_classes, options)
    valid = options_of(name)
    shape = _checked_shape(shape)
    if num_classes < 2:
        raise SettingsError(f"num_classes must be at least 2, not {num_classes}")
    for option in options:
        if option not in valid:
            raise SettingsError(
                f"model {name!r} has no option {option!r}: {did_you_mean(option, valid)}"
            )
    if len(shape) == 1 and name not in VECTOR_MODELS:
        takers = " and ".join(VECTOR_MODELS[:2])
        raise SettingsError(
            f"model {name!r} needs images (height, width, channels), "
            f"not vectors {shape}; {takers} take them"
        )
    try:
        return MODELS[name](shape, num_classes, **options)
    except _TooSmall:
        size = "x".join(map(str, shape))
        raise SettingsError(
            f"images of {size} are too small for model {name!r}: nothing is left after pooling"
        ) from None


def build_custom(factory: str, shape: Shape, num_classes: int, **options: object) -> nn.Module:
    """Return the user's own model, from a function that is named by its import path.

    `package.module:function` is called as function(shape, num_classes, **options). Its module has
    to turn a float32 batch, (N, channels, height, width) or (N, features), into (N, num_classes)
    logits.
    """
    shape = _checked_shape(shape)
    function = import_by_path(factory, "model factory")
    if not callable(function):
        raise SettingsError(f"model factory {factory!r} is {function!r}, which cannot be called")
    try:
        model = function(shape, num_classes, **options)
    except Exception as error:
        given = ", ".join(["shape", "num_classes", *options])
        raise SettingsError(
            f"model factory {factory!r}, called with ({given}), fails: {one_line(error)}"
        ) from error
    if not isinstance(model, nn.Module):
        raise SettingsError(
            f"model factory {factory!r} returned a {type(model).__name__}, not a torch.nn.Module"
        )
    return checked_outputs(model, f"the model of factory {factory!r}", shape, num_classes)


class _TooSmall(Exception):
    pass


def _convolutional(
    layers: Iterable[nn.Module],
    shape: Shape,
    num_classes: int,
    *,
    hidden: tuple[int, ...] = (),
    last: Iterable[nn.Module] = (),
) -> nn.Module:
    """Return a model of these layers, then linear ones of the `hidden` sizes, then the `last`."""
    base = nn.Sequential(ChannelsLast(), *layers, nn.Flatten())
    try:
        features = dry_run(base, shape, batch_size=1).shape[1]
    except RuntimeError as error:
        raise _TooSmall from error
    more, features = _fully_connected(features, hidden, "relu")
    return BaseHead(base.extend([*more, *last]), features, num_classes)


def _fully_connected(
    features: int, sizes: tuple[int, ...], activation: str
) -> tuple[list[nn.Module], int]:
    """Return linear layers of these sizes, with activations, and how many features come out."""
    activate = ACTIVATIONS.find(activation)
    layers: list[nn.Module] = []
    for size in sizes:
        layers += [nn.Linear(features, size), activate()]
        features = size
    return layers, features


def _checked_shape(shape: Iterable[int]) -> Shape:
    shape = tuple(int(side) for side in shape)
    if len(shape) not in (1, 3) or min(shape) < 1:
        raise SettingsError(
            f"an input shape is (height, width, channels) or (features,), not {shape}"
        )
    return shape


def _size(shape: Shape) -> int:
    return torch.Size(shape).numel()


def _positive(option: str, sizes: int | Iterable[int]) -> tuple[int, ...]:
    sizes = tuple(sizes) if isinstance(sizes, Iterable) else (sizes,)
    if not sizes or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise SettingsError(f"{option} must be one or more positive whole numbers, not {sizes}")
    return sizes
