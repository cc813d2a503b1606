"""Files of a clone that would fill the memory of whoever reads them. They are sparse here, as in
the attack, so they take no disk."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hansei import Hansei
from hansei._file_limit import MAX_FILE_BYTES, MAX_PLAYBOOK_BYTES, MEBIBYTE, limited_lines
from hansei.cli.main import app
from hansei.coding_agents.hook_settings import read_settings
from hansei.errors import BadRequestError
from tests.sdk.stub_service import KEY, StubService


def sparse(name: str, size: int, start: bytes = b"") -> str:
    path = Path(name)
    path.write_bytes(start)
    with path.open("r+b") as file:
        file.truncate(size)
    return name


@pytest.fixture
def environment(service: StubService) -> dict[str, str]:
    return {"HANSEI_URL": service.url, "HANSEI_API_KEY": KEY}


@pytest.mark.parametrize(
    ("command", "name", "size"),
    [
        (["collection", "add", "docs"], "big.txt", 51 * MEBIBYTE),
        (["playbook", "import", "coding"], "AGENTS.md", MAX_PLAYBOOK_BYTES + 1),
        (["reflect"], "one-line.jsonl", MAX_FILE_BYTES + MEBIBYTE),
    ],
)
def test_large_file_is_refused_with_its_limit(
    environment: dict[str, str], command: list[str], name: str, size: int
) -> None:
    done = CliRunner().invoke(app, [*command, sparse(name, size)], env=environment)
    assert done.exit_code != 0
    assert isinstance(done.exception, (SystemExit, BadRequestError)), done.exception
    assert "is larger than" in done.output + str(done.exception)


def test_document_of_many_lines_is_refused(hansei: Hansei) -> None:
    file = sparse("traces.json", MAX_FILE_BYTES + MEBIBYTE, b"[\n")
    with pytest.raises(BadRequestError, match="is larger than 256 MiB"):
        list(hansei.traces.create_many(file))


def test_settings_of_an_agent_are_refused() -> None:
    with pytest.raises(BadRequestError, match=r"settings\.json is larger than 1 MiB"):
        read_settings(Path(sparse("settings.json", 2 * MEBIBYTE)))


def test_lines_may_be_as_long_as_the_limit() -> None:
    assert list(limited_lines(BytesIO(b"abc\nde"), 4)) == [b"abc\n", b"de"]
    with pytest.raises(BadRequestError, match="A line of the file"):
        list(limited_lines(BytesIO(b"abcd\n"), 4))
