"""Settings: the order of layers, and errors for the person who made them."""

from pathlib import Path

import pytest
import yaml

from fedivon_app.core.models import build
from fedivon_app.core.compose import CONF, compose
from fedivon_app.core.settings import Settings
from fedivon_app.core.errors import SettingsError
from fedivon_app.methods import METHODS, settings_of

COLOUR = (32, 32, 3)
SHAPES = {
    "cifar10": COLOUR,
    "cifar100": COLOUR,
    "svhn": COLOUR,
    "image-folder": (64, 64, 3),
    "synthetic": (60,),
}
SHAPES |= {"digits": (8, 8, 1)}


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    files = {
        "strategy/fedavg": {"client": {"learning_rate": 0.001, "epochs": 3}},
        "strategy/fedivon": {
            "client": {"learning_rate": 0.1, "ess": 7},
            "merge": {"rule": "product"},
        },
        "data/tiny": {"source": "digits", "scaling": "signed", "clients": 9},
        "experiment/base": {
            "strategy": "fedivon",
            "dataset": "tiny",
            "rounds": 5,
            "client": {"batch_size": 8},
        },
        "experiment/child": {
            "extends": "base",
            "data": {"clients": 4},
            "client": {"epochs": 2},
            "methods": {
                "fedavg": {"client": {"learning_rate": 0.5}},
                "fedivon": {"client": {"ess": 11}},
            },
        },
        "experiment/loop": {"extends": "loop"},
        "experiment/other": {"extends": "base", "methods": {"fedavgg": {"rounds": 3}}},
        "experiment/misspelt": {"extends": "base", "client": {"batchsize": 8}},
        "experiment/wrong": {"extends": "base", "data": {"clients": "many"}},
        "experiment/nameless": {"rounds": 2},
    }
    for name, values in files.items():
        path = tmp_path / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(values))
    (tmp_path / "experiment/broken.yaml").write_text("rounds: [1, 2")
    return tmp_path


def test_later_layers_win(conf):
    settings = compose(
        settings_of, "child", overrides="client.learning_rate=0.05 seed=3", conf=conf
    )
    assert (settings.strategy, settings.experiment, settings.seed) == ("fedivon", "child", 3)
    assert (settings.rounds, settings.data.scaling, settings.data.clients) == (5, "signed", 4)
    assert (settings.client.ess, settings.client.epochs, settings.client.batch_size) == (11, 2, 8)
    assert settings.client.learning_rate == 0.05


def test_swapping_the_method_swaps_its_settings_alone(conf):
    settings = compose(settings_of, "child", "fedavg", conf=conf)
    assert settings.strategy == "fedavg"
    assert (settings.client.learning_rate, settings.client.epochs, settings.client.batch_size) == (
        0.5,
        2,
        8,
    )
    assert not hasattr(settings.client, "ess")
    assert settings.merge.rule == "nwa"


@pytest.mark.parametrize(
    ("experiment", "strategy", "overrides", "says"),
    [
        ("child", "fedivn", "", "there is no strategy 'fedivn': did you mean fedivon"),
        (
            "chidl",
            None,
            "",
            r"there is no experiment 'chidl' \(conf/experiment/chidl.yaml\): did you mean child",
        ),
        ("child", None, "dataset=tinny", "there is no data set 'tinny'.*did you mean tiny"),
        (
            "misspelt",
            None,
            "",
            "conf/experiment/misspelt.yaml: there is no setting 'client.batchsize': did you mean batch_size",
        ),
        (
            "child",
            None,
            "client.lerning_rate=1",
            "the command line: there is no setting 'client.lerning_rate': did you mean learning_rate",
        ),
        ("wrong", None, "", "conf/experiment/wrong.yaml: data.clients is 'many': .*valid integer"),
        ("child", None, "client.ess=-5", "the command line: client.ess is -5: .*greater than 0"),
        ("child", None, "data.clients=0", "data.clients is 0: .*greater than or equal to 1"),
        ("child", None, "clients_per_round=5", "clients_per_round is 5, but data.clients is 4"),
        ("child", None, "merge.rule=prod", "merge.rule is 'prod': .*'product'"),
        ("child", None, "client.schedule=linear", "final_learning_rate goes with schedule linear"),
        ("child", None, "client=3", "client is 3"),
        ("child", None, "rounds", "'rounds' is not of the form name=value"),
        ("child", None, "client.ess=nan", "client.ess is nan: .*finite"),
        ("child", None, "strategy=7", "strategy must be a name, not 7"),
        ("loop", None, "", "extends itself"),
        (
            "other",
            None,
            "",
            "other.yaml: methods: there is no strategy 'fedavgg': did you mean fedavg",
        ),
        ("broken", None, "", "conf/experiment/broken.yaml is not valid YAML"),
        ("nameless", None, "", "conf/experiment/nameless.yaml names no strategy"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(conf, experiment, strategy, overrides, says):
    if overrides == "client.ess=nan":
        overrides = "client.ess=.nan"
    with pytest.raises(SettingsError, match=says) as caught:
        compose(settings_of, experiment, strategy, overrides, conf)
    assert "\n" not in str(caught.value)


def test_every_complaint_has_a_line_of_its_own(conf):
    with pytest.raises(SettingsError) as caught:
        compose(settings_of, "child", overrides="roundz=1 client.ess=0", conf=conf)
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("experiment", sorted(p.stem for p in (CONF / "experiment").glob("*.yaml")))
@pytest.mark.parametrize("strategy", METHODS)
def test_every_shipped_experiment_composes_with_every_method(experiment, strategy):
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


def test_another_model_has_options_of_its_own(conf):
    options = {"model": {"name": "mlp", "options": {"sizes": [7]}}}
    (conf / "experiment/sized.yaml").write_text(yaml.safe_dump({"extends": "base", **options}))
    (conf / "experiment/lenet.yaml").write_text(
        yaml.safe_dump({"extends": "sized", "model": {"name": "lenet"}})
    )
    assert compose(settings_of, "sized", conf=conf).model.options == {"sizes": [7]}
    assert compose(settings_of, "sized", overrides="model.name=mlp", conf=conf).model.options == {
        "sizes": [7]
    }
    assert (
        compose(settings_of, "sized", overrides="model.name=linear", conf=conf).model.options == {}
    )
    assert compose(settings_of, "lenet", conf=conf).model.options == {}
    assert compose(
        settings_of, "lenet", overrides="model.options.hidden=[9]", conf=conf
    ).model.options == {"hidden": [9]}


@pytest.mark.parametrize(
    ("experiment", "hess_init"),
    [("emnist-fedivon", 5.0), ("svhn-fedivon", 2.0), ("cifar10-fedivon-paper", 1.0)],
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


def test_overrides_with_an_open_quote_are_an_error_that_shows_them():
    with pytest.raises(SettingsError, match="no closing quotation"):
        compose(settings_of, "demo", overrides="data.path='somewhere")
