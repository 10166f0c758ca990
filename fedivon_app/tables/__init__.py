"""The papers' tables and figures: what each of them says, and what we measured beside it."""
