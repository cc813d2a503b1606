"""The pages in the navigation of the console."""

from __future__ import annotations

from dataclasses import dataclass

from memory_api.console.translations import N_


@dataclass(frozen=True)
class NavigationItem:
    """A link: the segments of its address, and its English name. `scope` is what a key needs."""

    path: tuple[str, ...]
    text: str
    scope: str = "read"

    @property
    def section(self) -> str:
        """The first segment of the address."""
        return self.path[0] if self.path else ""


NAVIGATION = (
    NavigationItem((), N_("Overview")),
    NavigationItem(("playbooks",), N_("Playbooks")),
    NavigationItem(("traces",), N_("Traces")),
    NavigationItem(("runs",), N_("Runs")),
    NavigationItem(("agent-runs",), N_("Ask")),
    NavigationItem(("collections",), N_("Collections")),
    NavigationItem(("analytics",), N_("Analytics")),
    NavigationItem(("evaluations",), N_("Evaluations")),
    NavigationItem(("sql",), N_("SQL")),
    NavigationItem(("costs",), N_("Costs")),
    NavigationItem(("keys",), N_("API keys"), scope="admin"),
    NavigationItem(("more",), N_("More")),
)
"""In the order of the page. The first segment of an address decides which item is marked."""
