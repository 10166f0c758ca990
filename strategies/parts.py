"""Where the parts of a model lie in the flat vector, for servers that treat them differently."""

from __future__ import annotations

from fedivon_app.core.client_settings import ClientSettings, HeadSettings
from fedivon_app.core.flat import Part
from fedivon_app.core.network import Architecture


def head_of(client: ClientSettings, architecture: Architecture) -> Part:
    """Return where the head lies whose name is among the options of a method's clients."""
    if not isinstance(client, HeadSettings):
        raise TypeError(f"{type(client).__name__} does not say which part of the model is its head")
    return architecture.head(client.head)
