"""Scores of predicted probabilities: accuracy, NLL, ECE, Brier, AUROC, uncertainty and retention.

Numpy only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fedivon_app.core.tally import Pooled

NUM_BINS = 15
BIN_EDGES = np.linspace(0, 1, NUM_BINS + 1)
SMALLEST_PROBABILITY = float(np.finfo(np.float32).tiny)
TOLERANCE = 1e-3
TWENTIETHS = tuple((np.arange(1, 21) / 20).tolist())


def _zero_bins() -> np.ndarray:
    return np.zeros(NUM_BINS)


@dataclass(frozen=True, eq=False)
class Tally(Pooled):
    """Sums over any number of examples, from which scores follow.

    `Tally()` is the sum over none. Tallies of different clients add up to the tally of all their
    examples, so that scores over clients come from pooled sums and pooled calibration bins, never
    from averages of the clients' scores. Bin b holds the examples whose largest probability lies in
    (b/15, (b+1)/15] (Guo et al. 2017, section 2).
    """

    SUMMED: ClassVar[tuple[str, ...]] = (
        "count",
        "correct",
        "nll_sum",
        "brier_sum",
        "bin_count",
        "bin_confidence",
        "bin_correct",
    )

    count: float = 0.0
    correct: float = 0.0
    nll_sum: float = 0.0
    brier_sum: float = 0.0
    bin_count: np.ndarray = field(default_factory=_zero_bins)
    bin_confidence: np.ndarray = field(default_factory=_zero_bins)
    bin_correct: np.ndarray = field(default_factory=_zero_bins)
    sums: Mapping[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        probabilities: np.ndarray,
        labels: np.ndarray,
        sums: Mapping[str, np.ndarray] | None = None,
    ) -> "Tally":
        """Return the tally of (N, C) probabilities against (N,) class numbers.

        `sums` are further sums over the same examples, by the names of the scores that need them.
        """
        probabilities, labels = _checked(probabilities, labels)
        confidence = probabilities.max(axis=1)
        correct = probabilities.argmax(axis=1) == labels
        truth = probabilities[np.arange(len(labels)), labels]
        # sum_c (p_c - [c = y])^2 = sum_c p_c^2 - 2 p_y + 1
        brier = np.square(probabilities).sum(axis=1) - 2 * truth + 1
        bins = np.clip(np.searchsorted(BIN_EDGES, confidence, side="left") - 1, 0, NUM_BINS - 1)
        return cls(
            count=float(len(labels)),
            correct=float(correct.sum()),
            nll_sum=float(-np.log(np.maximum(truth, SMALLEST_PROBABILITY)).sum()),
            brier_sum=float(brier.sum()),
            bin_count=np.bincount(bins, minlength=NUM_BINS).astype(np.float64),
            bin_confidence=np.bincount(bins, weights=confidence, minlength=NUM_BINS),
            bin_correct=np.bincount(bins, weights=correct, minlength=NUM_BINS),
            sums=dict(sums or {}),
        )

    @property
    def accuracy(self) -> float:
        """Return the share of examples whose likeliest class is the right one."""
        return self.correct / self.count

    @property
    def nll(self) -> float:
        """Return the mean of -log p_y."""
        return self.nll_sum / self.count

    @property
    def ece(self) -> float:
        """Return the expected calibration error, sum_b |correct_b - confidence_b| / N."""
        return float(np.abs(self.bin_correct - self.bin_confidence).sum() / self.count)

    @property
    def brier(self) -> float:
        """Return the Brier score, summed over classes."""
        return self.brier_sum / self.count

    def scores(self) -> dict[str, float]:
        """Return the four scores that need nothing but the fields of a tally."""
        if self.count == 0:
            raise ValueError("no scores: the tally holds no examples")
        return {"accuracy": self.accuracy, "nll": self.nll, "ece": self.ece, "brier": self.brier}

    def _check(self) -> None:
        if (self.bin_count.sum(), self.bin_correct.sum()) != (self.count, self.correct):
            raise ValueError(
                "the tally's bins do not add up to its count of examples and of correct ones"
            )


def classification(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Return accuracy, nll, ece and brier of (N, C) probabilities, by name."""
    return Tally.of(probabilities, labels).scores()


def reliability(
    source: Tally | np.ndarray, labels: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Return the bins of a reliability diagram: mean confidence, accuracy and count, each (15,).

    Confidence and accuracy are NaN where a bin is empty. The bins are those of a Tally, or of
    (N, C) probabilities and their labels.
    """
    if isinstance(source, Tally) and labels is None:
        tally = source
    elif not isinstance(source, Tally) and labels is not None:
        tally = Tally.of(source, labels)
    else:
        raise ValueError("reliability takes a Tally, or probabilities with their labels")
    filled = np.where(tally.bin_count > 0, tally.bin_count, np.nan)
    return {
        "confidence": tally.bin_confidence / filled,
        "accuracy": tally.bin_correct / filled,
        "count": tally.bin_count,
    }


def auroc(scores_in: np.ndarray, scores_out: np.ndarray) -> float:
    """Return P(out > in) + P(out = in) / 2 over all pairs.

    A higher score means more out-of-distribution.
    """
    inside = _scores("scores_in", scores_in)
    outside = _scores("scores_out", scores_out)
    outside = np.sort(outside)
    not_above = np.searchsorted(outside, inside, side="right")
    below = np.searchsorted(outside, inside, side="left")
    pairs = len(inside) * len(outside)
    return float(1 - (not_above.sum() + below.sum()) / (2 * pairs))


def uncertainty(sample_probabilities: np.ndarray) -> dict[str, np.ndarray]:
    """Return entropy, aleatoric and epistemic uncertainty of M samples p_m with mean p, each (N,).

    The samples are (M, N, C). entropy = -sum_c p_c log p_c / log C, in [0, 1]; of the matrices
    mean_m(diag(p_m) - p_m p_m^T) (aleatoric) and mean_m((p_m - p)(p_m - p)^T) (epistemic) the
    traces, mean_m sum_c p_mc (1 - p_mc) and mean_m sum_c (p_mc - p_c)^2. The two add up to
    sum_c p_c (1 - p_c).
    """
    samples = np.asarray(sample_probabilities)
    if samples.ndim != 3 or samples.shape[0] == 0:
        raise ValueError(
            f"sample probabilities must have shape (M, N, C) with M at least 1, not {samples.shape}"
        )
    mean = np.zeros(samples.shape[1:])
    second = np.zeros(samples.shape[1:])
    for sample in samples:
        sample = _checked_probabilities(sample)
        mean += sample / len(samples)
        second += np.square(sample) / len(samples)
    return uncertainty_of_moments(mean, second)


def uncertainty_of_moments(mean: np.ndarray, second: np.ndarray) -> dict[str, np.ndarray]:
    """Return the same from the mean p and the mean square of the samples, (N, C) float64.

    So none of the samples has to be kept.

    The traces are sum_c (E[p_c] - E[p_c^2]) (aleatoric) and sum_c (E[p_c^2] - p_c^2) (epistemic).
    """
    log = np.log(mean, out=np.zeros_like(mean), where=mean > 0)
    return {
        "entropy": -(mean * log).sum(axis=1) / np.log(mean.shape[1]),
        "aleatoric": (mean - second).sum(axis=1),
        "epistemic": np.maximum((second - np.square(mean)).sum(axis=1), 0),
    }


def retention_curve(
    correct: np.ndarray,
    uncertainty: np.ndarray,
    fractions: Sequence[float] | np.ndarray = TWENTIETHS,
) -> np.ndarray:
    """Return the accuracy over the most certain fraction of the examples, for each of `fractions`.

    At least one example is kept. Among equally uncertain examples none is preferred: the accuracy
    is the expected one under a random order of them, so the order of the arrays does not matter.
    """
    right = np.asarray(correct, dtype=np.float64)
    uncertain = _scores("uncertainty", uncertainty)
    shares = np.asarray(fractions, dtype=np.float64)
    if right.shape != uncertain.shape:
        raise ValueError(
            f"correct {right.shape} and uncertainty {uncertain.shape} must have one entry per "
            "example"
        )
    if not ((shares > 0) & (shares <= 1)).all():
        raise ValueError(f"fractions must lie in (0, 1], not {shares.tolist()}")
    _, group, size = np.unique(uncertain, return_inverse=True, return_counts=True)
    group_accuracy = np.bincount(group, weights=right) / size
    running = np.cumsum(np.repeat(group_accuracy, size))
    kept = np.maximum(1, np.rint(shares * len(right)).astype(int))
    curve: np.ndarray = running[kept - 1] / kept
    return curve


def _checked(probabilities: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    probabilities = _checked_probabilities(probabilities)
    labels = np.asarray(labels)
    if labels.shape != probabilities.shape[:1]:
        raise ValueError(
            f"labels of shape {labels.shape} do not fit probabilities of shape "
            f"{probabilities.shape}"
        )
    if not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"labels must be whole class numbers, not {labels.dtype}")
    if labels.min() < 0 or labels.max() >= probabilities.shape[1]:
        classes = probabilities.shape[1]
        raise ValueError(
            f"labels run from {labels.min()} to {labels.max()}, outside of 0 to {classes - 1}"
        )
    return probabilities, labels


def _checked_probabilities(probabilities: np.ndarray) -> np.ndarray:
    probabilities = np.asarray(probabilities, dtype=np.float64)
    if probabilities.ndim != 2 or probabilities.shape[1] < 2:
        raise ValueError(
            "probabilities must have shape (N, C) with at least 2 classes, not "
            f"{probabilities.shape}"
        )
    if len(probabilities) == 0:
        raise ValueError("probabilities are empty: there is no example to score")
    wrong = ~(np.abs(probabilities.sum(axis=1) - 1) <= TOLERANCE) | (
        probabilities < -TOLERANCE
    ).any(axis=1)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"row {row} is no distribution over classes (it sums to {probabilities[row].sum():.6g})"
        )
    return probabilities


def _scores(name: str, scores: np.ndarray) -> np.ndarray:
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 1 or len(scores) == 0:
        raise ValueError(
            f"{name} must be a vector with at least one entry, not of shape {scores.shape}"
        )
    if np.isnan(scores).any():
        raise ValueError(f"{name} holds {int(np.isnan(scores).sum())} NaN")
    return scores
