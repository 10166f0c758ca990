"""When and how the models of a run are scored."""

from __future__ import annotations

from pydantic import Field, ValidationInfo, field_validator

from fedivon_app.core.scores import NUMBER_SCORES, chosen_scores
from fedivon_app.core.section import Section
from fedivon_app.core.text import did_you_mean


class EvaluationSettings(Section):
    """When, and with how many weight samples, the global model is scored."""

    every: int = Field(
        10,
        ge=0,
        description="rounds between server evaluations; the last round is always scored; 0: only "
        "that one",
    )
    at: tuple[int, ...] = Field((), description="further rounds that are scored")
    samples: int = Field(32, ge=0, description="Monte Carlo samples; 0: at the mean only")
    final_samples: int = Field(64, ge=0, description="Monte Carlo samples after the last round")
    test: bool = Field(
        True,
        description="the global model is scored on the central test set; without, only on held-out "
        "examples, as in the trials of a search",
    )
    antithetic: bool = Field(
        False,
        description="every second sample mirrors the one before it at the mean, for the error of "
        "several times as many",
    )
    clients_every: int = Field(
        0,
        ge=0,
        description="rounds between evaluations on the clients' test parts, and after the last; "
        "0: never",
    )
    sets: bool = Field(
        False,
        description="clients also report histograms of their scores, by which prediction sets are "
        "calibrated; see clients_every",
    )
    personal: bool = Field(
        False,
        description="clients keep what they trained last as a PM, scored beside the GM; some "
        "methods always do",
    )
    ood: str | None = Field(
        None, description="out-of-distribution data: a source by name, see datasets/sources.py"
    )
    ood_path: str | None = Field(
        None, description="its file or folder, for the sources npz and image-folder"
    )
    ood_size: int = Field(
        5000, ge=1, description="test examples that are compared with as many of the ood data"
    )
    scores: tuple[str, ...] = Field(
        (),
        description="scores beside the usual ones: auroc, auprc, sensitivity_at_80, _90, _95 and "
        "_99 (percent of specificity), or your own as package.module:NAME",
    )
    select_by: str = Field("nll", description="held-out score of the best checkpoint")

    @field_validator("scores")
    @classmethod
    def _scores_exist(cls, scores: tuple[str, ...]) -> tuple[str, ...]:
        chosen_scores(scores)
        return scores

    @field_validator("select_by")
    @classmethod
    def _score_exists(cls, select_by: str, info: ValidationInfo) -> str:
        own = info.data.get("scores")  # absent if they are wrong, which is complained of already
        if own is None:
            return select_by
        known = {**chosen_scores(own), **NUMBER_SCORES}
        if select_by not in known:
            raise ValueError(f"there is no such score: {did_you_mean(select_by, known)}")
        return select_by
