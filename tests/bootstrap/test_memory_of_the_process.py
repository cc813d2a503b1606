"""What a process holds of large blocks that it has freed, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import psutil
from apps.memory_api.bootstrap import return_large_blocks

if sys.argv[1] == "fixed":
    return_large_blocks()
process = psutil.Process()
large = bytearray(30 << 20)
del large  # glibc takes blocks up to this size from its heap from now on
before = process.memory_info().rss
large = bytearray(30 << 20)
above = [bytearray(100_000) for _ in range(10)]
del large
print((process.memory_info().rss - before) >> 20)
"""


def held(option: str) -> int:
    """MB that the process holds after it has freed a block of 30 MB."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, option], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="of the C library of GNU")
def test_large_blocks_go_back_to_the_system() -> None:
    assert held("fixed") < 5
    assert held("default") >= 25, "no need for return_large_blocks any more"
