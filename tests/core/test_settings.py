"""Settings: the order of layers, and errors for the person who made them."""

from pathlib import Path

import pytest
import yaml

from fedivon_app.core.compose import compose
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.scores import Score
from fedivon_app.methods import METHODS, MethodSettings, method, settings_of

SECOND_NLL = Score("nll", "Another NLL", False, value=lambda tally: 2 * tally.nll)
OWN_METHOD = method("fedavg")
SURE = Score("sure", "Share of the right", True, value=lambda tally: tally.accuracy)


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
    (tmp_path / "experiment/twice.yaml").write_text("rounds: 1\nseed: 2\nrounds: 3")
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
        ("child", None, "client=3", "the command line: client is a section, and takes values by"),
        ("twice", None, "", "twice.yaml is not valid YAML: 'rounds' is there twice, again in line"),
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
        ("child", None, "client=3", "client is a section"),
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


def test_overrides_with_an_open_quote_are_an_error_that_shows_them():
    with pytest.raises(SettingsError, match="no closing quotation"):
        compose(settings_of, "demo", overrides="data.path='somewhere")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("", "merge.robust is held-out, but data.holdout is 0, .* say how many"),
        ("data.source=nodes", "merge.robust is held-out, but data.holdout is 0"),
        (
            "data.source=nodes data.holdout=9",
            "merge.robust is held-out, but data.source is nodes .* name one with data.path",
        ),
    ],
)
def test_replies_cannot_be_tried_on_examples_that_the_server_has_not(words, says):
    with pytest.raises(SettingsError, match=says):
        compose(settings_of, "demo", None, f"merge.robust=held-out {words}")
    for right in ("data.holdout=9", "data.source=nodes data.holdout=9 data.path=own.npz"):
        compose(settings_of, "demo", None, f"merge.robust=held-out {right}")


def test_words_that_yaml_takes_for_truth_values_need_quotes():
    with pytest.raises(SettingsError, match=r"write \"data.classes=\['yes', 'no'\]\"") as caught:
        compose(settings_of, "table", overrides=["data.classes=[yes, no]"])
    assert "data.classes is True" in str(caught.value)
    said = compose(settings_of, "table", overrides=["data.classes=['yes', 'no']"])
    assert said.data.classes == ("yes", "no")
