"""Fused noise: the compiled loops give what torch's operations give on the same random numbers."""

import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from math import inf

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri

from fedivon_app.core import compiled, ivon, normals
from fedivon_app.core.compiled import Loop
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.fused_normals import FusedNormals, _normal
from fedivon_app.core.fused_step import FusedPasses
from fedivon_app.core.ivon import IVON
from fedivon_app.core.ivon_passes import passes
from fedivon_app.core.ivon_step import Numbers, TorchPasses, Vectors
from fedivon_app.core.posterior import Posterior
from tests.core.ivon_problem import small_network, train

SIZE = sum(p.numel() for p in small_network().parameters())
RNG = np.random.default_rng(0)
PRIOR = {"prior": Posterior(0.1 * RNG.standard_normal(SIZE), 50 + 50 * RNG.random(SIZE))}
DUAL = {"dual": (0.01 * RNG.standard_normal(SIZE), 0.01 * RNG.random(SIZE))}
VARIANTS = {
    "weight decay": {},
    "prior": PRIOR,
    "prior and duals": PRIOR | DUAL,
    "duals alone": DUAL,
    "bounds": {"step_bound": 0.5, "clip_radius": 0.01},
    "bounds, prior and duals": PRIOR | DUAL | {"step_bound": 0.5, "clip_radius": 0.01},
    "neither rescaled nor corrected": {"rescale_lr": False, "debias": False},
    "prior, not rescaled": PRIOR | {"rescale_lr": False},
    "mirrored": {"antithetic": True},
    "three samples": {"mc_samples": 3},
    "two mirrored samples under a prior": PRIOR | {"mc_samples": 2, "antithetic": True},
    "groups": {"split_groups": True},
    "known noise": {"gradient_noise": 0.1},
    "known noise, prior and duals": PRIOR | DUAL | {"gradient_noise": 0.1},
    "no momentum, no decay": {"beta1": 0.0, "weight_decay": 0.0},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_training_gives_what_torch_gives_on_the_same_draws(variant, monkeypatch):
    def trained(kind):
        monkeypatch.setattr(ivon, "passes", lambda noise, device: kind)
        return train(IVON, 20, **VARIANTS[variant])[1].posterior()

    fused = trained(FusedPasses(5))
    torchs = trained(TorchPasses(FusedNormals(5).fill))
    np.testing.assert_allclose(fused.mean, torchs.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(fused.precision, torchs.precision, rtol=1e-5)


def vectors(size: int, seed: int, prior: bool, dual: bool, multiplied: bool) -> Vectors:
    generator = torch.Generator().manual_seed(seed)

    def normal() -> torch.Tensor:
        return torch.randn(size, generator=generator)

    scaled = torch.exp(3 * normal())
    decay = torch.rand(size, generator=generator) if prior else 0.3
    u = 0.1 * normal() if dual else None
    return Vectors(
        mean=normal(),
        momentum=normal(),
        scaled=scaled,
        root=scaled.rsqrt(),
        gradient=torch.exp(2 * normal()) * normal(),
        noise=normal(),
        free=torch.empty(size),
        sign=1 if multiplied else -1,
        multiplied=multiplied,
        decay=decay,
        pull=decay if u is None else decay - u,
        prior_mean=normal() if prior else None,
        v=normal() if dual else None,
        u=u,
    )


@settings(max_examples=80, deadline=None)
@given(
    size=st.integers(0, 70),
    seed=st.integers(0, 2**32),
    prior=st.booleans(),
    dual=st.booleans(),
    multiplied=st.booleans(),
    rescaled=st.booleans(),
    beta1=st.sampled_from([0.0, 0.3, 0.9]),
    beta2=st.sampled_from([0.0, 0.9, 0.99999, 1.0]),
    ess=st.floats(1e-2, 1e6),
    clip_radius=st.sampled_from([inf, 0.1]),
    step_bound=st.sampled_from([inf, 0.5]),
    gradient_noise=st.sampled_from([0.0, 0.01]),
)
def test_a_step_gives_what_torch_gives(size, seed, prior, dual, multiplied, **numbers):
    ours, theirs = (vectors(size, seed, prior, dual, multiplied) for _ in range(2))
    by = Numbers(learning_rate=0.1, hess_init=0.5, correction=0.19, **numbers)
    FusedPasses(0).move(ours, by)
    TorchPasses(torch.Tensor.normal_).move(theirs, by)
    torch.testing.assert_close(ours.momentum, theirs.momentum, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ours.scaled, theirs.scaled, rtol=2e-4, atol=0)
    torch.testing.assert_close(ours.mean, theirs.mean, rtol=2e-4, atol=1e-5)
    assert bool((ours.scaled > 0).all())


def test_what_is_no_number_stays_none():
    """A gradient that is not a number must not look like a bounded step."""
    at = vectors(20, seed=0, prior=False, dual=False, multiplied=False)
    gradient = at.gradient.clone()
    gradient[3] = torch.nan
    by = Numbers(
        ess=100.0,
        beta1=0.9,
        beta2=0.99,
        learning_rate=0.1,
        hess_init=1.0,
        rescaled=True,
        correction=1.0,
        clip_radius=0.1,
        step_bound=0.5,
        gradient_noise=0.0,
    )
    FusedPasses(0).move(replace(at, gradient=gradient), by)
    for vector in (at.mean, at.scaled, at.momentum):
        assert torch.isnan(vector).nonzero().flatten().tolist() == [3]


def splitmix64(seed: int, count: int) -> list[int]:
    """The first numbers of Steele, Lea and Flood's generator (2014), in Python's own integers."""
    found = []
    for k in range(1, count + 1):
        z = (seed + k * 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        found.append(z ^ (z >> 31))
    return found


def test_the_generators_seeds_are_those_that_others_give():
    # As Java's SplittableRandom and the reference in C have them, of the seed 1234567.
    assert splitmix64(1234567, 3) == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def bits_of(seed: int, count: int) -> np.ndarray:
    """The bits of 512 generators sfc32, which take turns, written down once more."""
    words = np.array(splitmix64(seed, 768), "<u8")
    a, b, c = words.view("<u4").reshape(3, 512)
    found = []
    for turn in range(1, -(-count // 512) + 1):
        found.append(a + b + np.uint32(turn))
        a, b, c = b ^ (b >> 9), c + (c << 3), ((c << 21) | (c >> 11)) + found[-1]
    return np.concatenate(found)[:count]


def test_numbers_are_the_quantiles_of_the_generators_bits():
    bits = bits_of(seed=7, count=100_000)
    tail = ((bits >> 1) + 0.5) / 2.0**32
    expected = np.where(bits & 1, ndtri(tail), -ndtri(tail))
    out = torch.empty(len(bits))
    FusedNormals(7).fill(out)
    np.testing.assert_allclose(out.numpy(), expected, atol=1e-5)
    assert np.abs(expected).max() > 4


@pytest.mark.parametrize("bits", [0, 1, 2, 3, 2**32 - 2, 2**32 - 1, 2**31, 2**20, 12345])
def test_the_rarest_numbers_are_right_too(bits):
    expected = -ndtri(((bits >> 1) + 0.5) / 2.0**32) * (-1) ** (bits & 1)
    assert float(_normal(np.uint32(bits))) == pytest.approx(expected, abs=1e-5)


def test_tails_and_moments_are_those_of_a_normal():
    out = torch.empty(4_000_000)
    FusedNormals(3).fill(out)
    draws = out.double()
    for bound, share in ((1.0, 0.3173105), (2.0, 0.0455003), (3.0, 0.0026998), (4.0, 6.3342e-5)):
        found = int((draws.abs() > bound).sum())
        assert abs(found - share * len(out)) < 4 * (share * len(out)) ** 0.5
    for power, moment, squared in ((1, 0, 1), (2, 1, 3), (3, 0, 15), (4, 3, 105)):
        spread = ((squared - moment**2) / len(out)) ** 0.5
        assert abs(float(draws.pow(power).mean()) - moment) < 4 * spread


def test_on_another_device_and_with_other_noise_it_is_torch_that_works():
    assert isinstance(passes("fused", torch.device("cpu")), FusedPasses)
    assert isinstance(passes("fused", torch.device("meta")), TorchPasses)
    assert isinstance(passes("torch", torch.device("cpu")), TorchPasses)


def test_without_numba_the_error_names_the_extra(monkeypatch):
    monkeypatch.setattr(normals, "find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"numba.*pip install 'fedivon\[fast\]'"):
        IVON([torch.nn.Parameter(torch.zeros(2))], lr=0.1, ess=10, noise="fused")
    IVON([torch.nn.Parameter(torch.zeros(2))], lr=0.1, ess=10, noise="faster")


def test_ivon_does_without_numba_unless_it_is_asked_for():
    words = "import sys; sys.modules['numba'] = None; import fedivon_app.core.ivon"
    subprocess.run([sys.executable, "-c", words], check=True, timeout=120)


def test_a_function_that_cannot_be_kept_is_compiled_all_the_same():
    names = {"np": np}
    exec("def double(x):\n    x *= 2", names)  # of no file, beside which it could be kept
    numbers = np.ones(3)
    Loop(names["double"])(numbers)
    assert numbers.tolist() == [2, 2, 2]


def test_a_folder_that_cannot_be_written_to_any_more_ends_nothing(tmp_path, monkeypatch):
    (tmp_path / "doubling.py").write_text("def double(x):\n    x *= 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(compiled.numba.config, "CACHE_DIR", str(tmp_path / "kept"))
    loop = Loop(import_module("doubling").double)
    (folder,) = (tmp_path / "kept").iterdir()
    folder.rmdir()
    folder.write_text("a file in the folder's place")
    numbers = np.ones(3)
    loop(numbers)
    assert numbers.tolist() == [2, 2, 2]
