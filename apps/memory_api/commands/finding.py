"""What `hansei doctor` found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One thing looked at. `mend` says what to do when it is not well."""

    name: str
    well: bool
    found: str
    mend: str = ""
