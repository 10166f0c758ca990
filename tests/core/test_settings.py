"""Settings: the order of layers, and errors for the person who made them."""

from pathlib import Path

import pytest
import yaml

from fedivon_app.core.compose import CONF, compose
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.models import build
from fedivon_app.core.scores import Score
from fedivon_app.core.settings import Settings
from fedivon_app.methods import METHODS, MethodSettings, method, settings_of

COLOUR = (32, 32, 3)
SECOND_NLL = Score("nll", "Another NLL", False, value=lambda tally: 2 * tally.nll)
OWN_METHOD = method("fedavg")
SURE = Score("sure", "Share of the right", True, value=lambda tally: tally.accuracy)
SHAPES = {
    "cifar10": COLOUR,
    "cifar100": COLOUR,
    "svhn": COLOUR,
    "image-folder": (64, 64, 3),
    "synthetic": (60,),
    "digits": (8, 8, 1),
}


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
        "experiment/options": {
            "extends": "base",
            "data": {"source": "synthetic", "options": {"a": 0.5, "b": 0.5}},
        },
        "experiment/former": {"extends": "base", "data": {"source": "synthetic", "a": 0.5}},
        "experiment/empty": {"extends": "base", "data": {"options": None}},
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
            "conf/experiment/misspelt.yaml: there is no setting 'client.batchsize': "
            "did you mean batch_size",
        ),
        (
            "child",
            None,
            "client.lerning_rate=1",
            "the command line: there is no setting 'client.lerning_rate': "
            "did you mean learning_rate",
        ),
        ("wrong", None, "", "conf/experiment/wrong.yaml: data.clients is 'many': .*valid integer"),
        ("child", None, "client.ess=-5", "the command line: client.ess is -5: .*greater than 0"),
        ("child", None, "data.clients=0", "data.clients is 0: .*greater than or equal to 1"),
        ("child", None, "clients_per_round=5", "clients_per_round is 5, but data.clients is 4"),
        (
            "child",
            None,
            "merge.rule=prod",
            "the command line: merge.rule is 'prod': there is no aggregation rule 'prod': "
            "did you mean product",
        ),
        (
            "child",
            None,
            "merge.weighting=sise",
            "the command line: merge.weighting is 'sise': there is no weighting rule 'sise': "
            "did you mean size",
        ),
        (
            "child",
            "fedavg",
            "merge.weighting=distance",
            "merge.weighting is 'distance': points have no precision .*: use equal or size",
        ),
        ("child", "fedavg", "merge.rule=product", "merge.rule is 'product': .*'nwa'"),
        (
            "child",
            "fedavg",
            "client.schedule=linear",
            "final_learning_rate goes with schedule linear",
        ),
        (
            "child",
            None,
            "client.schedule=constant",
            "final_learning_rate goes with schedule linear",
        ),
        (
            "child",
            None,
            "merge.rule=nowhere.rules:Rule",
            "the command line: merge.rule is 'nowhere.rules:Rule': .*no module 'nowhere' to import",
        ),
        (
            "child",
            None,
            "merge.rule=fedivon_app.strategies.aggregation:Produkt",
            "the command line: merge.rule is .* has no 'Produkt'; did you mean Product",
        ),
        (
            "child",
            None,
            "merge.rule=fedivon_app.core.text:one_line",
            "the command line: merge.rule is .* a subclass of Rule is needed",
        ),
        (
            "child",
            None,
            "merge.weighting=nowhere:weigh",
            "the command line: merge.weighting is 'nowhere:weigh': .*no module 'nowhere' to import",
        ),
        (
            "child",
            "fedavg",
            "merge.weighting=nowhere:weigh",
            "the command line: merge.weighting is 'nowhere:weigh': .*no module 'nowhere' to import",
        ),
        (
            "child",
            None,
            "merge.weighting=fedivon_app.strategies.weighting:SMALLEST_KL",
            "the command line: merge.weighting is .* is 1e-09, which cannot be called",
        ),
        (
            "child",
            "nowhere.methods:METHOD",
            "",
            "strategy 'nowhere.methods:METHOD': there is no module 'nowhere' to import",
        ),
        (
            "child",
            None,
            "strategy=fedivon_app.methods:METHOD",
            "strategy 'fedivon_app.methods:METHOD': .*no 'METHOD'; did you mean METHODS",
        ),
        (
            "child",
            None,
            "strategy=fedivon_app.core.text:one_line",
            "strategy 'fedivon_app.core.text:one_line' is .* Method is needed",
        ),
        (
            "child",
            None,
            "evaluation.select_by=nlll",
            "the command line: evaluation.select_by is 'nlll': there is no such score: "
            "did you mean nll",
        ),
        (
            "child",
            None,
            "evaluation.scores=[margin]",
            "evaluation.scores is .'margin'.: there is no score 'margin': choose from accuracy",
        ),
        (
            "child",
            None,
            "evaluation.scores=[nowhere.scores:MARGIN]",
            "evaluation.scores is .*: score 'nowhere.scores:MARGIN': there is no module 'nowhere'",
        ),
        (
            "child",
            None,
            "evaluation.scores=[fedivon_app.core.text:one_line]",
            "evaluation.scores is .* Score is needed",
        ),
        (  # a complaint about scores is not repeated for what is chosen among them
            "child",
            None,
            "evaluation.scores=[nowhere:MARGIN] evaluation.select_by=margin",
            "evaluation.scores is .* there is no module 'nowhere'",
        ),
        (
            "child",
            None,
            "evaluation.scores=[tests.core.test_settings:SECOND_NLL]",
            "evaluation.scores is .* there is another score of the name 'nll'",
        ),
        ("child", None, "data.options=3", "the command line: data.options is 3: .*dictionary"),
        ("child", None, "data.image_sise=8", "there is no setting 'data.image_sise'"),
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


def test_another_model_has_options_of_its_own(conf):
    options = {"model": {"name": "mlp", "options": {"sizes": [7]}}}
    (conf / "experiment/sized.yaml").write_text(yaml.safe_dump({"extends": "base", **options}))
    (conf / "experiment/lenet.yaml").write_text(
        yaml.safe_dump({"extends": "sized", "model": {"name": "lenet"}})
    )

    def options_of(experiment, overrides=""):
        return compose(settings_of, experiment, overrides=overrides, conf=conf).model.options

    assert options_of("sized") == {"sizes": [7]}
    assert options_of("sized", "model.name=mlp") == {"sizes": [7]}
    assert options_of("sized", "model.name=linear") == {}
    assert options_of("lenet") == {}
    assert options_of("lenet", "model.options.hidden=[9]") == {"hidden": [9]}


@pytest.mark.parametrize(
    ("experiment", "overrides", "options"),
    [
        ("options", "", {"a": 0.5, "b": 0.5}),
        ("former", "", {"a": 0.5}),
        ("options", "data.a=0.9", {"a": 0.9, "b": 0.5}),
        ("options", "data.options.a=0.9", {"a": 0.9, "b": 0.5}),
        ("former", "data.a=0.9", {"a": 0.9}),
        ("former", "data.options.a=0.9", {"a": 0.9}),
        ("options", "data.a=1.0", {"a": 1.0, "b": 0.5}),  # the former default is a value, too
        ("options", "data.options.a=0.7 data.a=0.9", {"a": 0.9, "b": 0.5}),
        ("options", "data.a=0.9 data.options.a=0.7", {"a": 0.7, "b": 0.5}),
        ("former", "data.b=0 data.image_size=null", {"a": 0.5, "b": 0}),
        ("empty", "data.a=0.9", {"a": 0.9}),
        ("options", "data.source=synthetic", {"a": 0.5, "b": 0.5}),
        ("options", "data.source=digits", {}),
        ("former", "data.source=digits", {}),
        ("options", "data.source=image-folder data.image_size=64", {"image_size": 64}),
        ("options", "data.image_size=64 data.source=image-folder", {"image_size": 64}),
        ("options", "data.source=image-folder data.options.image_size=64", {"image_size": 64}),
    ],
)
def test_options_of_a_source_have_two_names_and_go_with_it(conf, experiment, overrides, options):
    """`data.a` is what `data.options.a` was called; another source has options of its own."""
    settings = compose(settings_of, experiment, overrides=overrides, conf=conf)
    assert settings.data.options == options


@pytest.mark.parametrize(
    ("former", "options"),
    [
        ({"a": 1.0, "b": 1.0, "image_size": None}, {}),
        ({"a": 0.5, "b": 1.0, "image_size": None}, {"a": 0.5}),
        ({"a": 1.0, "b": 1.0, "image_size": 64}, {"image_size": 64}),
        ({"a": 0.5, "options": {"a": 0.9}}, {"a": 0.9}),
        ({"options": {"a": 1.0}}, {"a": 1.0}),
    ],
)
def test_the_settings_of_an_older_run_can_be_read(former, options, tmp_path):
    """What had its default in them, as every source had it, is no option of this one."""
    values = compose(settings_of, "demo").model_dump(mode="json")
    del values["data"]["options"]
    path = tmp_path / "settings.yaml"
    path.write_text(yaml.safe_dump(values | {"data": values["data"] | former}))
    settings = settings_of("fedivon").model_validate(yaml.safe_load(path.read_text()))
    assert settings.data.options == options
    assert not {"a", "b", "image_size"} & set(settings.model_dump()["data"])


def test_a_score_of_ones_own_may_choose_the_checkpoint(conf):
    words = ["evaluation.scores=[tests.core.test_settings:SURE]", "evaluation.select_by=sure"]
    evaluation = compose(settings_of, "child", overrides=words, conf=conf).evaluation
    assert evaluation.select_by == "sure"
    with pytest.raises(SettingsError, match="evaluation.select_by is 'sure': there is no such"):
        compose(settings_of, "child", overrides=words[1:], conf=conf)


@pytest.mark.parametrize("name", METHODS)
def test_a_methods_settings_are_one_class_with_its_own_two_sections(name):
    kind = settings_of(name)
    assert kind is settings_of(name)
    assert issubclass(kind, MethodSettings)
    assert kind.model_fields["client"].annotation is method(name).client.settings_type
    assert kind.model_fields["merge"].annotation is method(name).strategy.settings_type


def test_a_method_of_ones_own_has_its_settings_by_its_import_path():
    kind = settings_of("tests.core.test_settings:OWN_METHOD")
    assert kind is settings_of("tests.core.test_settings:OWN_METHOD")
    assert issubclass(kind, MethodSettings)
    assert kind.model_fields["client"].annotation is method("fedavg").client.settings_type
    settings = compose(settings_of, "demo", "tests.core.test_settings:OWN_METHOD")
    assert isinstance(settings, kind)


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


def test_overrides_with_an_open_quote_are_an_error_that_shows_them():
    with pytest.raises(SettingsError, match="no closing quotation"):
        compose(settings_of, "demo", overrides="data.path='somewhere")
