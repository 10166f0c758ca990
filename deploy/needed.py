"""Prints what must be installed before a project can be, in place and without a network.

It is called with the path of the project's pyproject.toml.
"""

import sys
import tomllib

with open(sys.argv[1], "rb") as file:
    project = tomllib.load(file)
print(
    *project["build-system"]["requires"],
    "editables==0.5",
    *project["project"]["dependencies"],
    sep="\n",
)
