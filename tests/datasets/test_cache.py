"""The arrays of a source on disk: mapped, shared by processes, and built again when damaged."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedivon_app.datasets import cache, sources
from fedivon_app.datasets.base import Source
from fedivon_app.datasets.sources import load
from tests.datasets.archives import save


def test_arrays_are_mapped_read_only_and_the_same_object_is_returned(tmp_path, arrays):
    path = save(tmp_path / "own.npz", **arrays())
    source = load("npz", tmp_path, path=path)
    assert isinstance(source.x_train, np.memmap) and not source.x_train.flags.writeable
    assert load("npz", tmp_path, path=str(path)) is source
    with pytest.raises(ValueError):
        source.x_train[0] = 0


def test_a_changed_file_is_read_anew(tmp_path, arrays):
    path = save(tmp_path / "own.npz", **arrays(seed=0))
    first = load("npz", tmp_path, path=path)
    save(path, **arrays(seed=1))
    os.utime(path, ns=(1, 1))
    second = load("npz", tmp_path, path=path)
    assert np.array_equal(second.x_train, arrays(seed=1)["x_train"])
    assert np.array_equal(first.x_train, arrays(seed=0)["x_train"])


def test_another_process_opens_the_stored_arrays_without_reading_the_file(
    tmp_path, monkeypatch, arrays
):
    path = save(tmp_path / "own.npz", **arrays())
    load("npz", tmp_path, path=path)
    sources._load.cache_clear()

    def refuse(*arguments):
        raise AssertionError("the file was read again")

    monkeypatch.setattr("fedivon_app.datasets.npz.read_arrays", refuse)
    assert np.array_equal(load("npz", tmp_path, path=path).y_train, arrays()["y_train"])


def test_damaged_arrays_are_built_again(tmp_path, arrays):
    path = save(tmp_path / "own.npz", **arrays())
    load("npz", tmp_path, path=path)
    sources._load.cache_clear()
    (stored,) = (tmp_path / "arrays").glob("npz-*/x_train.npy")
    stored.write_bytes(b"")
    source = load("npz", tmp_path, path=path)
    assert np.array_equal(source.x_train, arrays()["x_train"])
    assert isinstance(source.x_train, np.memmap)


def test_a_root_that_cannot_be_written_serves_from_memory(tmp_path, arrays):
    path = save(tmp_path / "own.npz", **arrays())
    (tmp_path / "root").write_text("a file, not a folder")
    source = load("npz", tmp_path / "root", path=path)
    assert np.array_equal(source.x_train, arrays()["x_train"])
    assert not source.x_train.flags.writeable


def test_the_second_of_two_writers_leaves_the_first_ones_arrays(tmp_path, arrays):
    first, second = (Source("own", **arrays(seed=seed), num_classes=3) for seed in (0, 1))
    cache.store(tmp_path / "own", first)
    cache.store(tmp_path / "own", second)
    assert np.array_equal(cache.open_source(tmp_path / "own").x_train, first.x_train)
    assert [entry.name for entry in tmp_path.iterdir()] == ["own"]


def test_racing_processes_all_succeed_and_leave_one_copy(tmp_path, arrays):
    path = save(tmp_path / "own.npz", **arrays(train=2000, shape=(28, 28)))
    code = (
        "import sys; from fedivon_app.datasets.sources import load; "
        "print(load('npz', sys.argv[1], path=sys.argv[2]).x_train.sum())"
    )
    command = [sys.executable, "-c", code, str(tmp_path), str(path)]
    house = Path(sources.__file__).parents[1]
    racers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=house) for _ in range(3)
    ]
    outputs = [racer.communicate(timeout=60)[0] for racer in racers]
    assert all(racer.returncode == 0 for racer in racers)
    assert set(outputs) == {f"{arrays(train=2000, shape=(28, 28))['x_train'].sum()}\n"}
    assert len([entry for entry in (tmp_path / "arrays").iterdir() if entry.is_dir()]) == 1
