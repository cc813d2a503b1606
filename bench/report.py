"""A report: prints tables and writes them to `bench/results/NAME.md`."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


class Report:
    """Tables by name, in the order of their declaration."""

    def __init__(self, name: str, about: str) -> None:
        self.name, self.about = name, about
        self._tables: dict[str, tuple[str, tuple[str, ...], list[list[str]]]] = {}

    def table(self, key: str, title: str, *columns: str) -> None:
        self._tables[key] = (title, columns, [])

    def row(self, key: str, *cells: object) -> None:
        """Add a row and print it, to show the progress of a long run."""
        row = [str(cell) for cell in cells]
        self._tables[key][2].append(row)
        Console(stderr=True).print(f"{key}: {' | '.join(row)}", highlight=False)

    def finish(self, *, write: bool = True) -> Path:
        """Print all tables, write the file if `write`, and return its path."""
        console = Console(width=140)
        console.print(self.about)
        for title, columns, rows in self._tables.values():
            shown = Table(*columns, title=title)
            for row in rows:
                shown.add_row(*row)
            console.print(shown)
        path = RESULTS / f"{self.name}.md"
        if write:
            RESULTS.mkdir(exist_ok=True)
            path.write_text(self.text(), encoding="utf8")
        return path

    def text(self) -> str:
        """The file."""
        lines = [f"# bench: {self.name}", "", self.about]
        for title, columns, rows in self._tables.values():
            lines += ["", f"## {title}", "", _line(columns), _line(["---"] * len(columns))]
            lines += [_line(row) for row in rows]
        return "\n".join(lines) + "\n"


def _line(cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"  # type: ignore[call-overload]
