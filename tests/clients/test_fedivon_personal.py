"""FedIvon's personalised client: between its own data and the server's posterior."""

import numpy as np
import pytest
from flwr.app import RecordDict

from fedivon_app.core.codec import Payload
from fedivon_app.core.compose import compose
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.ivon import IVON
from fedivon_app.core.posterior import Posterior
from fedivon_app.methods import settings_of
from fedivon_app.server.setup import prepare
from tests.clients.helpers import instructions, new_client

NAME = "fedivon-personal"


def train(folder, state, server, number=1, **client) -> Posterior:
    """The client's posterior after a round that began at the server's."""
    words = [f"client.{key}={value}" for key, value in client.items()]
    settings = compose(settings_of, "demo", NAME, ["client.epochs=4", *words])
    one = new_client(settings, state, folder)
    told = instructions(one, number, learning_rate=0.3)
    return one.work(Payload(server), told).payload.posterior


def server(shift: float = 0.0, precision: float = 5000.0) -> Posterior:
    mean = prepare(compose(settings_of, "demo", NAME)).flat.mean()
    return Posterior(mean + np.float32(shift), np.full_like(mean, precision))


def moved(own: Posterior, start: Posterior) -> float:
    return float(np.linalg.norm(own.mean - start.mean))


def test_more_beta_holds_the_client_nearer_to_the_server(tmp_path):
    start = server()
    distances = [
        moved(train(tmp_path / str(beta), RecordDict(), start, beta=beta), start)
        for beta in (0.1, 1.0, 10.0, 1e4)
    ]
    assert distances == sorted(distances, reverse=True) and distances[-1] < 0.02 * distances[1]


def test_with_beta_zero_the_server_has_no_say_after_the_first_round(tmp_path):
    def second_round(shift: float) -> Posterior:
        state = RecordDict()
        folder = tmp_path / str(shift)
        train(folder, state, server(), 1, beta=0)
        return train(folder, state, server(shift), 2, beta=0)

    one = second_round(0.0)
    other = second_round(0.5)
    np.testing.assert_array_equal(one.mean, other.mean)
    np.testing.assert_array_equal(one.precision, other.precision)


def test_the_whole_precision_as_a_prior_adds_up_and_a_share_of_it_does_not(tmp_path):
    """A weight without data (a pixel that is always black) keeps what the prior says."""
    precisions = {}
    for share in (0.0, 0.5, 1.0):
        posterior = server()
        for number in (1, 2, 3):
            folder = tmp_path / f"{share}-{number}"
            posterior = train(folder, RecordDict(), posterior, prior_share=share, beta2=0.9)
        precisions[share] = float(np.median(posterior.precision))
    assert precisions[1.0] >= 5000 * 0.99
    assert precisions[0.0] < precisions[0.5] < precisions[1.0]


@pytest.mark.parametrize("word", ["client.beta=-1", "client.prior_share=2", "client.start=mean"])
def test_settings_that_make_no_sense_are_refused(word):
    with pytest.raises(SettingsError, match=word.split("=")[0]):
        compose(settings_of, "demo", NAME, [word])


@pytest.mark.parametrize(("over", "last"), [("rounds", 1.0), ("steps", 0.1)])
def test_the_rate_falls_over_the_rounds_or_over_the_steps_of_each(
    tmp_path, monkeypatch, over, last
):
    rates = []
    step = IVON.step
    monkeypatch.setattr(
        IVON, "step", lambda self: (rates.append(self.param_groups[0]["lr"]), step(self))
    )
    train(
        tmp_path,
        RecordDict(),
        server(),
        learning_rate=0.3,
        final_learning_rate=0.03,
        schedule_over=over,
    )
    assert len(rates) > 4
    np.testing.assert_allclose(
        np.array(rates) / rates[0], np.linspace(1, last, len(rates)), rtol=1e-6
    )
