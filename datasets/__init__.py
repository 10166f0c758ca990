"""Data: sources by name (`sources.load`) and the maps that divide them among clients (`partition.split`)."""
