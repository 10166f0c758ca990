"""Pictures in folders: train/<class>/... and test/<class>/... (or val/), and the layout of Tiny-ImageNet.

Tiny-ImageNet keeps its training pictures in train/<class>/images, and the labels of val/images in
val/val_annotations.txt (file name, class, box; separated by tabs); its test/ has no labels and is passed over.
"""

import os
from pathlib import Path

import numpy as np

from fedivon_app.datasets.base import DataError, Source

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"}
Items = list[tuple[Path, int]]


def image_folder(
    *,
    path: str | Path | None = None,
    image_size: int | tuple[int, int] | None = None,
    channels: int = 3,
) -> Source:
    """Read every picture; a class's number is its place among the sorted folder names of train/.

    `image_size` (height and width, or one number for both) resizes all pictures; without it they must agree.
    `channels` is 3 (colour) or 1 (grey).
    """
    if channels not in (1, 3):
        raise DataError(f"image-folder: channels must be 1 (grey) or 3 (colour), not {channels!r}.")
    size = image_size if isinstance(image_size, tuple) else (image_size, image_size)
    if image_size is None:
        size = None
    elif len(size) != 2 or not all(isinstance(side, int) and side > 0 for side in size):
        raise DataError(
            f"image-folder: image_size must be one or two positive whole numbers, not {image_size!r}."
        )
    classes, train, test = items(path)
    x_train = pictures(train, size, channels)
    x_test = pictures(test, size, channels, required=x_train.shape[1:3])
    y_train, y_test = (np.array([label for _, label in part], np.int64) for part in (train, test))
    arrays = x_train, y_train, x_test, y_test
    return Source("image-folder", *arrays, num_classes=len(classes), class_names=tuple(classes))


def files(path: Path) -> list[str]:
    """Every file below train/, test/ and val/: what the source depends on."""
    walks = (os.walk(path / part, followlinks=True) for part in ("train", "test", "val"))
    return sorted(
        os.path.join(folder, name) for walk in walks for folder, _, names in walk for name in names
    )


def items(path: str | Path | None) -> tuple[list[str], Items, Items]:
    """Class names, and the (file, label) pairs of the train and the test part."""
    if path is None:
        raise DataError(
            "image-folder: no folder given; set path to a folder with train/ and test/."
        )
    root = Path(path)
    if not (root / "train").is_dir():
        raise DataError(
            f"{root}: there is no folder train/ in it; train/ and test/ hold one folder a class."
        )
    classes = sorted(folder.name for folder in subfolders(root / "train"))
    if not classes:
        raise DataError(f"{root / 'train'}: there is no class in it; one folder a class is needed.")
    return classes, class_items(root / "train", classes), evaluation_items(root, classes)


def evaluation_items(root: Path, classes: list[str]) -> Items:
    """The labelled pictures of test/ or, if it has none, of val/."""
    for part in (root / "test", root / "val"):
        if (part / "val_annotations.txt").is_file():
            return annotated_items(part, classes)
        names = {folder.name for folder in subfolders(part)} if part.is_dir() else set()
        if names & set(classes):
            if unknown := sorted(names - set(classes)):
                raise DataError(f"{part / unknown[0]}: train/ has no class of this name.")
            return class_items(part, [name for name in classes if name in names], classes)
    raise DataError(
        f"{root}: there is no labelled picture in test/ or val/; one folder a class, named as in train/."
    )


def class_items(part: Path, names: list[str], classes: list[str] | None = None) -> Items:
    """The pictures of part/<name>, at any depth, for each name; the label is the name's place in `classes`."""
    numbers = {name: number for number, name in enumerate(classes or names)}
    found = []
    for name in names:
        held = sorted(file for file in (part / name).rglob("*") if is_picture(file))
        if not held:
            raise DataError(
                f"{part / name}: there is no picture in it ({', '.join(sorted(SUFFIXES))})."
            )
        found += [(file, numbers[name]) for file in held]
    return found


def annotated_items(part: Path, classes: list[str]) -> Items:
    """The pictures that val_annotations.txt names, with the label that it gives."""
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
        found.append((file, numbers[words[1]]))
    if not found:
        raise DataError(f"{annotations}: it names no picture.")
    return found


def pictures(
    part: Items,
    resize: tuple[int, int] | None,
    channels: int,
    required: tuple[int, int] | None = None,
) -> np.ndarray:
    """All pictures as one uint8 array: resized to a (height, width), or of the required one, or of the first one's."""
    from PIL import Image

    pixels = None
    for row, (file, _) in enumerate(part):
        try:
            with Image.open(file) as image:
                converted = image.convert("RGB" if channels == 3 else "L")
            if resize:
                converted = converted.resize(resize[::-1], Image.Resampling.BILINEAR)
            picture = np.asarray(converted)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise DataError(f"{file}: not a readable picture ({type(error).__name__}).") from error
        required = required or picture.shape[:2]
        if picture.shape[:2] != required:
            found, others = ("x".join(map(str, size)) for size in (picture.shape[:2], required))
            raise DataError(
                f"{file}: {found} pixels, but the others have {others}; set image_size to resize all of them."
            )
        if pixels is None:
            pixels = np.empty((len(part), *picture.shape), np.uint8)
        pixels[row] = picture
    return pixels


def subfolders(folder: Path) -> list[Path]:
    """Its folders, hidden ones left out."""
    return [
        entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")
    ]


def is_picture(file: Path) -> bool:
    """By its suffix; hidden files are not."""
    return file.suffix.lower() in SUFFIXES and not file.name.startswith(".")
