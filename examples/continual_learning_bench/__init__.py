"""Hansei as a system of Continual Learning Bench."""

from .system import HanseiSystem

__all__ = ["HanseiSystem"]
