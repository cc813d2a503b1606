"""Python's collector of cycles, set for a process that lives long."""

from __future__ import annotations

import gc

YOUNG = 10_000
"""New objects before the collector looks at them; Python's own is 700, which a playbook of ten
thousand bullets passes eighty times.
"""


def settle_collector() -> None:
    """Call when all is loaded: it stays for the life of the process, so it is looked through no
    more. Otherwise an answer of many small objects pays for a walk through every module.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 20, 20)
