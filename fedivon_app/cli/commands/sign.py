"""Signs the code of a run, for sites that check what they run.

The code is bundled as `fedivon run` sends it. Without a key its hash is printed. A site that trusts
the key, or lists the hash, runs it; a signature is good for one run, which `fedivon run --signature
FILE` starts.
"""

from __future__ import annotations

import argparse

from fedivon_app.cli.parser import rate
from fedivon_app.cli.paths import given_path
from fedivon_app.core.errors import SettingsError
from fedivon_app.core.files import write_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes to its parser."""
    parser.add_argument(
        "--new-key",
        type=given_path,
        metavar="FILE",
        help="make a pair: FILE, and FILE.pub to hand out",
    )
    parser.add_argument("--name", default="operator", help="whose key it is, for --new-key")
    parser.add_argument("--key", type=given_path, metavar="FILE", help="sign with this key")
    parser.add_argument(
        "--to", type=given_path, metavar="FILE", help="where the signature goes (default: printed)"
    )
    parser.add_argument("--days", type=rate, default=7.0, help="days that it is valid (default: 7)")


def run(options: argparse.Namespace) -> int:
    """Make a key, a signature or the hash, and return the exit status."""
    from fedivon_app.federation.bundle import bundle_hash  # which brings Flower
    from fedivon_app.federation.signatures import make_key, sign

    if options.new_key:
        public = make_key(options.new_key, options.name)
        print(f"{options.new_key}\n{public}\nfor the signers of a site's file:")
        print(public.read_text(encoding="utf-8").strip())
        return 0
    if options.to and not options.key:
        raise SettingsError("--to is for a signature: add --key FILE")
    bundle = bundle_hash()
    if not options.key:
        print(bundle)
        return 0
    signature = sign(bundle, options.key, options.days)
    if options.to:
        print(f"{write_text(options.to, signature + chr(10))}: signs the bundle {bundle}")
    else:
        print(signature)
    return 0
