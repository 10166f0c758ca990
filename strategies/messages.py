"""Messages to the clients: the posterior, what a client is told, and the settings of the run."""

from __future__ import annotations

from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from fedivon_app.core.instructions import Instructions
from fedivon_app.core.settings import AnySettings

COLUMN_SUMS = "column-sums"  # what a QUERY may ask for besides the roll call


class Contents:
    """Makes what is in a message; the settings of the run go with each."""

    def __init__(self, settings: AnySettings):
        self._settings_json = settings.model_dump_json()

    def __call__(
        self,
        told: Instructions,
        config: ConfigRecord | None = None,
        arrays: ArrayRecord | None = None,
        ask: str | None = None,
    ) -> RecordDict:
        """Return the records of a message; without arrays it carries no posterior."""
        values = {**(config or {}), **told.to_config(), "settings": self._settings_json}
        if ask is not None:
            values["ask"] = ask
        content = RecordDict({"config": ConfigRecord(values)})
        if arrays is not None:
            content["posterior"] = arrays
        return content
