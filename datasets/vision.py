"""torchvision's data sets, read into arrays.

Files on disk come first; what is missing is fetched once.
"""

import logging
import pickle
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from fedivon_app.core.errors import DataError
from fedivon_app.core.text import did_you_mean
from fedivon_app.core.torchvision_import import torchvision_module
from fedivon_app.datasets.base import SUBSETS, Source
from fedivon_app.datasets.cache import locked

log = logging.getLogger(__name__)
DOWNLOAD_TIMEOUT = 30.0  # seconds without an answer
IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


@dataclass(frozen=True, eq=False)
class Examples:
    """The arrays of one subset, `train` or `test`, of a data set."""

    x: np.ndarray
    y: np.ndarray
    subclass: np.ndarray | None = None


def grey(data: Any, folder: Path, subset: str) -> Examples:
    """Return MNIST's or Fashion-MNIST's arrays as they are."""
    return Examples(data.data.numpy(), data.targets.numpy())


def letters(data: Any, folder: Path, subset: str) -> Examples:
    """Return EMNIST's letters, which are stored transposed, with labels 1 to 26."""
    return Examples(data.data.numpy().transpose(0, 2, 1), data.targets.numpy() - 1)


def house_numbers(data: Any, folder: Path, subset: str) -> Examples:
    """Return SVHN's arrays; torchvision has their channels first."""
    return Examples(data.data.transpose(0, 2, 3, 1), data.labels)


def colour(data: Any, folder: Path, subset: str) -> Examples:
    """Return the arrays of CIFAR-10, or of CIFAR-100 with its 100 labels."""
    return Examples(data.data, np.asarray(data.targets))


def superclasses(data: Any, folder: Path, subset: str) -> Examples:
    """Return CIFAR-100 with its 20 superclasses, which the files hold beside the fine labels."""
    with open(folder / subset, "rb") as file:  # torchvision has just checked its md5 sum
        coarse = pickle.load(file, encoding="latin1")["coarse_labels"]
    return Examples(data.data, np.asarray(coarse), np.asarray(data.targets))


@dataclass(frozen=True)
class VisionSet:
    """A data set of torchvision.

    It has the name of its class, what it reads below the root, and what a person would fetch.
    """

    class_name: str
    num_classes: int
    arrays: Callable[[Any, Path, str], Examples]
    folder: str  # of the files, below the root
    files: tuple[str, ...]
    fetch: str  # what to fetch, and from where
    place: str  # where to put what was fetched, below the root; torchvision unpacks it
    arguments: Callable[[str], dict[str, Any]] = lambda subset: {"train": subset == "train"}


MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FASHION_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
IDX_NAMES = ", ".join(f"{name}.gz" for name in IDX_FILES)
CIFAR10_FILES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta")
CIFAR100 = VisionSet(
    class_name="CIFAR100",
    num_classes=100,
    arrays=colour,
    folder="cifar-100-python",
    files=("train", "test", "meta"),
    fetch="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    place="",
)


def ten_greys(class_name: str, url: str) -> VisionSet:
    """Return a set of grey pictures in ten classes, in MNIST's four files."""
    folder = f"{class_name}/raw"
    return VisionSet(
        class_name=class_name,
        num_classes=10,
        arrays=grey,
        folder=folder,
        files=IDX_FILES,
        fetch=f"{IDX_NAMES} from {url}",
        place=folder,
    )


VISION_SETS = {
    "mnist": ten_greys("MNIST", MNIST_URL),
    "fmnist": ten_greys("FashionMNIST", FASHION_URL),
    "emnist-letters": VisionSet(
        class_name="EMNIST",
        num_classes=26,
        arrays=letters,
        folder="EMNIST/raw",
        files=tuple(
            f"emnist-letters-{subset}-{kind}-ubyte"
            for subset in SUBSETS
            for kind in ("images-idx3", "labels-idx1")
        ),
        fetch="https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
        place="EMNIST/raw",
        arguments=lambda subset: {"split": "letters", "train": subset == "train"},
    ),
    "svhn": VisionSet(
        class_name="SVHN",
        num_classes=10,
        arrays=house_numbers,
        folder="",
        files=("train_32x32.mat", "test_32x32.mat"),
        fetch="train_32x32.mat, test_32x32.mat from http://ufldl.stanford.edu/housenumbers/",
        place="",
        arguments=lambda subset: {"split": subset},
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
    "cifar100": CIFAR100,
    "cifar100-superclass": replace(CIFAR100, num_classes=20, arrays=superclasses),
}


def read(name: str, *, root: Path, labels: str = "fine", download: bool = True) -> Source:
    """Read a data set from its files below `root`.

    `labels` is `fine` or, for CIFAR-100, `superclass`. `download` says whether `files`, which comes
    first, may fetch what is missing.
    """
    what = VISION_SETS[variant(name, labels)]
    folder = root / what.folder
    arrays: dict[str, np.ndarray] = {}
    for subset in SUBSETS:
        try:
            held = what.arrays(open_subset(what, root, subset, download=False), folder, subset)
        except DataError:
            raise
        # whatever torchvision, pickle or scipy say of a file that is not what it should be
        except Exception as error:
            raise DataError(
                f"{name}: the {subset} files in {folder} are damaged ({type(error).__name__}); "
                f"delete them and fetch {what.fetch} again."
            ) from error
        x = held.x
        y = held.y
        if not len(x) == len(y) > 0 or y.min() < 0 or y.max() >= what.num_classes:
            raise DataError(
                f"{name}: the {subset} files in {folder} do not fit together: {len(x)} pictures "
                f"and {len(y)} labels, which must be 0 to {what.num_classes - 1}."
            )
        arrays[f"x_{subset}"] = np.ascontiguousarray(x)
        arrays[f"y_{subset}"] = y.astype(np.int64)
        if held.subclass is not None:
            arrays[f"subclass_{subset}"] = held.subclass.astype(np.int64)
    return Source.of(name, arrays, num_classes=what.num_classes)


def files(name: str, *, root: Path, labels: str = "fine", download: bool = True) -> list[Path]:
    """Return the files of a data set below `root`, which are fetched first if one is missing."""
    entry = variant(name, labels)
    if not complete(entry, root):
        fetch(entry, root, download)
    return [root / VISION_SETS[entry].folder / file for file in VISION_SETS[entry].files]


def complete(entry: str, root: Path) -> bool:
    """Tell whether all files of a data set are there."""
    what = VISION_SETS[entry]
    return all((root / what.folder / file).is_file() for file in what.files)


def variant(name: str, labels: str) -> str:
    """Return the entry of VISION_SETS: a data set's name, or `<name>-superclass`."""
    entry = name if labels == "fine" else f"{name}-{labels}"
    if entry not in VISION_SETS:
        known = [
            kind
            for kind in ("fine", "superclass")
            if kind == "fine" or f"{name}-{kind}" in VISION_SETS
        ]
        raise DataError(f"{name} has no labels {labels!r}: {did_you_mean(labels, known)}")
    return entry


def fetch(entry: str, root: Path, download: bool) -> None:
    """Let torchvision download a data set, or unpack what was put in place.

    Where that fails, the error says what a person should fetch.
    """
    what = VISION_SETS[entry]
    advice = (
        f"fetch {what.fetch} into {root / what.place} (or put the arrays x_train, y_train, "
        f"x_test, y_test into {root / entry}.npz)."
    )
    if not download:
        raise DataError(f"{entry}: not in {root}, and download is off; {advice}")
    try:
        root.mkdir(parents=True, exist_ok=True)
        with locked(root / f".{what.class_name}.lock"), patience(DOWNLOAD_TIMEOUT):
            if complete(entry, root):  # another process has fetched it meanwhile
                return
            log.warning("%s is not in %s: downloading it", entry, root)
            for subset in SUBSETS:
                open_subset(what, root, subset, download=True)
    except DataError:
        raise
    except Exception as error:  # torchvision lets errors of sockets, archives and its own through
        raise DataError(
            f"{entry}: not in {root}, and the download failed ({type(error).__name__}); {advice}"
        ) from error


def open_subset(what: VisionSet, root: Path, subset: str, *, download: bool) -> Any:
    """Return torchvision's object for `train` or `test`."""
    kind = getattr(torchvision_datasets(), what.class_name)
    return kind(str(root), download=download, **what.arguments(subset))


def torchvision_datasets() -> ModuleType:
    """Return `torchvision.datasets`."""
    try:
        return torchvision_module("datasets")
    except ImportError as error:
        raise DataError(
            f"torchvision cannot be imported ({error}); this data set needs it."
        ) from error


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Give up on a connection that is silent for so long: torchvision would wait for ever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
