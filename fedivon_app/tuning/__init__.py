"""The search for good settings, behind `fedivon tune`; only `makers` and `search` know of runs."""
