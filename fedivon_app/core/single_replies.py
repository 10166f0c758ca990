"""Which settings need to see the reply of a single client."""

from __future__ import annotations

from fedivon_app.core.attack_settings import ON_DATA
from fedivon_app.core.settings import AnySettings

BOUNDS = ("precision_bound", "change_bound", "size_bound")


def needing_single_replies(settings: AnySettings) -> list[str]:
    """Return the settings that compare the replies of clients, as they would be written.

    Whoever hides single replies from the server, as secure aggregation does, has to refuse these.
    """
    found = []
    if settings.merge.robust != "none":
        found.append(f"merge.robust={settings.merge.robust}")
    for name in BOUNDS:
        if (value := getattr(settings.server, name)) is not None:
            found.append(f"server.{name}={value:g}")
    if settings.server.history:
        found.append("server.history=true")
    if settings.attack.kind not in ("none", *ON_DATA):
        found.append(f"attack.kind={settings.attack.kind}")
    return found
