"""Imported by the fork server alone: the app, and what each of its runs would else read anew."""

from fedivon_app.federation import inline_run
from fedivon_app.runs.fingerprint import read_all

__all__ = ["inline_run"]

read_all()
