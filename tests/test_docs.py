"""What the documents name exists, and what exists is named."""

import ast
import importlib
import inspect
import os
import re
import runpy
import tomllib
from pathlib import Path

import pytest
import yaml
from flwr.app import Message, RecordDict

import fedivon_app
from fedivon_app.cli.commands import COMMANDS
from fedivon_app.cli.parser import parse
from fedivon_app.core.codec import Raw
from fedivon_app.core.compose import CONF, compose
from fedivon_app.core.data_settings import FORMER_DATA_SETTINGS
from fedivon_app.core.instructions import Instructions
from fedivon_app.core.models import MODELS, options_of
from fedivon_app.datasets.node_data import partition_of
from fedivon_app.datasets.partition import RULES as PARTITIONS
from fedivon_app.methods import METHODS, method, settings_of
from fedivon_app.node.flower import MAIN
from fedivon_app.runs.plan import plan_runs, read_grid, sweep_axes
from fedivon_app.server.setup import prepare
from fedivon_app.strategies.aggregation import RULES
from fedivon_app.strategies.replies import num_bytes, to_numpy, to_record
from fedivon_app.strategies.weighting import WEIGHTINGS
from tests.documents import (
    PAGES,
    ROOT,
    Command,
    all_commands,
    blocks,
    example_package,
    links,
    name_of,
    quoted,
    read,
)

README = read(ROOT / "README.md")
DOCS = ROOT / "docs"
METHOD_PAGE = read(DOCS / "methods.md")
PROJECT = tomllib.loads(read(ROOT / "pyproject.toml"))
TABLE = re.findall(r"^\| `([a-z-]+)` \| .* \| .* \| .*\d{4} \| (.*) \|$", METHOD_PAGE, re.M)
EXPERIMENTS = {path.stem for path in (CONF / "experiment").glob("*.yaml")}
SECTIONS = "data|model|client|merge|server|pretraining|evaluation|run"


def placeholder(word: str) -> bool:
    """Such as RUN or EXPERIMENT: something that the reader is to fill in."""
    return word.isupper()


@pytest.fixture(scope="module", autouse=True)
def package(tmp_path_factory):
    """The package of docs/extending.md, importable, so that its names are checked too."""
    with example_package(tmp_path_factory.mktemp("site")):
        yield


def names_of_rows(text: str, heading: str) -> list[str]:
    """The names in the first column of the table whose first heading this is."""
    table = text.split(f"\n| {heading} |")[1].split("\n\n")[0]
    return [name for row in re.findall(r"^\| (.*?) \|", table, re.M) for name in quoted(row)]


# What a method is.


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
    prepared = prepare(settings)
    size = len(prepared.flat)
    strategy = method(name).strategy(settings, prepared.architecture)
    sent = Raw().encode(strategy.begin(prepared.flat.mean()))
    factor, *square = (int(term.split()[0]) for term in formula.split(" + "))
    expected = factor * size + sum(square) * size**2
    message = Message(RecordDict({"posterior": to_record(sent)}), 1, "train")
    expected += 128 * len(message.content["posterior"])  # headers
    assert num_bytes(message.content["posterior"]) == expected
    client = method(name).client(
        settings, partition_of(settings, {"partition-id": 0, "num-partitions": 5})
    )
    arrays = to_numpy(message.content["posterior"])
    told = Instructions(
        round=1, first=True, learning_rate=settings.client.learning_rate, client_state=str(tmp_path)
    )
    config = told.to_config() | {"keys": list(arrays)}
    reply = client.fit(list(arrays.values()), config)[0]
    assert num_bytes(to_record(dict(zip(arrays, reply, strict=True)))) == expected


def test_every_method_of_the_table_is_cited():
    papers = re.split(r"\n- |; ", METHOD_PAGE.split("## The papers")[1])
    sources = re.findall(
        r"^\| `[a-z-]+` \| .* \| .* \| (?:the baseline of )?(.*?)(?: et al\.)? (\d{4}) \|",
        METHOD_PAGE,
        re.M,
    )
    assert len(sources) == len(METHODS)
    for names, year in sources:
        wanted = [*names.split(" and "), year]
        assert any(all(word in paper for word in wanted) for paper in papers), wanted


def test_all_rules_weightings_and_partitions_have_a_line():
    rule_tables = [(METHOD_PAGE, "`merge.rule`"), (read(DOCS / "design.md"), "rule")]
    for text, heading in rule_tables:
        assert set(names_of_rows(text, heading)) == set(RULES)
    assert set(names_of_rows(METHOD_PAGE, "`merge.weighting`")) == set(WEIGHTINGS)
    models = dict(
        re.findall(r"^\| `([a-z0-9-]+)` \| .* \| (.*)\|$", read(DOCS / "settings.md"), re.M)
    )
    assert {name: {*quoted(options)} for name, options in models.items()} == {
        name: {*options_of(name)} for name in MODELS
    }
    assert set(names_of_rows(read(DOCS / "data.md"), "`data.partition`")) == set(PARTITIONS)


def test_all_experiments_have_a_line():
    text = read(DOCS / "runs.md").split("## Experiments")[1].split("\n## ")[0]
    named = {*quoted(text)} & EXPERIMENTS
    assert named == EXPERIMENTS


# What a reader would type.


def understood(command: Command) -> None:
    """Parse a line of `fedivon`, and compose its experiment with every method that it names."""
    words = list(command.words[1:])
    if command.in_text and len(words) <= 1:  # the name of a command, in running text
        assert not words or words[0] in COMMANDS
        return
    if not words or words[-1] == "--help":
        return
    if "--set-file" in words:  # a file that the reader has
        words[words.index("--set-file") + 1] = os.devnull
    options = parse(words)
    if options.command == "node":
        importlib.import_module(MAIN)._parse_args_run_supernode().parse_args(options.words)
        return
    experiment = getattr(options, "experiment", None)
    if experiment is None or placeholder(experiment):
        return
    if options.command == "sweep":
        assert plan_runs(
            experiment,
            sweep_axes(read_grid(options.grid), options.strategy, options.seeds),
            options.set,
        )
        return
    named = getattr(options, "strategy", None)
    strategies = named if isinstance(named, list) else [named]
    for strategy in strategies:
        compose(settings_of, experiment, strategy, options.set)


@pytest.mark.parametrize("command", all_commands("fedivon"), ids=str)
def test_every_command_line_is_understood(command):
    understood(command)


def test_the_lines_are_found():
    """Nothing is tested by a pattern that finds nothing."""
    found = [command.document for command in all_commands("fedivon") if not command.in_text]
    assert found.count("README.md") >= 8
    assert found.count("docs/runs.md") >= 12
    assert found.count("docs/measured-by-hand.md") >= 20
    assert found.count("docs/results.md") >= 3
    assert found.count("docs/deployment.md") >= 8
    assert len(all_commands("make")) >= 10 and len(all_commands("python")) >= 5


@pytest.mark.parametrize("command", all_commands("flwr"), ids=str)
def test_every_run_config_is_understood(command):
    words = command.words
    if "--run-config" not in words:
        return
    text = words[words.index("--run-config") + 1]
    given = tomllib.loads("\n".join(re.findall(r'[\w-]+=(?:"[^"]*"|\S+)', text)))
    assert given and set(given) <= set(PROJECT["tool"]["flwr"]["app"]["config"])
    overrides = given.get("set", "")
    compose(settings_of, given.get("experiment", "quickstart"), given.get("strategy"), overrides)


def test_the_keys_of_the_run_config_have_a_line():
    named = names_of_rows(read(DOCS / "settings.md"), "key")
    assert set(named) >= set(PROJECT["tool"]["flwr"]["app"]["config"])


@pytest.mark.parametrize("command", all_commands("make"), ids=str)
def test_every_target_is_one_of_the_makefile(command):
    targets = re.findall(r"^([a-z-]+):", read(ROOT / "Makefile"), re.M)
    assert len(targets) >= 8 and {*command.words[1:]} <= {*targets}


@pytest.mark.parametrize("command", all_commands("python"), ids=str)
def test_every_script_is_there(command):
    how, *rest = command.words[1:]
    if how == "-m":
        importlib.import_module(rest[0])
    elif how == "-c":
        for node in ast.walk(ast.parse(rest[0])):
            if isinstance(node, ast.ImportFrom):
                assert all(hasattr(resolved(node.module), alias.name) for alias in node.names)
    else:
        assert (ROOT / how).is_file()


# What a reader would look for.


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_lead_somewhere_in_the_repository(path):
    for target in links(read(path)):
        place, _, _ = target.partition("#")
        assert not place or (path.parent / place).exists(), target


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_files_that_are_named_are_there(path):
    if path.name == "CHANGELOG.md":  # of things that were
        return
    tops = {top.name for top in ROOT.iterdir()} - {"runs", "build", "keys", "data"}
    for words in quoted(read(path)):
        plain = re.fullmatch(r"[\w./-]+", words) and "/" in words
        if (
            plain
            and words.split("/")[0] in tops
            and not re.search(r"deploy/(keys|data)|\.env", words)
        ):
            assert (ROOT / words).exists(), words


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_settings_that_are_named_exist(path):
    text = read(path)
    spoken = [*quoted(text), *(word for b in blocks(text, "bash") for word in b.split())]
    for section, name in (
        match.groups()
        for words in spoken
        if (match := re.match(rf"({SECTIONS})\.([a-z_]+)(?:=|$)", words))
    ):
        methods = [*METHODS, "mypackage.method:METHOD"]
        kinds = [settings_of(one).model_fields[section].annotation for one in methods]
        known = {field for kind in kinds for field in kind.model_fields}
        known |= {*FORMER_DATA_SETTINGS} if section == "data" else set()
        assert name in known or (section, name) == ("model", "json"), f"{section}.{name}"


def resolved(name: str) -> object:
    """What a dotted name leads to: a module, or something inside of one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[length:]:
            found = getattr(found, attribute)
        return found
    raise AssertionError(f"there is no {name}")


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_names_of_the_code_that_are_named_exist(path):
    for words in quoted(read(path)):
        if re.fullmatch(r"fedivon_app(\.\w+)+", words):
            resolved(words)


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_code_is_code(path):
    for block in blocks(read(path), "python"):
        listing = "# -> " in block  # of signatures
        if not listing and quoted_file(block) is None:
            compile(block, str(path), "exec")
    for block in blocks(read(path), "yaml"):
        yaml.safe_load(block)
    for block in blocks(read(path), "toml"):
        tomllib.loads(block)


def quoted_file(block: str) -> Path | None:
    """The file of this project that a block says it is from."""
    name = block.partition("\n")[0].removeprefix("# ")
    place = ROOT / name
    return place if "/" in name and place.is_file() else None


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_code_that_is_quoted_is_that_of_the_file(path):
    text = read(path)
    for block in [*blocks(text, "python"), *blocks(text, "yaml")]:
        if place := quoted_file(block):
            assert block.partition("\n")[2] in read(place), place


def test_names_that_stay_are_there_with_what_they_take():
    (block,) = blocks(read(DOCS / "design.md"), "python")
    text = re.sub(r"#.*", "", block)
    found = re.findall(r"^(fedivon_app[\w.]+)\(([^)]*)\)", text, re.M)
    assert len(found) == 8
    for name, listed in found:
        taken = inspect.signature(resolved(name)).parameters
        wanted = [one.strip().lstrip("*").partition("=")[0] for one in listed.split(",")]
        assert [one for one in wanted if one not in taken] == [], name
    for method_name in re.findall(r"(?<=\s)\.(\w+)", text):
        assert hasattr(resolved("fedivon_app.core.ivon.IVON"), method_name)


def test_the_top_level_is_as_it_says():
    house = read(DOCS / "design.md").split("## The house")[1].split("```")[1]
    layout = re.findall(r"^([\w./]+) +\w", house, re.M)
    assert len(layout) >= 12 and all((ROOT / place).exists() for place in layout)
    rooms = re.findall(r"^    ([a-z]+)/ +\w", house, re.M)
    there = [p.name for p in (ROOT / "fedivon_app").iterdir() if (p / "__init__.py").is_file()]
    assert sorted(rooms) == sorted(there)


# What is said in more than one place.


def test_the_front_page_is_a_page():
    assert len(README.splitlines()) <= 150
    assert len(re.findall(r"^!\[", README, re.M)) == 2  # what it is, and what you get


def test_numbers_of_the_front_page_are_those_of_the_results():
    rows = re.findall(r"^\| (Fed.*?) \| (.*) \|$", README, re.M)
    assert len(rows) == 3
    results = [line.replace("*", "") for line in read(DOCS / "measured-by-hand.md").splitlines()]
    for _, numbers in rows:
        assert any(numbers in line for line in results), numbers


def test_the_number_of_methods_is_right():
    for path in (ROOT / "README.md", ROOT / "CHANGELOG.md"):
        assert f"{len(METHODS)} " in read(path)
    assert f"{len(METHODS) - 1} other" in read(ROOT / "CITATION.cff")


def test_there_is_one_version():
    version = PROJECT["project"]["version"]
    assert fedivon_app.__version__ == version
    citation = yaml.safe_load(read(ROOT / "CITATION.cff"))
    assert citation["version"] == version
    released = re.findall(r"^## (\d\S*) - (\S+)$", read(ROOT / "CHANGELOG.md"), re.M)
    assert released[0] == (version, citation["date-released"])


def test_no_other_name_hides_behind_the_version():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = fedivon_app.nothing


def test_the_page_of_all_settings_is_fresh():
    tool = runpy.run_path(str(ROOT / "tools" / "settings_page.py"))
    page = tool["page"]()
    assert read(tool["PAGE"]) == page, "run python tools/settings_page.py"
    assert "<class" not in page and "typing." not in page  # types are in words
