"""The settings that the server's tests share."""

from __future__ import annotations

from fedivon_app.core.compose import compose
from fedivon_app.core.settings import AnySettings
from fedivon_app.methods import settings_of


def demo(*overrides: str, strategy: str | None = None) -> AnySettings:
    """Return the demo's settings with these changes."""
    return compose(settings_of, "demo", strategy, overrides)
