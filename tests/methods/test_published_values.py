"""Values that follow from others in a paper do so in the shipped experiments."""

import pytest

from fedivon_app.core.compose import compose
from fedivon_app.methods import settings_of

EXPERIMENTS = [
    "fmnist-heterogeneous-10",
    "fmnist-homogeneous-10",
    "fmnist-heterogeneous-100",
    "mnist-two-class-100",
    "cifar10-acar",
    "cifar10-zenke",
    "cifar100-resnet20",
]


@pytest.mark.parametrize("strategy", ["fedlap", "fedlap-cov"])
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_fedlaps_damping_is_one_over_the_number_of_clients(experiment, strategy):
    """An experiment that extends another one takes over its values, made for other clients."""
    settings = compose(settings_of, experiment, strategy)
    damping = settings.merge.dual_step / settings.merge.rho
    assert damping == pytest.approx(1 / settings.data.clients)
