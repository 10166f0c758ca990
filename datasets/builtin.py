"""Sources that need no file: scikit-learn's digits and photographs, Li et al.'s synthetic data."""

import numpy as np

from fedivon_app.datasets.base import FIELDS, SUBSETS, Source, real_number, whole_number

SYNTHETIC_INPUTS = 60
SYNTHETIC_CLASSES = 10
PHOTO_PATCH = 32  # pixels of a photograph along a side of a patch
PHOTO_SIDE = 8  # of a patch, as the digits have it


def digits() -> Source:
    """Return scikit-learn's 1797 handwritten digits, 8x8 grey; values 0-16 become 0-255.

    Every fifth example of a class, in the order of the file, is test data: a fixed, stratified
    fifth.
    """
    from sklearn.datasets import load_digits

    data = load_digits()
    x = np.rint(data.images * (255 / 16)).astype(np.uint8)
    y = data.target.astype(np.int64)
    test = rank_in_class(y) % 5 == 4
    return Source(
        name="digits",
        x_train=x[~test],
        y_train=y[~test],
        x_test=x[test],
        y_test=y[test],
        num_classes=10,
    )


def photos() -> Source:
    """Return 520 patches of the two photographs that ship with scikit-learn, 8x8 grey.

    They are for a model of the digits to say that it does not know. The photographs, a temple and a
    flower, are cut into squares of 32x32 pixels, each averaged to 8x8. Every third patch of a
    photograph is training data, and the others are test data.
    """
    from sklearn.datasets import load_sample_images

    patches = [_patches(photo.mean(axis=2)) for photo in load_sample_images().images]
    x = np.concatenate(patches)
    y = np.repeat(np.arange(len(patches)), [len(own) for own in patches])
    train = rank_in_class(y) % 3 == 0
    return Source(
        name="photos",
        x_train=x[train],
        y_train=y[train],
        x_test=x[~train],
        y_test=y[~train],
        num_classes=len(patches),
        class_names=("temple", "flower"),
    )


def _patches(photo: np.ndarray) -> np.ndarray:
    """Return the squares of a grey photograph, row by row; what is left at its edges is dropped."""
    rows, columns = (length // PHOTO_PATCH for length in photo.shape)
    pixel = PHOTO_PATCH // PHOTO_SIDE
    whole = photo[: rows * PHOTO_PATCH, : columns * PHOTO_PATCH]
    parts = whole.reshape(rows, PHOTO_SIDE, pixel, columns, PHOTO_SIDE, pixel)
    means: np.ndarray = parts.mean(axis=(2, 5)).transpose(0, 2, 1, 3)
    patches: np.ndarray = np.rint(means).astype(np.uint8)
    return patches.reshape(-1, PHOTO_SIDE, PHOTO_SIDE)


def rank_in_class(labels: np.ndarray) -> np.ndarray:
    """Return, for each example, how many earlier ones have its label."""
    ranks = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        ranks[members] = np.arange(len(members))
    return ranks


def synthetic(
    *,
    num_clients: int | None = None,
    seed: int = 0,
    a: float = 1.0,
    b: float = 1.0,
    size_log_mean: float = 4.0,
    size_log_deviation: float = 2.0,
    size_min: int = 50,
) -> Source:
    """Draw Synthetic(a, b) of Li et al. 2020 (FedProx, section 5.1): 60 inputs, 10 classes.

    u_k ~ N(0, a), W_k and c_k ~ N(u_k, 1); B_k ~ N(0, b), v_k ~ N(B_k, 1),
    x ~ N(v_k, diag(j^-1.2)); y = argmax softmax(W_k x + c_k). a and b are variances. Sizes are
    log-normal, plus `size_min`; a fifth of every client's examples is its test part, and `owner_*`
    names the client. There are 30 clients, as in the paper, if their number is not given.
    """
    clients = 30 if num_clients is None else whole_number(num_clients, "synthetic: num_clients", 1)
    seed = whole_number(seed, "synthetic: seed", 0)
    for name, value in (("a", a), ("b", b), ("size_log_deviation", size_log_deviation)):
        real_number(value, f"synthetic: {name}", zero=True)
    real_number(size_log_mean, "synthetic: size_log_mean", upto=12, zero=True)
    whole_number(size_min, "synthetic: size_min", 2)  # one example to train on, one to test
    generator = np.random.default_rng([seed, clients])
    deviation = np.arange(1, SYNTHETIC_INPUTS + 1) ** -0.6
    drawn_sizes = generator.lognormal(size_log_mean, size_log_deviation, clients)
    sizes = drawn_sizes.astype(np.int64) + size_min
    model_means = np.sqrt(a) * generator.standard_normal(clients)
    input_means = np.sqrt(b) * generator.standard_normal(clients)
    blocks: dict[str, list[np.ndarray]] = {field: [] for field in FIELDS}
    for client, size in enumerate(sizes):
        weights = generator.normal(model_means[client], 1, (SYNTHETIC_INPUTS, SYNTHETIC_CLASSES))
        offsets = generator.normal(model_means[client], 1, SYNTHETIC_CLASSES)
        centre = generator.normal(input_means[client], 1, SYNTHETIC_INPUTS)
        x = centre + deviation * generator.standard_normal((size, SYNTHETIC_INPUTS))
        y = np.argmax(x @ weights + offsets, axis=1)
        tested = max(1, round(size / 5))
        rows = {"train": slice(tested, None), "test": slice(tested)}
        for subset in SUBSETS:
            inputs = x[rows[subset]].astype(np.float32)
            blocks[f"x_{subset}"].append(inputs)
            blocks[f"y_{subset}"].append(y[rows[subset]].astype(np.int64))
            blocks[f"owner_{subset}"].append(np.full(len(inputs), client))
    arrays = {field: np.concatenate(parts) for field, parts in blocks.items() if parts}
    return Source.of("synthetic", arrays, num_classes=SYNTHETIC_CLASSES)
