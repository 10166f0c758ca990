"""A SuperLink of our own that cannot be started."""

import pytest

from fedivon_app.core.errors import FlowerError
from fedivon_app.federation import local_federation
from fedivon_app.federation.local_federation import Federation


def test_without_flowers_commands_beside_this_python_the_folder_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(local_federation, "BIN", tmp_path)
    with pytest.raises(FlowerError, match=f"no flower-superlink in {tmp_path}"), Federation():
        pass
