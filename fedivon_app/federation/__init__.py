"""Flower's processes: a SuperLink, a local federation, the app's bundle, keys and sites."""
