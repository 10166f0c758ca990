"""Pictures in folders: train/<class>/... and test/<class>/... (or val/), as in Tiny-ImageNet too.

Tiny-ImageNet keeps its training pictures in train/<class>/images, and the labels of val/images in
val/val_annotations.txt (file name, class, box; separated by tabs); its test/ has no labels and is
passed over.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedivon_app.core.errors import DataError
from fedivon_app.datasets.base import Source
from fedivon_app.datasets.picture_file import SUFFIXES, checked_values, is_picture, open_picture


@dataclass(frozen=True, slots=True)
class Picture:
    """The file of one picture, and the number of its class."""

    file: Path
    label: int


@dataclass(frozen=True)
class Form:
    """What pictures are brought to.

    That is a height and a width, if one is asked for, and so many channels; `values` are those of
    DICOM files that become black and white.
    """

    size: tuple[int, int] | None
    channels: int
    values: Sequence[float] | None = None


@dataclass(frozen=True)
class Listing:
    """The classes of a folder by name, and the pictures of its train and its test part."""

    classes: list[str]
    train: list[Picture]
    test: list[Picture]


def image_folder(
    *,
    path: str | Path | None = None,
    image_size: int | tuple[int, int] | None = None,
    channels: int = 3,
    values: Sequence[float] | None = None,
) -> Source:
    """Read every picture; a class's number is its place among the sorted folder names of train/.

    `image_size` (height and width, or one number for both) resizes all pictures; without it they
    must agree. `channels` is 3 (colour) or 1 (grey). In DICOM files, `values` are the quantities
    that become black and white.
    """
    if channels not in (1, 3):
        raise DataError(f"image-folder: channels must be 1 (grey) or 3 (colour), not {channels!r}.")
    form = Form(_height_and_width(image_size), channels, checked_values(values))
    listing = list_pictures(path)
    x_train = pixels_of(listing.train, form)
    return Source(
        name="image-folder",
        x_train=x_train,
        y_train=_labels(listing.train),
        x_test=pixels_of(listing.test, form, required=x_train.shape[1:3]),
        y_test=_labels(listing.test),
        num_classes=len(listing.classes),
        class_names=tuple(listing.classes),
    )


def files(path: Path) -> list[str]:
    """Return every file below train/, test/ and val/: what the source depends on."""
    walks = (os.walk(path / part, followlinks=True) for part in ("train", "test", "val"))
    return sorted(
        os.path.join(folder, name) for walk in walks for folder, _, names in walk for name in names
    )


def list_pictures(path: str | Path | None) -> Listing:
    """Return the classes and all labelled pictures of a folder, without reading a picture."""
    if path is None:
        raise DataError(
            "image-folder: no folder given; set path to a folder with train/ and test/."
        )
    root = Path(path)
    if not root.is_dir():
        raise DataError(f"{root}: there is no such folder.")
    if not (root / "train").is_dir():
        raise DataError(
            f"{root}: there is no folder train/ in it; train/ and test/ hold one folder a class."
        )
    classes = sorted(folder.name for folder in subfolders(root / "train"))
    if not classes:
        raise DataError(f"{root / 'train'}: there is no class in it; one folder a class is needed.")
    train = class_pictures(root / "train", classes)
    return Listing(classes, train, evaluation_pictures(root, classes))


def evaluation_pictures(root: Path, classes: list[str]) -> list[Picture]:
    """Return the labelled pictures of test/ or, if it has none, of val/."""
    for part in (root / "test", root / "val"):
        if (part / "val_annotations.txt").is_file():
            return annotated_pictures(part, classes)
        names = {folder.name for folder in subfolders(part)} if part.is_dir() else set()
        if names & set(classes):
            if unknown := sorted(names - set(classes)):
                raise DataError(f"{part / unknown[0]}: train/ has no class of this name.")
            return class_pictures(part, [name for name in classes if name in names], classes)
    raise DataError(
        f"{root}: there is no labelled picture in test/ or val/; "
        "one folder a class, named as in train/."
    )


def class_pictures(part: Path, names: list[str], classes: list[str] | None = None) -> list[Picture]:
    """Return the pictures of part/<name>, at any depth, for each name.

    The label is the name's place in `classes`, or in `names` where there is no such list.
    """
    numbers = {name: number for number, name in enumerate(classes or names)}
    found: list[Picture] = []
    for name in names:
        held = sorted(file for file in (part / name).rglob("*") if is_picture(file))
        if not held:
            raise DataError(
                f"{part / name}: there is no picture in it ({', '.join(sorted(SUFFIXES))})."
            )
        found += [Picture(file, numbers[name]) for file in held]
    return found


def annotated_pictures(part: Path, classes: list[str]) -> list[Picture]:
    """Return the pictures that val_annotations.txt names, with the labels that it gives."""
    annotations = part / "val_annotations.txt"
    numbers = {name: number for number, name in enumerate(classes)}
    found = []
    for place, line in enumerate(annotations.read_text().splitlines(), 1):
        if not line.strip():
            continue
        words = line.split("\t")
        if len(words) < 2 or words[1] not in numbers:
            raise DataError(
                f"{annotations}, line {place}: a file name, a tab and a class of train/ are needed."
            )
        if not (file := part / "images" / words[0]).is_file():
            raise DataError(f"{annotations}, line {place}: there is no file {file}.")
        found.append(Picture(file, numbers[words[1]]))
    if not found:
        raise DataError(f"{annotations}: it names no picture.")
    return found


def pixels_of(
    pictures: Sequence[Picture], form: Form, required: tuple[int, ...] | None = None
) -> np.ndarray:
    """Return all pictures as one uint8 array.

    Their height and width are those of the form; if it has none they must have the required ones
    or, where none are required, those of the first picture.
    """
    first = _picture_pixels(pictures[0].file, form)
    expected = required or first.shape[:2]
    pixels = np.empty((len(pictures), *expected, *first.shape[2:]), np.uint8)
    for row, picture in enumerate(pictures):
        one = first if row == 0 else _picture_pixels(picture.file, form)
        if one.shape[:2] != expected:
            raise DataError(
                f"{picture.file}: {_by(one.shape[:2])} pixels, but the others have "
                f"{_by(expected)}; set image_size to resize all of them."
            )
        pixels[row] = one
    return pixels


def subfolders(folder: Path) -> list[Path]:
    """Return the folders in a folder, hidden ones left out."""
    return [
        entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")
    ]


def _picture_pixels(file: Path, form: Form) -> np.ndarray:
    from PIL import Image

    converted = open_picture(file, form.values).convert("RGB" if form.channels == 3 else "L")
    if form.size:
        height, width = form.size
        converted = converted.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(converted)


def _height_and_width(image_size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    if image_size is None:
        return None
    size = image_size if isinstance(image_size, tuple) else (image_size, image_size)
    if len(size) != 2 or not all(isinstance(side, int) and side > 0 for side in size):
        raise DataError(
            "image-folder: image_size must be one or two positive whole numbers, "
            f"not {image_size!r}."
        )
    return size


def _labels(pictures: Sequence[Picture]) -> np.ndarray:
    return np.array([picture.label for picture in pictures], np.int64)


def _by(size: Sequence[int]) -> str:
    return "x".join(map(str, size))
