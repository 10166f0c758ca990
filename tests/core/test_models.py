import textwrap
from itertools import pairwise

import pytest
import torch
from torch import nn

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.models import MODELS, build, build_custom, options_of, with_dropout
from fedivon_app.core.network_layers import MonteCarloDropout

IMAGES = [(28, 28, 1), (32, 32, 3)]

OF_NUMBERS = [name for name in MODELS if name != "tokens"]  # and not of whole numbers


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def batch(shape: tuple[int, ...], size: int = 2) -> torch.Tensor:
    return torch.rand(size, *(shape if len(shape) == 1 else (shape[2], *shape[:2])))


def conv(channels_in: int, channels_out: int, kernel: int) -> int:
    return channels_out * (channels_in * kernel**2 + 1)


def full(*sizes: int) -> int:
    return sum((features + 1) * size for features, size in pairwise(sizes))


@pytest.mark.parametrize("name", OF_NUMBERS)
@pytest.mark.parametrize("shape", IMAGES)
@pytest.mark.parametrize("num_classes", [10, 26])
def test_every_model_gives_one_logit_a_class(name, shape, num_classes):
    assert build(name, shape, num_classes)(batch(shape)).shape == (2, num_classes)


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_vectors_are_taken_by_the_fully_connected_models(name):
    assert build(name, (60,), 10)(batch((60,))).shape == (2, 10)


@pytest.mark.parametrize("name", ["linear", "mlp", "lenet", "acar-cnn", "cnn6", "resnet20"])
def test_small_images_do_not_vanish(name):
    assert build(name, (8, 8, 1), 10)(batch((8, 8, 1))).shape == (2, 10)


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("linear", (28, 28, 1), full(784, 10)),
        ("mlp", (28, 28, 1), full(784, 200, 100, 10)),
        ("mlp", (60,), full(60, 200, 100, 10)),
        ("lenet", (28, 28, 1), 80_202),
        ("lenet", (28, 28, 1), conv(1, 16, 5) + conv(16, 32, 5) + full(32 * 4 * 4, 128, 10)),
        ("lenet", (32, 32, 3), conv(3, 16, 5) + conv(16, 32, 5) + full(32 * 5 * 5, 128, 10)),
        ("lenet", (8, 8, 1), conv(1, 16, 5) + conv(16, 32, 5) + full(32 * 2 * 2, 128, 10)),
        (
            "acar-cnn",
            (32, 32, 3),
            conv(3, 64, 5) + conv(64, 64, 5) + full(64 * 5 * 5, 384, 192, 10),
        ),
        ("zenke-cnn", (32, 32, 3), 1_250_858),
        ("resnet20", (32, 32, 3), 269_722),
        ("resnet", (32, 32, 3), 269_722),
    ],
)
def test_parameter_counts(name, shape, expected):
    assert count(build(name, shape, 10)) == expected


def test_cnn6_has_six_convolutions_and_averages_over_pixels():
    pairs = [(3, 32), (32, 32), (32, 64), (64, 64), (64, 128), (128, 128)]
    convolutions = sum(conv(channels_in, channels, 3) for channels_in, channels in pairs)
    expected = convolutions + full(128, 100)
    assert count(build("cnn6", (32, 32, 3), 100)) == expected


def test_options_change_the_model():
    model = build("lenet", (32, 32, 3), 10, channels=[6, 16], hidden=[120, 84])
    assert count(model) == conv(3, 6, 5) + conv(6, 16, 5) + full(16 * 5 * 5, 120, 84, 10)
    assert options_of("lenet") == {"channels": (16, 32), "hidden": 128}
    assert options_of("resnet20") == {}
    kinds = [type(layer) for layer in build("mlp", (4,), 2, sizes=3, activation="tanh").base]
    assert kinds == [nn.Flatten, nn.Linear, nn.Tanh]


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_logits_are_the_linear_head_of_the_base(name):
    model = build(name, (28, 28, 1), 10).eval()
    inputs = batch((28, 28, 1), 3)
    features = model.base(inputs)
    assert isinstance(model.head, nn.Linear)
    torch.testing.assert_close(model(inputs), features @ model.head.weight.T + model.head.bias)


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_the_seed_fixes_the_weights(name):
    def weights(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return nn.utils.parameters_to_vector(build(name, (28, 28, 1), 10).parameters())

    first = weights(1)
    assert torch.equal(first, weights(1))
    assert not torch.equal(first, weights(2))


@pytest.mark.parametrize("name", OF_NUMBERS)
@pytest.mark.parametrize("shape", IMAGES)
def test_the_memory_layout_of_the_inputs_does_not_change_the_logits(name, shape):
    model = build(name, shape, 10).eval()
    inputs = batch(shape, 3)
    innermost = inputs.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    torch.testing.assert_close(model(innermost), model(inputs), rtol=1e-4, atol=1e-5)


def test_pooling_before_relu_is_pooling_after_it():
    model = build("lenet", (28, 28, 1), 10)
    _, first, _, _, second, *_ = model.base
    inputs = batch((28, 28, 1), 3)
    hidden = nn.functional.max_pool2d(first(inputs).relu(), 2)
    hidden = nn.functional.max_pool2d(second(hidden).relu(), 2).flatten(1)
    torch.testing.assert_close(model(inputs), model.head(model.base[-2:](hidden)))


def test_dropout_works_in_training_only():
    model = build("zenke-cnn", (32, 32, 3), 10)
    inputs = batch((32, 32, 3))
    assert not torch.equal(model(inputs), model(inputs))
    model.eval()
    assert torch.equal(model(inputs), model(inputs))


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_models_are_new_and_in_training_mode(name):
    model = build(name, (28, 28, 1), 10)
    assert all(part.training for part in model.modules())
    for key, buffer in model.named_buffers():
        assert torch.equal(
            buffer, torch.ones_like(buffer) if key.endswith("var") else torch.zeros_like(buffer)
        )


@pytest.mark.parametrize(
    ("name", "shape", "options", "message"),
    [
        ("lenett", (28, 28, 1), {}, r"no model 'lenett': did you mean lenet\?"),
        ("transformer", (28, 28, 1), {}, "choose from acar-cnn, cnn6, lenet, linear, mlp"),
        ("own:network", (28, 28, 1), {}, "'own:network': model.factory is for one of your own"),
        ("lenet", (60,), {}, "needs images.*linear and mlp take them"),
        ("lenet", (28, 28, 1), {"chanels": 3}, "'lenet' has no option 'chanels': did you mean cha"),
        ("resnet20", (28, 28, 1), {"depth": 3}, "'resnet20' has no option 'depth': there are none"),
        ("lenet", (28, 28, 1), {"hidden": 0}, "hidden must be one or more positive"),
        ("lenet", (28, 28, 1), {"hidden": 1.5}, "hidden must be one or more positive"),
        ("mlp", (60,), {"sizes": []}, "sizes must be one or more positive"),
        ("mlp", (60,), {"activation": "rleu"}, r"no activation 'rleu': did you mean relu\?"),
        ("lenet", (3, 3, 1), {}, "3x3x1 are too small for model 'lenet'"),
        ("linear", (28, 28), {}, r"not \(28, 28\)"),
        ("linear", (28, 0, 1), {}, r"not \(28, 0, 1\)"),
    ],
)
def test_mistakes_are_named(name, shape, options, message):
    with pytest.raises(SettingsError, match=message):
        build(name, shape, 10, **options)


def test_a_model_has_two_classes_at_least():
    with pytest.raises(SettingsError, match="num_classes must be at least 2, not 1"):
        build("linear", (28, 28, 1), 1)


@pytest.fixture
def own_package(tmp_path, monkeypatch):
    source = """
        import torch
        from torch import nn

        def build(shape, num_classes, width=7):
            first = nn.Linear(torch.Size(shape).numel(), width)
            return nn.Sequential(nn.Flatten(), first, nn.Linear(width, num_classes))

        def nothing(shape, num_classes):
            return {"no": "module"}

        def one_more(shape, num_classes):
            return build(shape, num_classes + 1)

        def for_vectors(shape, num_classes):
            return nn.Linear(60, num_classes)

        def broken(shape, num_classes):
            raise RuntimeError("out of ideas")

        SIZE = 3
    """
    (tmp_path / "own_network.py").write_text(textwrap.dedent(source))
    (tmp_path / "needs_more.py").write_text("import a_package_that_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)


def test_own_model_by_its_import_path(own_package):
    model = build_custom("own_network:build", (8, 8, 1), 10, width=5)
    assert count(model) == full(64, 5, 10)
    assert model.training


@pytest.mark.parametrize(
    ("factory", "options", "message"),
    [
        ("own_network.build", {}, "'own_network.build' is not of the form package.module:name"),
        (":build", {}, "':build' is not of the form package.module:name"),
        ("own_netwrk:build", {}, "there is no module 'own_netwrk' to import"),
        ("needs_more:build", {}, "its import fails: .*a_package_that_nobody_has"),
        ("own_network:biuld", {}, r"'own_network' has no 'biuld'; did you mean build\?"),
        ("own_network:SIZE", {}, "'own_network:SIZE' is 3, which cannot be called"),
        ("own_network:build", {"depth": 3}, "called with .shape, num_classes, depth., fails"),
        ("own_network:broken", {}, "fails: out of ideas"),
        ("own_network:nothing", {}, "returned a dict, not a torch.nn.Module"),
        ("own_network:one_more", {}, r"gives \(2, 11\) for 2 inputs, not \(2, 10\)"),
        ("own_network:for_vectors", {}, r"fails on a batch of shape \(2, 1, 8, 8\)"),
    ],
)
def test_mistakes_of_an_own_model_are_named(own_package, factory, options, message):
    with pytest.raises(SettingsError, match=message):
        build_custom(factory, (8, 8, 1), 10, **options)


@pytest.mark.parametrize("name", OF_NUMBERS)
@pytest.mark.parametrize("logits", [False, True])
def test_dropout_comes_after_every_linear_and_convolution_layer(name, logits):
    shape = (28, 28, 1)
    torch.manual_seed(0)
    plain = build(name, shape, 10)
    torch.manual_seed(0)
    model = with_dropout(build(name, shape, 10), 0.4, logits)
    layers = [part for part in plain.modules() if isinstance(part, nn.Linear | nn.Conv2d)]
    dropouts = [part for part in model.modules() if isinstance(part, MonteCarloDropout)]
    assert len(dropouts) == len(layers) - (not logits)
    for one, other in zip(plain.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, other)  # the flat vector is the same
    inputs = batch(shape)
    assert torch.equal(plain.eval()(inputs), model.eval()(inputs))
    if dropouts:
        assert not torch.equal(model.train()(inputs), model.train()(inputs))


def test_dropout_zeroes_its_share_of_a_layers_outputs():
    model = with_dropout(
        nn.Sequential(nn.Linear(1, 10_000), nn.Identity(), nn.Linear(10_000, 1)), 0.3
    )
    outputs = []
    model[1].register_forward_hook(lambda module, args, output: outputs.append(output))
    model.train()(torch.ones(1, 1))
    assert (outputs[0] == 0).float().mean().item() == pytest.approx(0.3, abs=0.03)
    with pytest.raises(SettingsError, match="between 0 and 1, not 1.5"):
        with_dropout(model, 1.5)


def test_a_small_resnet_has_its_stages():
    model = build("resnet", (28, 28, 1), 10, channels=(8, 16, 32), blocks=1)
    assert len([part for part in model.modules() if isinstance(part, nn.Conv2d)]) == 7
    assert model.head.in_features == 32
    with pytest.raises(SettingsError, match="blocks must be"):
        build("resnet", (28, 28, 1), 10, blocks=0)
