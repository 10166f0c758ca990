"""torchvision's data sets, read into arrays. Files on disk come first; what is missing is fetched once."""

import functools
import logging
import pickle
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from fedivon_app.datasets.base import DataError, Source, suggestion
from fedivon_app.datasets.cache import locked

log = logging.getLogger(__name__)
DOWNLOAD_TIMEOUT = 30.0  # seconds without an answer
PARTS = ("train", "test")
IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
Part = tuple[np.ndarray, np.ndarray, np.ndarray | None]  # x, y, subclass


def grey(data: Any, folder: Path, part: str) -> Part:
    """MNIST and Fashion-MNIST: as they are."""
    return data.data.numpy(), data.targets.numpy(), None


def letters(data: Any, folder: Path, part: str) -> Part:
    """EMNIST letters: stored transposed, with labels 1 to 26."""
    return data.data.numpy().transpose(0, 2, 1), data.targets.numpy() - 1, None


def house_numbers(data: Any, folder: Path, part: str) -> Part:
    """SVHN: channels first in torchvision's array."""
    return data.data.transpose(0, 2, 3, 1), data.labels, None


def colour(data: Any, folder: Path, part: str) -> Part:
    """CIFAR-10, and CIFAR-100 with its 100 labels."""
    return data.data, np.asarray(data.targets), None


def superclasses(data: Any, folder: Path, part: str) -> Part:
    """CIFAR-100 with its 20 superclasses, which the original files hold beside the fine labels."""
    with open(folder / part, "rb") as file:  # torchvision has just checked its md5 sum
        coarse = pickle.load(file, encoding="latin1")["coarse_labels"]
    return data.data, np.asarray(coarse), np.asarray(data.targets)


@dataclass(frozen=True)
class VisionSet:
    """A data set of torchvision: its class, what it reads below the root, and what a person would fetch."""

    class_name: str
    num_classes: int
    arrays: Callable[[Any, Path, str], Part]
    folder: str  # of the files, below the root
    files: tuple[str, ...]
    fetch: str  # what to fetch, and from where
    place: str  # where to put what was fetched, below the root; torchvision unpacks it
    arguments: Callable[[str], dict[str, Any]] = lambda part: {"train": part == "train"}


MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FASHION_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
IDX_NAMES = ", ".join(f"{name}.gz" for name in IDX_FILES)
CIFAR10_FILES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta")
CIFAR100 = {
    "class_name": "CIFAR100",
    "folder": "cifar-100-python",
    "files": ("train", "test", "meta"),
    "fetch": "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    "place": "",
}

VISION_SETS = {
    "mnist": VisionSet(
        "MNIST", 10, grey, "MNIST/raw", IDX_FILES, f"{IDX_NAMES} from {MNIST_URL}", "MNIST/raw"
    ),
    "fmnist": VisionSet(
        "FashionMNIST",
        10,
        grey,
        "FashionMNIST/raw",
        IDX_FILES,
        f"{IDX_NAMES} from {FASHION_URL}",
        "FashionMNIST/raw",
    ),
    "emnist-letters": VisionSet(
        class_name="EMNIST",
        num_classes=26,
        arrays=letters,
        folder="EMNIST/raw",
        files=tuple(
            f"emnist-letters-{part}-{kind}-ubyte"
            for part in PARTS
            for kind in ("images-idx3", "labels-idx1")
        ),
        fetch="https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
        place="EMNIST/raw",
        arguments=lambda part: {"split": "letters", "train": part == "train"},
    ),
    "svhn": VisionSet(
        class_name="SVHN",
        num_classes=10,
        arrays=house_numbers,
        folder="",
        files=("train_32x32.mat", "test_32x32.mat"),
        fetch="train_32x32.mat, test_32x32.mat from http://ufldl.stanford.edu/housenumbers/",
        place="",
        arguments=lambda part: {"split": part},
    ),
    "cifar10": VisionSet(
        class_name="CIFAR10",
        num_classes=10,
        arrays=colour,
        folder="cifar-10-batches-py",
        files=CIFAR10_FILES,
        fetch="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        place="",
    ),
    "cifar100": VisionSet(num_classes=100, arrays=colour, **CIFAR100),
    "cifar100-superclass": VisionSet(num_classes=20, arrays=superclasses, **CIFAR100),
}


def read(name: str, *, root: Path, labels: str = "fine", download: bool = True) -> Source:
    """The data set from its files below `root`; CIFAR-100 with `labels` `fine` or `superclass`."""
    what = VISION_SETS[variant(name, labels)]
    arrays = {}
    for part in PARTS:
        try:
            x, y, subclass = what.arrays(
                open_part(what, root, part, download=False), root / what.folder, part
            )
        except DataError:
            raise
        except Exception as error:  # whatever torchvision, pickle or scipy say of a file that is not what it should be
            raise DataError(
                f"{name}: the {part} files in {root / what.folder} are damaged ({type(error).__name__}); "
                f"delete them and fetch {what.fetch} again."
            ) from error
        if not len(x) == len(y) > 0 or y.min() < 0 or y.max() >= what.num_classes:
            raise DataError(
                f"{name}: the {part} files in {root / what.folder} do not fit together: {len(x)} pictures and {len(y)} "
                f"labels, which must be 0 to {what.num_classes - 1}."
            )
        arrays |= {f"x_{part}": np.ascontiguousarray(x), f"y_{part}": y.astype(np.int64)}
        if subclass is not None:
            arrays[f"subclass_{part}"] = subclass.astype(np.int64)
    return Source(name, **arrays, num_classes=what.num_classes)


def files(name: str, *, root: Path, labels: str = "fine", download: bool = True) -> list[Path]:
    """The files of the data set below `root`, fetched first if one is missing."""
    entry = variant(name, labels)
    if not complete(entry, root):
        fetch(entry, root, download)
    return [root / VISION_SETS[entry].folder / file for file in VISION_SETS[entry].files]


def complete(entry: str, root: Path) -> bool:
    """Whether all files of the data set are there."""
    what = VISION_SETS[entry]
    return all((root / what.folder / file).is_file() for file in what.files)


def variant(name: str, labels: str) -> str:
    """The entry of VISION_SETS: a data set's name, or `<name>-superclass`."""
    entry = name if labels == "fine" else f"{name}-{labels}"
    if entry not in VISION_SETS:
        known = [
            kind
            for kind in ("fine", "superclass")
            if kind == "fine" or f"{name}-{kind}" in VISION_SETS
        ]
        raise DataError(f"{name} has no labels {labels!r}; {suggestion(labels, known)}")
    return entry


def fetch(entry: str, root: Path, download: bool) -> None:
    """Let torchvision download the data set, or unpack what was put in place; or say what a person should fetch."""
    what = VISION_SETS[entry]
    advice = (
        f"fetch {what.fetch} into {root / what.place} (or put the arrays x_train, y_train, x_test, y_test "
        f"into {root / entry}.npz)."
    )
    if not download:
        raise DataError(f"{entry}: not in {root}, and download is off; {advice}")
    try:
        root.mkdir(parents=True, exist_ok=True)
        with locked(root / f".{what.class_name}.lock"), patience(DOWNLOAD_TIMEOUT):
            if complete(entry, root):  # another process has fetched it meanwhile
                return
            log.warning("%s is not in %s: downloading it", entry, root)
            for part in PARTS:
                open_part(what, root, part, download=True)
    except DataError:
        raise
    except Exception as error:  # torchvision lets errors of sockets, archives and its own through
        raise DataError(
            f"{entry}: not in {root}, and the download failed ({type(error).__name__}); {advice}"
        ) from error


def open_part(what: VisionSet, root: Path, part: str, download: bool) -> Any:
    """torchvision's object for one part."""
    return getattr(torchvision_datasets(), what.class_name)(
        str(root), download=download, **what.arguments(part)
    )


@functools.cache
def torchvision_datasets() -> ModuleType:
    """`torchvision.datasets`, also where torchvision's compiled operators do not match the torch that is installed.

    torchvision registers shapes for its own `nms` and `qnms` on import and fails if they do not exist. No data set
    uses them, so declaring the two is enough.
    """
    try:
        try:
            from torchvision import datasets
        except RuntimeError as error:
            if "torchvision::nms" not in str(error):
                raise
            declare_operators()
            from torchvision import datasets
    except ImportError as error:
        raise DataError(
            f"torchvision cannot be imported ({error}); this data set needs it."
        ) from error
    return datasets


@functools.cache
def declare_operators() -> Any:
    """The library of declared operators; the cache keeps it alive, and with it the declarations."""
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Give up on a connection that is silent for so long: torchvision itself would wait for ever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
