"""Pictures from folders and from torchvision's files, read from small ones in the right format."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from fedivon_app.core.errors import DataError
from fedivon_app.datasets import vision
from fedivon_app.datasets.sources import load

# --- pictures in folders


def picture(path, size=(6, 5), value=0, mode="RGB"):
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size[::-1], (value,) * 3 if mode == "RGB" else value).save(path)


def test_image_folder_numbers_classes_by_name_and_reads_val_as_test(tmp_path):
    for number, name in enumerate(("ant", "bee", "cat")):
        picture(tmp_path / "train" / name / "1.png", value=number)
        picture(tmp_path / "train" / name / "2.bmp", value=number)
    picture(tmp_path / "val" / "cat" / "x.png", value=2)
    picture(tmp_path / "val" / "bee" / "x.png", value=1, mode="L")
    (tmp_path / "train" / "ant" / "notes.txt").write_text("no picture")
    source = load("image-folder", tmp_path, path=tmp_path)
    assert source.shape == (6, 5, 3) and source.num_classes == 3
    assert source.y_train.tolist() == [0, 0, 1, 1, 2, 2] and source.y_test.tolist() == [1, 2]
    assert np.array_equal(source.x_train[:, 0, 0, 0], source.y_train)
    assert np.array_equal(source.x_test[:, 5, 4, 2], source.y_test)
    assert load("image-folder", tmp_path, path=tmp_path, channels=1).shape == (6, 5, 1)


def test_image_folder_reads_the_layout_of_tiny_imagenet(tmp_path):
    for number, name in enumerate(("n01", "n02")):
        picture(tmp_path / "train" / name / "images" / f"{name}_0.JPEG", value=number * 200)
    picture(tmp_path / "val" / "images" / "val_0.JPEG", value=200)
    picture(tmp_path / "test" / "images" / "test_0.JPEG", value=7)
    (tmp_path / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn02\t0\t0\t5\t5\n")
    source = load("image-folder", tmp_path, path=tmp_path)
    assert source.y_train.tolist() == [0, 1] and source.y_test.tolist() == [1]
    assert source.x_test.min() > 190
    (tmp_path / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn03\n")
    with pytest.raises(DataError, match=r"val_annotations.txt, line 1"):
        load("image-folder", tmp_path, path=tmp_path)


def test_image_folder_names_the_odd_picture_and_resizes_when_asked(tmp_path):
    picture(tmp_path / "train" / "ant" / "1.png")
    picture(tmp_path / "train" / "bee" / "odd.png", size=(7, 5))
    picture(tmp_path / "test" / "ant" / "1.png", size=(9, 9))
    with pytest.raises(
        DataError, match=r"odd.png: 7x5 pixels, but the others have 6x5; set image_size"
    ):
        load("image-folder", tmp_path, path=tmp_path)
    picture(tmp_path / "train" / "bee" / "odd.png")
    with pytest.raises(DataError, match=r"test.ant.1.png: 9x9 pixels, but the others have 6x5"):
        load("image-folder", tmp_path, path=tmp_path)
    source = load("image-folder", tmp_path, path=tmp_path, image_size=[8, 4])
    assert source.x_train.shape == (2, 8, 4, 3) and source.x_test.shape == (1, 8, 4, 3)
    assert load("image-folder", tmp_path, path=tmp_path, image_size=8).shape == (8, 8, 3)


def test_image_folder_names_what_is_missing_or_broken(tmp_path):
    def complaint(**options):
        with pytest.raises(DataError) as caught:
            load("image-folder", tmp_path, path=tmp_path, **options)
        return str(caught.value)

    assert "there is no folder train/" in complaint()
    with pytest.raises(DataError, match="nowhere: there is no such folder"):
        load("image-folder", tmp_path, path=tmp_path / "nowhere")
    (tmp_path / "train").mkdir()
    assert "there is no class in it" in complaint()
    (tmp_path / "train" / "ant").mkdir()
    assert "ant: there is no picture in it" in complaint()
    picture(tmp_path / "train" / "ant" / "1.png")
    assert "no labelled picture in test/ or val/" in complaint()
    picture(tmp_path / "test" / "ant" / "1.png")
    picture(tmp_path / "test" / "bat" / "1.png")
    assert "bat: train/ has no class of this name" in complaint()
    (tmp_path / "test" / "bat" / "1.png").unlink()
    (tmp_path / "test" / "bat").rmdir()
    (tmp_path / "train" / "ant" / "2.png").write_text("no picture")
    assert "2.png: not a readable picture (in no format that Pillow knows)" in complaint()
    assert "channels must be 1" in complaint(channels=2)
    assert "image_size must be" in complaint(image_size=0)


# --- torchvision


def write_idx(path, array):
    """Write MNIST's format: two zero bytes, the type (8: byte), the number of dimensions, sizes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    path.write_bytes(bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes())


@pytest.mark.parametrize(("name", "folder"), [("mnist", "MNIST"), ("fmnist", "FashionMNIST")])
def test_mnist_and_fashion_mnist_are_read_from_their_files(tmp_path, name, folder, arrays):
    content = arrays(shape=(28, 28), classes=10)
    for part, prefix in (("train", "train"), ("test", "t10k")):
        write_idx(tmp_path / folder / "raw" / f"{prefix}-images-idx3-ubyte", content[f"x_{part}"])
        write_idx(tmp_path / folder / "raw" / f"{prefix}-labels-idx1-ubyte", content[f"y_{part}"])
    source = load(name, tmp_path, download=False)
    for key, array in content.items():
        assert np.array_equal(getattr(source, key), array)
    assert source.num_classes == 10 and source.shape == (28, 28, 1)


def test_emnist_letters_are_put_upright_and_counted_from_zero(tmp_path, arrays):
    content = arrays(shape=(28, 28), classes=26, train=52, test=26)
    for part in ("train", "test"):
        prefix = tmp_path / "EMNIST" / "raw" / f"emnist-letters-{part}"
        write_idx(Path(f"{prefix}-images-idx3-ubyte"), content[f"x_{part}"].transpose(0, 2, 1))
        write_idx(Path(f"{prefix}-labels-idx1-ubyte"), content[f"y_{part}"] + 1)
    source = load("emnist-letters", tmp_path, download=False)
    for key, array in content.items():
        assert np.array_equal(getattr(source, key), array)
    assert source.num_classes == 26


@pytest.fixture
def small_files_pass(monkeypatch):
    """Let torchvision, which compares md5 sums of CIFAR and SVHN, only see that files exist."""
    vision.torchvision_datasets()
    for module in ("cifar", "svhn"):
        check = f"torchvision.datasets.{module}.check_integrity"
        monkeypatch.setattr(check, lambda path, md5=None: os.path.isfile(path))


def write_cifar(path, pictures, **labels):
    """CIFAR's pickles: rows of 3072 bytes, channel after channel."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = pictures.transpose(0, 3, 1, 2).reshape(len(pictures), -1)
    path.write_bytes(
        pickle.dumps(
            {"data": rows, **{key: list(map(int, value)) for key, value in labels.items()}}
        )
    )


def test_cifar10_is_read_from_its_batches(tmp_path, small_files_pass, arrays):
    content = arrays(shape=(32, 32, 3), train=10, test=4, classes=10)
    folder = tmp_path / "cifar-10-batches-py"
    for batch in range(5):
        rows = slice(2 * batch, 2 * batch + 2)
        write_cifar(
            folder / f"data_batch_{batch + 1}",
            content["x_train"][rows],
            labels=content["y_train"][rows],
        )
    write_cifar(folder / "test_batch", content["x_test"], labels=content["y_test"])
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}))
    source = load("cifar10", tmp_path, download=False)
    for key, array in content.items():
        assert np.array_equal(getattr(source, key), array)


def test_cifar100_has_fine_labels_or_superclasses_with_the_fine_ones_below(
    tmp_path, small_files_pass, arrays
):
    content = arrays(shape=(32, 32, 3), train=10, test=4, classes=100)
    folder = tmp_path / "cifar-100-python"
    for part in ("train", "test"):
        fine = content[f"y_{part}"]
        write_cifar(folder / part, content[f"x_{part}"], fine_labels=fine, coarse_labels=fine // 5)
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": [str(i) for i in range(100)]}))
    fine = load("cifar100", tmp_path)
    assert fine.num_classes == 100 and fine.subclass_train is None
    assert np.array_equal(fine.y_train, content["y_train"])
    coarse = load("cifar100", tmp_path, labels="superclass")
    assert coarse.num_classes == 20 and np.array_equal(coarse.x_train, content["x_train"])
    for part in ("train", "test"):
        assert np.array_equal(getattr(coarse, f"y_{part}"), content[f"y_{part}"] // 5)
        assert np.array_equal(getattr(coarse, f"subclass_{part}"), content[f"y_{part}"])
    with pytest.raises(
        DataError, match="cifar100 has no labels 'superclas': did you mean superclass"
    ):
        load("cifar100", tmp_path, labels="superclas")


def test_svhn_is_read_from_its_mat_files_with_ten_as_zero(tmp_path, small_files_pass, arrays):
    from scipy.io import savemat

    content = arrays(shape=(32, 32, 3), train=20, test=10, classes=10)
    for part in ("train", "test"):
        labels = np.where(content[f"y_{part}"] == 0, 10, content[f"y_{part}"])
        stored = {
            "X": content[f"x_{part}"].transpose(1, 2, 3, 0),
            "y": labels[:, np.newaxis].astype(np.uint8),
        }
        savemat(tmp_path / f"{part}_32x32.mat", stored)
    source = load("svhn", tmp_path)
    for key, array in content.items():
        assert np.array_equal(getattr(source, key), array)


@pytest.mark.parametrize(
    ("name", "fetch"),
    [
        ("mnist", "train-images-idx3-ubyte.gz"),
        ("emnist-letters", "EMNIST/gzip.zip"),
        ("cifar100", "cifar-100-python.tar.gz"),
        ("svhn", "test_32x32.mat"),
    ],
)
def test_a_missing_data_set_offline_says_what_to_fetch_and_where_to_put_it(
    tmp_path, monkeypatch, name, fetch
):
    tried = []

    def offline(url, *arguments, **keywords):
        tried.append(url)
        raise ConnectionError("no network\nat all")

    vision.torchvision_datasets()
    for place in ("mnist", "cifar"):
        monkeypatch.setattr(f"torchvision.datasets.{place}.download_and_extract_archive", offline)
    monkeypatch.setattr("torchvision.datasets.svhn.download_url", offline)
    with pytest.raises(DataError) as caught:
        load(name, tmp_path)
    message = str(caught.value)
    assert len(tried) == 1
    assert message.startswith(f"{name}: not in {tmp_path}, and the download failed")
    assert fetch in message and f"{name}.npz" in message and "\n" not in message
    with pytest.raises(DataError, match="download is off"):
        load(name, tmp_path, download=False)
    assert len(tried) == 1


def test_damaged_files_of_torchvision_are_named(tmp_path):
    for file in vision.IDX_FILES:
        write_idx(
            tmp_path / "MNIST" / "raw" / file, np.zeros((3, 28, 28) if "images" in file else 4)
        )
    with pytest.raises(
        DataError,
        match=r"mnist: the train files in .*raw do not fit together: 3 pictures and 4 labels",
    ):
        load("mnist", tmp_path)
    (tmp_path / "MNIST" / "raw" / vision.IDX_FILES[0]).write_bytes(b"rubbish")
    with pytest.raises(DataError, match=r"mnist: the train files in .*raw are damaged"):
        load("mnist", tmp_path)


def test_a_moved_picture_is_read_anew(tmp_path):
    for name in ("ant", "bee"):
        for number in (1, 2):
            picture(tmp_path / "train" / name / f"{name}{number}.png")
    picture(tmp_path / "test" / "ant" / "1.png")
    assert load("image-folder", tmp_path, path=tmp_path).y_train.tolist() == [0, 0, 1, 1]
    (tmp_path / "train" / "ant" / "ant2.png").rename(tmp_path / "train" / "bee" / "ant2.png")
    assert load("image-folder", tmp_path, path=tmp_path).y_train.tolist() == [0, 1, 1, 1]
