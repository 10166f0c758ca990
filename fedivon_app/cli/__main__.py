"""`python -m fedivon_app.cli` is `fedivon`."""

from __future__ import annotations

import sys

from fedivon_app.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
