"""What a pyproject.toml wants to be installed before the project itself can be, in place and without a network."""

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
