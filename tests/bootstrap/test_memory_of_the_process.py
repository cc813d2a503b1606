"""What a process holds of memory that it has freed, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="of the C library of GNU")

LARGE_BLOCK = """
import sys
import psutil
from memory_api.bootstrap import return_large_blocks

if sys.argv[1] == "returned":
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
SMALLER_BLOCKS = """
import asyncio
import sys
import psutil
from memory_api.bootstrap import return_memory

async def main():
    process = psutil.Process()
    before = process.memory_info().rss
    blocks = [bytearray(15_000) for _ in range(2_000)]
    above = bytearray(15_000)
    async with return_memory(interval=0.05 if sys.argv[1] == "returned" else 3_600):
        blocks.clear()
        await asyncio.sleep(0.5)
    print((process.memory_info().rss - before) >> 20)

asyncio.run(main())
"""


def held(program: str, option: str) -> int:
    """MB that the process holds after it has freed 30 MB."""
    done = subprocess.run(
        [sys.executable, "-c", program, option], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_large_blocks_go_back_to_the_system() -> None:
    assert held(LARGE_BLOCK, "returned") < 5
    assert held(LARGE_BLOCK, "default") >= 25, "no need for return_large_blocks any more"


def test_the_holes_of_smaller_blocks_go_back_to_the_system() -> None:
    assert held(SMALLER_BLOCKS, "returned") < 5
    assert held(SMALLER_BLOCKS, "default") >= 25, "no need for return_free_pages any more"
