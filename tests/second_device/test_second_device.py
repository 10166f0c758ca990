"""Everything that computes with torch, on a device that is not the CPU (see device.py).

The checks are tests of a pytest of their own, for a device that was registered stays in a process.
"""

import subprocess
import sys
from pathlib import Path

CHECKS = sorted(Path(__file__).parent.glob("check_*.py"))


def test_on_a_second_device_all_checks_pass():
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run([*words, *CHECKS], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
