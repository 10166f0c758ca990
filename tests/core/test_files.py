"""Files that appear whole or not at all."""

import os
import stat
from pathlib import Path

import pytest

from fedivon_app.core.files import write_bytes, write_text, written_aside


def names(folder: Path) -> list[str]:
    """All that lies in a folder, hidden files included."""
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("sync", [False, True])
def test_what_was_written_aside_takes_the_place_of_what_was_there(tmp_path, sync):
    path = tmp_path / "file"
    path.write_text("old")
    with written_aside(path, sync=sync) as aside:
        aside.write_text("new")
        assert path.read_text() == "old"  # until all of it is there
        assert aside.parent == path.parent  # a rename is one step within a file system only
    assert path.read_text() == "new"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("wrote", [False, True])
def test_a_block_that_fails_leaves_the_old_file_and_no_part_of_a_new_one(tmp_path, error, wrote):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(error), written_aside(path) as aside:
        if wrote:
            aside.write_text("half of the")
        raise error
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_a_block_that_fails_leaves_no_file_where_there_was_none(tmp_path):
    with pytest.raises(RuntimeError), written_aside(tmp_path / "file") as aside:
        aside.write_text("half of the")
        raise RuntimeError
    assert names(tmp_path) == []


@pytest.mark.parametrize("sync", [False, True])
def test_a_block_that_writes_nothing_is_an_error(tmp_path, sync):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(FileNotFoundError), written_aside(path, sync=sync):
        pass
    assert path.read_text() == "old"


def test_what_a_killed_process_left_is_no_obstacle(tmp_path):
    path = tmp_path / "file"
    with written_aside(path) as aside:
        left = aside
        aside.write_text("first")
    left.write_text("what was left of another attempt")
    write_bytes(path, b"second")
    assert path.read_bytes() == b"second"
    assert names(tmp_path) == ["file"]


def test_folders_are_made_on_the_way(tmp_path):
    path = tmp_path / "some" / "where" / "file.txt"
    assert write_text(path, "größer") == path
    assert path.read_bytes() == "größer".encode()


def test_texts_and_bytes_take_the_place_of_what_was_there(tmp_path):
    for text in ("one, long", "two"):
        write_text(tmp_path / "text", text)
        assert write_bytes(tmp_path / "bytes", text.encode()) == tmp_path / "bytes"
        assert (tmp_path / "text").read_text() == text
        assert (tmp_path / "bytes").read_text() == text
    assert names(tmp_path) == ["bytes", "text"]


def test_a_secret_is_its_owners_alone_from_its_first_byte_on(tmp_path, monkeypatch):
    path = tmp_path / "key"
    path.write_text("what anybody could read")
    path.chmod(0o644)
    modes = []
    plain = os.fdopen

    def watched(descriptor: int, *arguments: str):
        found = os.fstat(descriptor)
        modes.append((stat.S_IMODE(found.st_mode), found.st_size))
        return plain(descriptor, *arguments)

    before = os.umask(0)
    try:
        monkeypatch.setattr(os, "fdopen", watched)
        write_bytes(path, b"secret", secret=True)
        write_bytes(tmp_path / "public", b"for all")
    finally:
        os.umask(before)
    assert modes == [(0o600, 0), (0o644, 0)]
    assert path.read_bytes() == b"secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "public").stat().st_mode) == 0o644
