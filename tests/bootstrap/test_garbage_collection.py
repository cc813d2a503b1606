"""The collector's settings, in a process of their own."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
from memory_api.bootstrap import GC_FIRST_THRESHOLD, freeze_startup_objects
freeze_startup_objects()
print(gc.get_freeze_count() > 1000, gc.get_threshold()[0] == GC_FIRST_THRESHOLD, gc.isenabled())
"""


def test_startup_objects_are_frozen() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "True", "True"]
