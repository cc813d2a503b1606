"""The collector's settings, in a process of their own."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
from apps.memory_api.core.collector import YOUNG, settle_collector
settle_collector()
print(gc.get_freeze_count() > 1000, gc.get_threshold()[0] == YOUNG, gc.isenabled())
"""


def test_what_was_loaded_is_looked_through_no_more() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "True", "True"]
