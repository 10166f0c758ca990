"""A site that comes late, with labels that mean something else, in a whole run."""

import numpy as np

from fedivon_app import server_app
from tests.golden import InProcess, context_of

SITES = ("north", "south", "west")
LATE = 2  # west
FROM = 3  # the round in which it is there


class OneComesLate(InProcess):
    """Sites with files of their own, the last of which appears when some rounds are over."""

    def __init__(self, folder):
        super().__init__(len(SITES))
        self.late = list(self.contexts)[LATE]
        self.folder = folder
        for name, context in zip(SITES, self.contexts.values(), strict=True):
            own = {"data-path": str(folder / f"{name}.npz"), "name": name}
            context.node_config.update(own)

    def get_node_ids(self):
        (metrics,) = list(self.folder.glob("runs/*/metrics.jsonl")) or [None]
        rounds = len(metrics.read_text().splitlines()) if metrics else 0
        return [node for node in self.contexts if node != self.late or rounds >= FROM - 1]


def write_site(path, labels):
    """Two clouds of points, with these labels."""
    generator = np.random.default_rng(0)
    truth = generator.integers(0, 2, 80)
    x = generator.normal(0, 1, (80, 4)).astype(np.float32) + 3 * truth[:, None]
    y = np.array(labels)[truth]
    np.savez(path, x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:])


def test_a_site_that_spoils_the_model_is_named_in_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(server_app, "write_report", lambda run: None)
    for name in SITES:
        write_site(tmp_path / f"{name}.npz", labels=[1, 0] if name == SITES[LATE] else [0, 1])
    words = ["data.clients=2", "data.shape=[4]", "data.num_classes=2", "rounds=4"]
    words += ["client.epochs=8", "client.batch_size=8"]
    words += ["evaluation.clients_every=1", "evaluation.samples=2"]
    config = {"experiment": "sites", "strategy": "fedivon", "runs": str(tmp_path / "runs")}
    server_app.main(OneComesLate(tmp_path), context_of(config | {"set": " ".join(words)}))
    (log,) = tmp_path.glob("runs/*/log.txt")
    (told,) = [line for line in log.read_text().splitlines() if "took part" in line]
    assert "round 3: accuracy fell from 100.0 % (round 2) to " in told
    assert "and partition 2 (west) took part for the first time" in told
