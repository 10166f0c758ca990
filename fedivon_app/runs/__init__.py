"""Runs on disk: their folders, the catalogue of them, plans of many, and trained models."""
