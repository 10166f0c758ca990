"""The node config of a site, as the commands take it that look at the site's policy."""

from __future__ import annotations

import argparse
import re
from typing import Any

# A name and its value. Flower passes over whatever is neither, without a word.
PAIR = re.compile(r"\S+?=('[^']*'|\"[^\"]*\"|\S+)")


def add_node_config(parser: argparse.ArgumentParser) -> None:
    """Add the node config, in the words in which the site's node is given it."""
    parser.add_argument(
        "--node-config",
        type=node_config,
        default={},
        metavar="WORDS",
        help="the --node-config of the site's node",
    )


def node_config(text: str) -> dict[str, Any]:
    """Return the values of a node config."""
    from flwr.common.config import parse_config_args  # which takes a while to import

    if lost := PAIR.sub("", text).split():
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a node config, such as 'name=\"clinic\" epsilon-limit=4': "
            f"{lost[0]!r} has no value"
        )
    try:
        return dict(parse_config_args([text]))
    except Exception as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a node config, such as 'name=\"clinic\" epsilon-limit=4': {error}"
        ) from None
