"""Prompts are files. A prompt is what its file says, and its identity is the hash of that text.

Looked for in this order, first found wins; `<name>` may have folders (`reflection/failure`), files
end in `.md` or `.txt`:

    <operator directory>/<tenant>/<playbook>/<name>
    <operator directory>/<tenant>/<name>
    <operator directory>/<name>
    <packaged prompts>/<name>
    the built-in short form handed in by the caller
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from apps.memory_api.core.errors import HanseiError

_SUFFIXES = (".md", ".txt")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*(?:/[a-z0-9][a-z0-9_-]*)*", re.ASCII)
_PLAIN_FOLDER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}", re.ASCII)
_TOKEN = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)
_MAX_FOLDER = 200  # bytes; file systems allow 255


class PromptMissing(HanseiError):
    """There is no such prompt."""

    code = "prompt_missing"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A template. `hash` is the SHA-256 of `text` in hex; `source` is the file it came from, or
    "built-in".
    """

    name: str
    text: str
    hash: str
    source: str

    def render(self, **values: str) -> str:
        """The text with its placeholders filled in; see `render`."""
        return render(self.text, values)


def packaged_prompts() -> Path:
    """The default prompts: inside the installed package, or at the root of a checkout."""
    here = Path(__file__).resolve()
    installed = here.parents[1] / "prompts"
    return installed if installed.is_dir() else here.parents[3] / "prompts"


def load(
    name: str,
    *,
    tenant: str | None = None,
    playbook: str | None = None,
    operator: Path | None = None,
    default: Path | None = None,
    builtin: str | None = None,
) -> Prompt:
    """The prompt that applies. `operator` is the directory of the operator's own files, `default`
    replaces
    the packaged ones. Raises ValueError for a name that is not one, PromptMissing when there is
    neither file nor
    `builtin`.
    """
    stem = name.removesuffix(".md").removesuffix(".txt")
    if not _NAME.fullmatch(stem):
        raise ValueError(f"not a prompt name: {name!r}")
    for folder in _folders(tenant, playbook, operator, default or packaged_prompts()):
        for suffix in _SUFFIXES:
            path = folder / f"{stem}{suffix}"
            if path.is_file():
                text = path.read_text(encoding="utf-8")
                return Prompt(stem, text, content_hash(text), str(path))
    if builtin is None:
        raise PromptMissing(f"there is no prompt {stem!r}")
    return Prompt(stem, builtin, content_hash(builtin), "built-in")


def _folders(
    tenant: str | None, playbook: str | None, operator: Path | None, default: Path
) -> Iterator[Path]:
    if operator is not None:
        if tenant is not None:
            own = operator / folder_name(tenant)
            if playbook is not None:
                yield own / folder_name(playbook)
            yield own
        yield operator
    yield default


def folder_name(name: str) -> str:
    """A tenant's or playbook's name as one folder: itself when it is plain ASCII, else
    percent-encoded, else (too
    long) a hash. Never a path separator, never a leading dot, and different names never meet."""
    if _PLAIN_FOLDER.fullmatch(name):
        return name
    encoded = quote(name, safe="", errors="surrogatepass").replace(".", "%2E")
    return encoded if 0 < len(encoded) <= _MAX_FOLDER else f"%sha256-{content_hash(name)}"


def content_hash(text: str) -> str:
    """SHA-256 of the text, in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def render(template: str, values: Mapping[str, str]) -> str:
    """Fill each `{name}` with its value, once: braces in values are text.

    In a template that has `{{` somewhere, `{{` and `}}` stand for one brace each; in one that has
    none, `}}` is what it is (the end of a JSON example). Any other brace stays. Raises ValueError
    for a name without a value.
    """
    doubled = "{{" in template

    def fill(match: re.Match[str]) -> str:
        token, name = match.group(), match.group(1)
        if name is None:
            return token[0] if doubled else token
        if name not in values:
            raise ValueError(f"the template's placeholder {{{name}}} has no value")
        return values[name]

    return _TOKEN.sub(fill, template)
