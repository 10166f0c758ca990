"""What the server sees of one site: uniform words that go with nothing."""

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from fedivon_app.core.secure.fixed_point import Layout, Slot
from fedivon_app.core.secure.masks import add_mask, agreed, key_pair, public_of
from tests.core.secure.federation import Trial

SIZE = 200_000


def _masked_and_true():
    """Masked vectors of three sites whose numbers are anything but uniform."""
    rng = np.random.default_rng(1)
    values = {
        k: {"narrow": rng.normal(0.1, 0.01, SIZE), "wide": rng.normal(0, 1e-3, SIZE)}
        for k in range(3)
    }
    slots = {"narrow": Slot(SIZE, bound=64.0), "wide": Slot(SIZE, bound=2.0**24, bits=64)}
    layout = Layout(slots, clients=3)
    return Trial(values, layout), {k: layout.encode(v) for k, v in values.items()}


def test_a_masked_vector_is_uniform_and_correlates_with_nothing():
    trial, true = _masked_and_true()
    others = list(trial.sent)
    for number, words in trial.sent.items():
        for place, array in enumerate(words.arrays):
            octets = np.bincount(array.view(np.uint8), minlength=256)
            assert stats.chisquare(octets).pvalue > 1e-6
            size = 8.0 * array.dtype.itemsize
            share = array[:SIZE].astype(np.float64) / 2**size
            assert stats.kstest(share, "uniform").pvalue > 1e-6
            mine = true[number].arrays[place][:SIZE]
            for other in (
                mine.view(f"i{array.dtype.itemsize}"),
                [*share[1:].tolist(), 0.5],
                *(trial.sent[n].arrays[place][:SIZE] for n in others if n != number),
            ):
                correlation = np.corrcoef(share, np.asarray(other, np.float64))[0, 1]
                assert abs(correlation) < 6 / np.sqrt(SIZE)
            low_bits = (array[:SIZE] ^ mine) & array.dtype.type(1)
            assert abs(low_bits.mean() - 0.5) < 6 / np.sqrt(4 * SIZE)


def test_two_sums_of_the_same_numbers_look_unlike():
    first, _ = _masked_and_true()
    second, _ = _masked_and_true()
    equal = np.count_nonzero(first.sent[0].narrow == second.sent[0].narrow)
    assert equal < 10  # of 200,000 by chance none: 2^-32 each


def test_all_but_one_colluding_site_do_not_see_the_last_ones_vector_without_its_seed():
    """The pairwise masks of everybody else come off, and what is left is still uniform."""
    trial, true = _masked_and_true()
    left = trial.sent[0].copy()
    for other in (1, 2):
        key = agreed(
            trial.shared[other].mask,
            trial.joint.roster.keys[0].mask,
            trial.shared[other].session.label + b", mask",
        )
        add_mask(left.arrays, key, -1)
    octets = np.bincount(left.narrow.view(np.uint8), minlength=256)
    assert stats.chisquare(octets).pvalue > 1e-6
    add_mask(left.arrays, trial.shared[0].seed, -1)
    assert np.array_equal(left.narrow, true[0].narrow)


def test_a_mask_is_the_stream_of_aes_in_counter_mode_over_both_arrays():
    key = bytes(range(32))
    narrow = np.arange(100_003, dtype=np.uint32)
    wide = np.arange(40_001, dtype=np.uint64)
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    of_narrow = np.frombuffer(stream.update(bytes(narrow.nbytes)), np.uint32)
    of_wide = np.frombuffer(stream.update(bytes(wide.nbytes)), np.uint64)
    one, two = narrow.copy(), wide.copy()
    add_mask((one, two), key, 1)
    assert np.array_equal(one, narrow + of_narrow)
    assert np.array_equal(two, wide + of_wide)
    add_mask((one, two), key, -1)
    assert np.array_equal(one, narrow)
    assert np.array_equal(two, wide)


def test_two_sites_agree_on_one_key_for_each_purpose():
    here, there = key_pair(), key_pair()
    assert agreed(here.private, there.public, b"x") == agreed(there.private, here.public, b"x")
    assert agreed(here.private, there.public, b"x") != agreed(here.private, there.public, b"y")
    assert public_of(here.private) == here.public
