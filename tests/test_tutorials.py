"""The tutorials, command by command, in one process and an empty folder."""

import glob

import pytest

from fedivon_app.cli.main import main
from tests.documents import ROOT, blocks, commands, read
from tests.one_process import in_one_process

TUTORIALS = ROOT / "docs" / "tutorials"


def expanded(words):
    """What a shell would make of the words."""
    return [found for word in words for found in (sorted(glob.glob(word)) or [word])]


def test_your_csv(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    in_one_process(monkeypatch)
    page = TUTORIALS / "your-csv.md"
    for block in blocks(read(page), "python"):
        exec(compile(block, str(page), "exec"), {})
    told = {}
    for command in commands(page, "fedivon"):
        if command.in_text:
            continue
        assert main(expanded(command.words[1:])) == 0
        told[command.words[1]] = told.get(command.words[1], "") + capsys.readouterr().out
    assert "Trier" in told["data"] and "missing:" in told["data"]
    assert "AUROC" in told["run"] and "Coverage error" in told["run"]
    lines = told["predict"].splitlines()[2:]
    assert len(lines) == 569 and {line.split()[1] for line in lines} == {"benign", "malignant"}
    right = sum(
        line.split()[1] == row.rsplit(",", 1)[1]
        for line, row in zip(lines, read(tmp_path / "patients.csv").splitlines()[1:], strict=True)
    )
    assert right > 0.95 * 569
    assert "PM at the mean" in told["personalise"]


@pytest.mark.parametrize("name", ["table"])
def test_a_missing_column_is_told_before_anything_starts(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("a,b\n1,x\n2,y\n" * 10)
    words = ["run", name, "--set", "data.path=t.csv", "data.label_column=diagnosis"]
    assert main(words) == 2
    assert "names the column 'diagnosis', which the file does not have" in capsys.readouterr().err
