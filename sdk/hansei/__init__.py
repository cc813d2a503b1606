"""The Hansei client: `Hansei`, `AsyncHansei` and the error base class `HanseiError`."""

from hansei.client import AsyncHansei, Hansei
from hansei.errors import HanseiError

__all__ = ["AsyncHansei", "Hansei", "HanseiError"]
