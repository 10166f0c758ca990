"""What secure aggregation costs: masking a vector, taking masks off, and a whole round.

    python -m tests.bench_secure

Masking is timed for 1,000,000 weights of a posterior (8 bytes each) among 10 and 100 sites, in CPU
seconds of one core; the server's part with all sites there, and with a tenth of them lost after
the shares. A round is one of the inline engine, in the open and by secure sums, taking turns.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from fedivon_app.core.secure.fixed_point import Layout, Slot
from fedivon_app.core.secure.joining import Joint
from fedivon_app.core.secure.masks import add_mask, key_pair
from fedivon_app.core.secure.messages import Roster, Session
from fedivon_app.core.secure.site import Conditions, advertise, mask, share, unmask
from fedivon_app.federation.inline_federation import InlineFederation
from fedivon_app.runs.folder import Run
from tests.e2e.helpers import configuration, launch

WEIGHTS = 1_000_000
SESSION = Session(run="bench", round=1, what="train")
CONDITIONS = Conditions()
ROUNDS = 20


def seconds(work: Callable[[], object]) -> tuple[float, object]:
    """Return the CPU seconds that a piece of work takes, and what it returns."""
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def protocol(clients: int, lost: int) -> dict[str, float]:
    """Return the CPU seconds of each step of one site, and of the server's."""
    rng = np.random.default_rng(0)
    slots = {"first": Slot(WEIGHTS, 256.0), "second": Slot(WEIGHTS, 64.0)}
    layout = Layout(slots, clients)
    own = [advertise(SESSION, number, CONDITIONS) for number in range(clients)]
    roster = Roster(keys={number: one.public for number, one in enumerate(own)})
    joint = Joint(SESSION, roster)
    of_shares, first = seconds(lambda: share(own[0], roster, CONDITIONS))
    after = {0: first}
    after |= {number: share(own[number], roster, CONDITIONS) for number in range(1, clients)}
    passed_on = joint.boxes_for({number: boxes for number, (_, boxes) in after.items()})
    values = {name: rng.normal(0, 0.1, WEIGHTS) for name in slots}
    encoded = [seconds(lambda: layout.encode(values)) for _ in range(5)]
    of_encoding = median(taken for taken, _ in encoded)
    words = encoded[0][1]
    there = range(lost, clients)
    total = layout.zeros()
    told = {}
    of_masking = []
    for number in there:
        taken, (state, masked) = seconds(
            lambda number=number: mask(after[number][0], passed_on[number], words, CONDITIONS)
        )
        of_masking.append(taken)
        total.add(masked)
        told[number] = unmask(state, there, CONDITIONS)
    of_server, unmasked = seconds(lambda: joint.unmasked(total, range(clients), there, told))
    summed = joint.read(unmasked, layout, there)
    assert np.allclose(summed.values["first"], len(there) * values["first"], atol=1e-3)
    return {
        "shares": of_shares,
        "encode": of_encoding,
        "mask": median(of_masking),
        "server": of_server,
    }


def stream(clients: int) -> float:
    """Return the CPU seconds of the masks alone, the best of five."""
    arrays = (np.zeros(2 * WEIGHTS, np.uint32),)
    key = key_pair().private

    def work() -> None:
        for _ in range(clients):
            add_mask(arrays, key, 1)

    return min(seconds(work)[0] for _ in range(5))


def rounds(folder: Path) -> dict[str, list[float]]:
    """Return the seconds of rounds in the open and by secure sums, whose runs take turns."""
    found: dict[str, list[float]] = {"open": [], "secure": []}
    for turn in range(2):
        for name in found:
            words = ["data.clients=10", f"rounds={ROUNDS}", "evaluation.every=0", f"seed={turn}"]
            words += ["evaluation.clients_every=0", "run.checkpoint_every=1000"]
            words += [f"privacy.secure_aggregation={str(name == 'secure').lower()}"]
            with InlineFederation() as inline:
                runs = folder / f"{name}-{turn}"
                config = configuration(runs, "demo", "fedivon", *words)
                done = launch(inline, config, nodes=10, at_once=os.cpu_count() or 1).completed()
            records = list(Run.open(done.folder).metrics())[2:]
            found[name] += [record["seconds"]["train"] for record in records]
    return found


def main() -> None:
    """Print what was measured."""
    for clients in (10, 100):
        print(f"{clients} sites, {WEIGHTS:,} weights: masks alone {stream(clients):.3f} s")
        for lost in (0, clients // 10):
            times = protocol(clients, lost)
            told = ", ".join(f"{name} {taken:.3f} s" for name, taken in times.items())
            print(f"  {lost} lost: {told}")
    with tempfile.TemporaryDirectory() as folder:
        for name, taken in rounds(Path(folder)).items():
            print(f"a round of 10 clients, {name}: {median(taken):.3f} s (median)")


if __name__ == "__main__":
    main()
