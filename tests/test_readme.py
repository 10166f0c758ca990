"""What the README names exists, and what exists is named."""

import re
from pathlib import Path

import pytest
from flwr.app import Message, RecordDict

from fedivon_app.cli.main import _parser
from fedivon_app.core.compose import CONF, compose
from fedivon_app.datasets.loading import partition_of
from fedivon_app.methods import METHODS, method, settings_of
from fedivon_app.server.setup import prepare
from fedivon_app.strategies.replies import num_bytes, to_numpy, to_record

README = (Path(__file__).resolve().parents[1] / "README.md").read_text()

TABLE = re.findall(r"^\| `([a-z-]+)` \| .* \| .* \| .*\d{4} \| (.*) \|$", README, re.M)


def test_every_method_is_in_the_table_and_has_a_file_of_its_papers_values():
    table = [name for name, _ in TABLE]
    assert (
        sorted(table)
        == sorted(METHODS)
        == sorted(p.stem for p in (CONF / "strategy").glob("*.yaml"))
    )


@pytest.mark.parametrize(("name", "formula"), TABLE)
def test_the_bytes_of_the_table_are_those_on_the_wire(name, formula, tmp_path):
    settings = compose(settings_of, "digits-regression", name, ["client.epochs=2"])
    flat, (shape, classes, *_) = prepare(settings)
    strategy = method(name).strategy(settings, shape, classes)
    strategy.payload = strategy.begin(flat.mean())
    factor, *square = (int(term.split()[0]) for term in formula.split(" + "))
    expected = factor * len(flat) + sum(square) * len(flat) ** 2
    message = Message(RecordDict({"posterior": strategy.arrays()}), 1, "train")
    expected += 128 * len(message.content["posterior"])  # headers
    assert num_bytes(message.content["posterior"]) == expected
    client = method(name).client(
        settings, partition_of(settings, {"partition-id": 0, "num-partitions": 5})
    )
    arrays = to_numpy(message.content["posterior"])
    config = {"keys": list(arrays), "round": 1, "learning-rate": settings.client.learning_rate}
    reply = client.fit(list(arrays.values()), config | {"client-state": str(tmp_path)})[0]
    assert num_bytes(to_record(dict(zip(arrays, reply, strict=True)))) == expected


def test_every_method_of_the_table_is_cited():
    papers = re.split(r"\n- |; ", README.split("## The papers")[1])
    sources = re.findall(
        r"^\| `[a-z-]+` \| .* \| .* \| (?:the baseline of )?(.*?)(?: et al\.)? (\d{4}) \|",
        README,
        re.M,
    )
    assert len(sources) == len(METHODS)
    for names, year in sources:
        wanted = [*names.split(" and "), year]
        assert any(all(word in paper for word in wanted) for paper in papers), wanted


def test_every_command_line_is_understood():
    lines = [
        line.split("#")[0].split() for line in README.splitlines() if line.startswith("fedivon ")
    ]
    assert len(lines) >= 5
    for words in lines:
        options = _parser().parse_args(words[1:])
        if hasattr(options, "experiment"):
            named = getattr(options, "strategy", None)
            strategies = named if isinstance(named, list) else [named]
            for strategy in strategies:
                compose(settings_of, options.experiment, strategy, options.set)


def test_the_top_level_is_as_it_says():
    layout = re.findall(r"^([a-z_/]+)/ +\w", README.split("## Layout")[1].split("## ")[0], re.M)
    root = Path(__file__).resolve().parents[1]
    assert len(layout) >= 6 and all((root / place).is_dir() for place in layout)
