"""A table of one's own on the command line."""

from fedivon_app.cli.main import main


def test_a_missing_column_is_told_before_anything_starts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("a,b\n1,x\n2,y\n" * 10)
    words = ["run", "table", "--set", "data.path=t.csv", "data.label_column=diagnosis"]
    assert main(words) == 2
    assert "names the column 'diagnosis', which the file does not have" in capsys.readouterr().err


def test_sums_without_noise_are_refused_before_a_private_run_starts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("a,b\n1,x\n2,y\n" * 10)
    words = ["data.path=t.csv", "data.label_column=b", "data.clients=2", "privacy.epsilon=2"]
    assert main(["run", "table", "--set", *words, "evaluation.clients_every=0"]) == 2
    assert "give means and deviations by data.standard" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_missing_values_that_nothing_takes_the_place_of_are_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("a,b,c\n1,2,x\n,3,y\n4,5,x\n" * 10)
    words = ["data.path=t.csv", "data.label_column=c", "data.clients=2", "data.standardise=false"]
    assert main(["run", "table", "--set", *words]) == 2
    error = capsys.readouterr().err
    assert "8 of 24 rows have missing values" in error or "rows have missing values" in error
    assert "data.standardise=true" in error and not (tmp_path / "runs").exists()
