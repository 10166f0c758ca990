"""Which FedIvon this is."""

import fedivon_app
from fedivon_app.cli.main import main
from fedivon_app.runs.version import commit, version_text
from tests.cli.test_parser import HEAVY, imported_by


def test_the_commit_is_that_of_the_checkout():
    assert len(commit().rstrip("+")) in range(7, 41)


def test_a_version_in_words():
    assert version_text("0.1.0", "abc1234") == "FedIvon 0.1.0, commit abc1234"
    assert version_text("0.1.0", "abc1234+").endswith("abc1234 with uncommitted changes")
    assert version_text("0.1.0", "") == "FedIvon 0.1.0" and version_text("", "") == "FedIvon"


def test_the_command_line_tells_its_version_at_once(capsys):
    try:
        main(["--version"])
    except SystemExit as end:
        assert end.code == 0
    assert capsys.readouterr().out.startswith(f"FedIvon {fedivon_app.__version__}, commit ")
    assert not imported_by("--version") & (HEAVY | {"numpy", "yaml"})
