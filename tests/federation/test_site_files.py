"""Files for the sites of a deployment."""

import numpy as np
import pytest

from fedivon_app.cli.main import main
from fedivon_app.core.compose import compose
from fedivon_app.core.errors import SettingsError
from fedivon_app.datasets.loading import division
from fedivon_app.datasets.npz import npz
from fedivon_app.federation.site_files import write_site_files
from fedivon_app.methods import settings_of

SITES = ["north", "south", "west"]


def test_the_files_are_the_experiments_parts(tmp_path, capsys):
    assert main(["deal", "demo", "--to", str(tmp_path), "--site", *SITES]) == 0
    shown = capsys.readouterr().out.splitlines()
    settings = compose(settings_of, "demo", None, ["data.clients=3", "clients_per_round=3"])
    divided = division(settings.data, 3, 0)
    source = divided.source
    parts = divided.split
    for number, site in enumerate(SITES):
        dealt = npz(path=tmp_path / site / "site.npz")
        np.testing.assert_array_equal(dealt.x_train, source.x_train[parts.train[number]])
        np.testing.assert_array_equal(dealt.y_train, source.y_train[parts.train[number]])
        np.testing.assert_array_equal(dealt.y_test, source.y_test[parts.test[number]])
        assert (
            f"{len(dealt.y_train)} examples to train with, {len(dealt.y_test)} to test with"
            in shown[number]
        )
        assert [file.name for file in (tmp_path / site).iterdir()] == ["site.npz"]


def test_a_sites_own_file_is_kept(tmp_path, capsys):
    own = tmp_path / "south" / "site.npz"
    own.parent.mkdir()
    own.write_bytes(b"mine")
    assert main(["deal", "demo", "--to", str(tmp_path), "--site", *SITES]) == 0
    assert own.read_bytes() == b"mine" and f"{own}: kept as it is" in capsys.readouterr().out
    assert (tmp_path / "west" / "site.npz").is_file()


@pytest.mark.parametrize(
    ("experiment", "sites", "words"),
    [("sites", ["a"], "are at its sites already"), ("demo", ["a", "b", "a"], "named twice")],
)
def test_what_cannot_be_dealt(experiment, sites, words, tmp_path, capsys):
    assert main(["deal", experiment, "--to", str(tmp_path), "--site", *sites]) == 2
    assert words in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_a_name_that_leads_elsewhere_is_refused(tmp_path):
    settings = compose(settings_of, "demo")
    with pytest.raises(SettingsError, match=r"the site's name '\.\./x' becomes a folder's"):
        list(write_site_files(settings, tmp_path / "data", ["../x"]))
    assert not list(tmp_path.iterdir())
