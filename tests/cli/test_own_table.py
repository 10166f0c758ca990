"""A table of one's own on the command line."""

from fedivon_app.cli.main import main


def test_a_missing_column_is_told_before_anything_starts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("a,b\n1,x\n2,y\n" * 10)
    words = ["run", "table", "--set", "data.path=t.csv", "data.label_column=diagnosis"]
    assert main(words) == 2
    assert "names the column 'diagnosis', which the file does not have" in capsys.readouterr().err
