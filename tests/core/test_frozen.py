"""Networks of which a part is learned: what travels, what stays, and what is said if it cannot."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fedivon_app.core.errors import SettingsError
from fedivon_app.core.frozen import frozen_digest
from fedivon_app.core.model_settings import ModelSettings
from fedivon_app.core.models import build
from fedivon_app.core.network import new_network
from fedivon_app.core.posterior import Posterior
from fedivon_app.core.predict import predict_moments

CPU = torch.device("cpu")
SHAPE = (32, 32, 3)


def made(shape=SHAPE, classes=5, **settings):
    return new_network(ModelSettings(**settings), shape, classes, CPU)


@pytest.mark.parametrize("name", ["torchvision/resnet18", "timm/resnet10t"])
def test_of_a_network_by_name_only_the_head_travels(name):
    if name.startswith("timm"):
        pytest.importorskip("timm")
    flat = made(name=name, trainable="head")
    assert len(flat) == 5 * 513  # 512 features and a bias for each class
    assert flat.buffers is None  # frozen batch norm keeps its statistics to itself
    before = {name: b.clone() for name, b in flat.module.named_buffers() if b.is_floating_point()}
    flat.module.train()
    inputs = torch.randn(4, 3, 32, 32)
    flat.module(inputs).logsumexp(1).sum().backward()
    assert float((flat.gradient != 0).float().mean()) > 0.5
    for key, tensor in before.items():
        assert torch.equal(flat.module.get_buffer(key), tensor), key


def test_what_is_frozen_is_the_same_for_all_and_what_is_learned_follows_the_seed():
    torch.manual_seed(1)
    first = made(name="mlp", shape=(6,), trainable="head")
    torch.manual_seed(2)
    second = made(name="mlp", shape=(6,), trainable="head")
    assert frozen_digest(first.module) == frozen_digest(second.module) != ""
    assert not np.array_equal(first.mean(), second.mean())
    assert frozen_digest(made(name="mlp", shape=(6,)).module) == ""


def test_patterns_choose_parameters_and_predictions_use_all_weights():
    torch.manual_seed(0)
    flat = made(name="mlp", shape=(6,), options={"sizes": [8, 4]}, trainable="base.3.*, head.bias")
    assert list(flat.slices) == ["base.3.weight", "base.3.bias", "head.bias"]
    posterior = Posterior(flat.mean(), np.full(len(flat), 1e12))
    inputs = torch.randn(7, 6)
    drawn = predict_moments(flat, posterior, inputs, num_samples=3, seed=0).mean
    expected = flat.module(inputs).softmax(1).detach().numpy()
    np.testing.assert_allclose(drawn, expected, atol=1e-4)


def test_low_rank_parts_begin_as_nothing_and_are_learned():
    flat = made(name="mlp", shape=(6,), options={"sizes": [8, 4]}, trainable="lora", lora_rank=2)
    names = list(flat.slices)
    assert [name for name in names if "head" in name] == ["head.weight", "head.bias"]
    assert sum(name.endswith((".down", ".up")) for name in names) == len(names) - 2 == 4
    inputs = torch.randn(5, 6)
    before = flat.module(inputs)
    up = flat.slices["base.1.up"]
    vector = flat.mean()
    assert (vector[up] == 0).all()
    vector[up] = 1
    flat.load(vector)
    assert not torch.allclose(flat.module(inputs), before)


def test_weights_come_from_a_file_and_another_head_is_learned_anew(tmp_path):
    torch.manual_seed(3)
    own = build("mlp", (6,), 9)
    save_file(own.state_dict(), tmp_path / "w.safetensors")
    torch.save(own.state_dict(), tmp_path / "w.pt")
    for name in ("w.safetensors", "w.pt"):
        path = str(tmp_path / name)
        flat = made(name="mlp", shape=(6,), weights=path, trainable="head")
        inputs = torch.randn(3, 6)
        assert torch.equal(flat.module.base(inputs), own.base(inputs))
        assert len(flat) == 5 * 101
    whole = made(name="mlp", shape=(6,), classes=9, weights=path)
    assert torch.equal(whole.module(inputs), own(inputs))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"trainable": "hed.*"}, "'hed.*', and no parameter is called so"),
        ({"name": "linear", "trainable": "lora"}, "no linear layer besides its head"),
        ({"name": "torchvision/resnet8"}, "torchvision has no 'resnet8': did you mean resnet"),
        ({"name": "torchvison/resnet18"}, "did you mean torchvision"),
        ({"weights": "none.safetensors"}, "there is no file none.safetensors"),
    ],
)
def test_what_cannot_be_is_said(settings, why):
    shape = (6,) if "name" not in settings or settings["name"] == "linear" else SHAPE
    with pytest.raises(SettingsError, match=why):
        made(**({"name": "mlp"} | settings), shape=shape)


def test_a_file_that_does_not_fit_is_named(tmp_path):
    save_file(build("mlp", (7,), 5).state_dict(), tmp_path / "w.safetensors")
    with pytest.raises(SettingsError, match=r"'base.1.weight' of .* has shape \(200, 7\)"):
        made(name="mlp", shape=(6,), weights=str(tmp_path / "w.safetensors"))
    save_file({"other": torch.zeros(1)}, tmp_path / "o.safetensors")
    with pytest.raises(SettingsError, match="has no 'base.1.weight'"):
        made(name="mlp", shape=(6,), weights=str(tmp_path / "o.safetensors"))
    (tmp_path / "x.pt").write_bytes(b"no weights")
    with pytest.raises(
        SettingsError, match="holds no weights as safetensors or torch.save writes them"
    ):
        made(name="mlp", shape=(6,), weights=str(tmp_path / "x.pt"))
