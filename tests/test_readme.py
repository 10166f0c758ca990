"""What the README names exists, and what exists is named."""

import re
from pathlib import Path

from fedivon_app.cli import _parser
from fedivon_app.core.settings import CONF, compose
from fedivon_app.methods import METHODS, settings_of

README = (Path(__file__).resolve().parents[1] / "README.md").read_text()


def test_every_method_is_in_the_table_and_has_a_file_of_its_papers_values():
    table = re.findall(r"^\| `([a-z-]+)` \| .* \| .* \| .*\d{4} \|$", README, re.M)
    assert sorted(table) == sorted(METHODS) == sorted(p.stem for p in (CONF / "strategy").glob("*.yaml"))


def test_every_command_line_is_understood():
    lines = [line.split("#")[0].split() for line in README.splitlines() if line.startswith("fedivon ")]
    assert len(lines) >= 5
    for words in lines:
        options = _parser().parse_args(words[1:])
        if hasattr(options, "experiment"):
            strategies = options.strategy if isinstance(options.strategy, list) else [options.strategy]
            for strategy in strategies:
                compose(settings_of, options.experiment, strategy, options.set)


def test_the_top_level_is_as_it_says():
    layout = re.findall(r"^([a-z_/]+)/ +\w", README.split("## Layout")[1].split("## ")[0], re.M)
    root = Path(__file__).resolve().parents[1]
    assert len(layout) >= 6 and all((root / place).is_dir() for place in layout)
