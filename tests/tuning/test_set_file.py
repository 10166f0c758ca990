"""`--set-file`: overrides from a file, for all methods or for one."""

import pytest
import yaml

from fedivon_app.cli.main import main
from fedivon_app.cli.parser import parse
from fedivon_app.core.compose import compose
from fedivon_app.core.errors import SettingsError
from fedivon_app.methods import settings_of
from fedivon_app.tuning.set_file import file_text, own_words, plain_words, words_of_file

TEXT = """
rounds: 7
client.epochs: 3
model: {options: {sizes: [8, 8]}}
methods:
  fedavg: {client: {learning_rate: 0.5, final_learning_rate: 1.0e-5}}
  fedivon:
    client.ess: 123
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "best.yaml"
    path.write_text(TEXT)
    return path


def settings(file, strategy, *words):
    options = parse(["run", "demo", "--strategy", strategy, "--set-file", str(file), *words])
    return compose(settings_of, "demo", strategy, options.set)


def test_a_file_gives_values_to_all_and_to_single_methods(file):
    fedavg = settings(file, "fedavg")
    assert (fedavg.rounds, fedavg.client.epochs) == (7, 3)
    assert fedavg.model.options["sizes"] == [8, 8]
    assert fedavg.client.learning_rate == 0.5 and fedavg.client.final_learning_rate == 1e-5
    fedivon = settings(file, "fedivon")
    assert fedivon.client.ess == 123 and fedivon.client.learning_rate == 0.3


def test_the_command_line_wins_wherever_it_stands(file):
    words = ("--set", "client.learning_rate=0.25", "client.epochs=9")
    found = settings(file, "fedavg", *words)
    assert found.client.learning_rate == 0.25 and found.client.epochs == 9 and found.rounds == 7
    options = parse(["run", "demo", *words, "--set-file", str(file)])
    assert compose(settings_of, "demo", "fedavg", options.set).client.learning_rate == 0.25


def test_the_axes_of_a_sweep_win_too(file):
    grid = "client.learning_rate=0.1,0.2"
    options = parse(["sweep", "demo", grid, "--strategy", "fedavg", "--set-file", str(file)])
    words = [*options.set, "client.learning_rate=0.1"]
    assert compose(settings_of, "demo", "fedavg", words).client.learning_rate == 0.1


def test_settings_shows_what_a_file_makes(file, capsys):
    assert main(["settings", "demo", "--set-file", str(file)]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["client"]["ess"] == 123


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("client: {learning_rat: 1}", "no setting 'client.learning_rat': did you mean learning_"),
        ("clint.epochs: 1", "no setting 'clint.epochs'"),
        ("rouns: 1", "no setting 'rouns': did you mean rounds"),
        ("methods: {fedavgg: {}}", "methods: there is no strategy 'fedavgg': did you mean fedavg"),
        ("methods: {fedavg: {client: {ess: 1}}}", "methods.fedavg: there is no setting 'client.es"),
        ("methods: [fedavg]", "methods must hold names of methods"),
        ("- 1", "must hold names and values"),
        ("a: [", "is not valid YAML"),
        ("rounds: {{n}}", "is not valid YAML"),
        (
            "rounds: 3\nseed: 1\nrounds: 4",
            "not valid YAML: 'rounds' is there twice, again in line 3",
        ),
        ("rounds: many", "rounds is 'many': Input should be a valid integer"),
        ("client: {epochs: 0}", "client.epochs is 0"),
        ("methods: {fedivon: {client.ess: -1}}", "client.ess is -1"),
        ("client: 3", "client is a section, and takes values by name, such as client."),
    ],
)
def test_mistakes_are_told_with_the_name_of_the_file(tmp_path, capsys, text, says):
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    assert main(["settings", "demo", "--set-file", str(path)]) == 2
    error = capsys.readouterr().err
    assert f"fedivon: {path}" in error and says in error and len(error.splitlines()) == 1


def test_what_the_command_line_has_wrong_is_not_the_file_s(file, capsys):
    assert main(["settings", "demo", "--set-file", str(file), "--set", "seed=-1"]) == 2
    assert "the command line: seed is -1" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_told(tmp_path, capsys):
    assert main(["settings", "demo", "--set-file", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml cannot be read: No such file" in capsys.readouterr().err


def test_names_are_those_of_the_methods_that_are_asked_for(tmp_path):
    path = tmp_path / "ess.yaml"
    path.write_text("client: {ess: 5}")
    assert words_of_file(path, "demo") == ["client.ess=5"]
    with pytest.raises(SettingsError, match="ess.yaml: there is no setting 'client.ess'"):
        words_of_file(path, "demo", ["fedavg"])


def test_nothing_is_an_empty_file(tmp_path):
    path = tmp_path / "empty.yaml"
    path.write_text("# nothing\n")
    assert words_of_file(path, "demo") == []


def test_words_of_one_method_stand_under_their_plain_names():
    words = ["rounds=3", "methods={fedavg: {client: {epochs: 2}}, local: {rounds: 9}}"]
    words += ["methods.fedavg.client.momentum=0.9", "methods.fedivon.client.ess=5", "seed=1"]
    plain = plain_words(words, "fedavg")
    assert plain == ["rounds=3", "client.epochs=2", "client.momentum=0.9", "seed=1"]
    assert own_words(plain) == {"client.epochs": 2, "client.momentum": 0.9}


def test_what_is_written_is_read_again(tmp_path):
    values = {"fedavg": {"client.learning_rate": 1e-05, "client.optimizer": "sgd"}}
    path = tmp_path / "best.yaml"
    path.write_text(file_text(values, ["a comment"]))
    assert path.read_text().startswith("# a comment\n")
    client = settings(path, "fedavg").client
    assert (client.learning_rate, client.optimizer) == (1e-5, "sgd")
