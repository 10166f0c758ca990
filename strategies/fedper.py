"""FedPer and FedRep."""

from __future__ import annotations

from fedivon_app.strategies.fedavg import PointMergeSettings, PointStrategy


class FedPer(PointStrategy[PointMergeSettings]):
    """FedPer's and FedRep's server: the bases averaged, by data size.

    Its head is the first one, for clients send it back as it came.
    """

    @property
    def has_global_model(self) -> bool:
        return False
