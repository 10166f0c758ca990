"""The shipped experiments: each composes with every method, and has its paper's values."""

import pytest
import yaml

from fedivon_app.core.compose import CONF, compose
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.models import build
from fedivon_app.core.settings import Settings
from fedivon_app.methods import METHODS, settings_of

COLOUR = (32, 32, 3)
SHAPES = {
    "cifar10": COLOUR,
    "cifar100": COLOUR,
    "svhn": COLOUR,
    "image-folder": (64, 64, 3),
    "synthetic": (60,),
    "digits": (8, 8, 1),
}


@pytest.mark.parametrize("experiment", sorted(p.stem for p in (CONF / "experiment").glob("*.yaml")))
@pytest.mark.parametrize("strategy", METHODS)
def test_every_shipped_experiment_composes_with_every_method(experiment, strategy):
    if compose(settings_of, experiment).privacy.is_private and not METHODS[strategy].private:
        with pytest.raises(SettingsError, match="differential privacy is for"):
            compose(settings_of, experiment, strategy)
        return
    settings = compose(settings_of, experiment, strategy)
    assert isinstance(settings, Settings)
    again = type(settings).model_validate(
        yaml.safe_load(yaml.safe_dump(settings.model_dump(mode="json")))
    )
    assert again == settings


@pytest.mark.parametrize("experiment", sorted(p.stem for p in (CONF / "experiment").glob("*.yaml")))
def test_every_shipped_experiment_has_a_model_that_can_be_built(experiment):
    settings = compose(settings_of, experiment)
    shape = SHAPES.get(settings.data.source, (28, 28, 1))
    assert build(settings.model.name, shape, 10, **settings.model.options) is not None


def test_fedivons_classes_have_the_values_of_its_table_6_without_any_file():
    """Those who use the classes without conf/strategy/fedivon.yaml get what it says."""
    bare = settings_of("fedivon").model_validate({"experiment": "own", "strategy": "fedivon"})
    client = bare.client
    assert (client.learning_rate, client.final_learning_rate) == (0.1, 0.01)
    assert (client.schedule, client.antithetic, client.start) == ("linear", True, "posterior")
    assert (bare.merge.rule, bare.merge.weighting) == ("product", "size")
    shipped = yaml.safe_load((CONF / "strategy/fedivon.yaml").read_text())
    for section, values in shipped.items():
        assert bare.model_dump()[section] | values == bare.model_dump()[section]


@pytest.mark.parametrize(
    ("experiment", "hess_init"),
    [("emnist-fedivon-paper", 5.0), ("svhn-fedivon-paper", 2.0), ("cifar10-fedivon-paper", 1.0)],
)
def test_the_papers_experiments_have_the_values_of_its_table_6_and_independent_samples(
    experiment, hess_init
):
    settings = compose(settings_of, experiment, "fedivon")
    client = settings.client
    assert (client.learning_rate, client.final_learning_rate, client.schedule) == (
        0.1,
        0.01,
        "linear",
    )
    assert (client.weight_decay, client.ess, client.hess_init, client.mc_samples) == (
        2e-4,
        5000,
        hess_init,
        1,
    )
    assert (
        client.batch_size,
        client.epochs,
        settings.rounds,
        settings.evaluation.final_samples,
    ) == (32, 2, 2000, 500)
    assert not client.antithetic


@pytest.mark.parametrize("strategy", ["fedavg", "fedlaplace"])
@pytest.mark.parametrize(
    "experiment", ["emnist-fedivon-paper", "svhn-fedivon-paper", "cifar10-fedivon-paper"]
)
def test_the_papers_baselines_have_its_adam_with_weight_decay_and_a_falling_rate(
    experiment, strategy
):
    """FedIvon's paper, section 7: Adam 1e-3 and weight decay 2e-4 for both, a linear decay."""
    client = compose(settings_of, experiment, strategy).client
    assert (client.optimizer, client.learning_rate, client.weight_decay) == ("adam", 1e-3, 2e-4)
    assert client.schedule == "linear" and client.final_learning_rate == 1e-4
    assert (client.epochs, client.batch_size) == (2, 32)


@pytest.mark.parametrize("experiment", ["fmnist-heterogeneous-10", "cifar10-acar"])
def test_what_fedivons_paper_says_of_its_baselines_stays_out_of_the_other_papers(experiment):
    client = compose(settings_of, experiment, "fedlaplace").client
    assert (client.schedule, client.final_learning_rate) == ("constant", None)
    assert client.weight_decay == 0


def extending(name):
    """Return this experiment and those that extend it, by one step or several."""
    files = {path.stem: yaml.safe_load(path.read_text()) for path in CONF.glob("experiment/*.yaml")}
    found = [name]
    for one in found:
        found += [other for other, values in files.items() if values.get("extends") == one]
    return sorted(found)


@pytest.mark.parametrize("experiment", extending("personal"))
def test_fedprox_differs_from_fedavg_by_its_pull_alone_where_models_are_personal(experiment):
    plain = compose(settings_of, experiment, "fedavg").model_dump()
    pulled = compose(settings_of, experiment, "fedprox").model_dump()
    assert pulled["client"].pop("proximal") > plain["client"].pop("proximal") == 0
    assert (plain.pop("strategy"), pulled.pop("strategy")) == ("fedavg", "fedprox")
    assert plain == pulled
