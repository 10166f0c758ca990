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
