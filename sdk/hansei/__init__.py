"""Hansei's client: `Hansei`, `AsyncHansei`, and `HanseiError`, which every call may raise."""

from hansei.client import AsyncHansei, Hansei
from hansei.errors import HanseiError

__all__ = ["AsyncHansei", "Hansei", "HanseiError"]
