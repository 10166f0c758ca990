"""What is forked has not touched CUDA: neither the node's warm process nor the fork server's."""

import json
import subprocess
import sys

import pytest

# Told by a process that watches all ways by which Python comes to CUDA. On a machine without CUDA
# they are called all the same, and torch answers that there is none.
WATCHED = """
import json, traceback, torch

asked = []

def watched(module, name):
    real = getattr(module, name)

    def watching(*args, **kwargs):
        asked.append(f"{name}: {traceback.format_stack(limit=3)}")
        return real(*args, **kwargs)

    setattr(module, name, watching)

for name in ("_lazy_init", "is_available", "device_count", "current_device"):
    watched(torch.cuda, name)
for name in ("is_available", "current_accelerator", "device_count"):
    watched(torch.accelerator, name)
watched(torch._C, "_accelerator_getAccelerator")
"""
ZYGOTE = """
from fedivon_app.node.family import unfit
from fedivon_app.node.zygote import preload

preload()
why = unfit()
"""
FORK_SERVER = """
import fedivon_app.federation.inline_run

why = ""
"""
TELL = "print(json.dumps([why, torch.cuda.is_initialized(), asked]))"


@pytest.mark.parametrize("imports", [ZYGOTE, FORK_SERVER], ids=["zygote", "fork server"])
def test_imports_and_preloads_do_not_touch_cuda(imports):
    code = WATCHED + imports + TELL
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    why, initialised, asked = json.loads(done.stdout)
    assert not why and not initialised
    assert asked == []
