"""Prompt files, templates, and the cacheable prefix of a prompt.

A prompt is the first of these files that exists; `<name>` may have folders (`reflection/failure`),
and files end in `.md` or `.txt`:

    <operator directory>/<tenant>/<playbook>/<name>
    <operator directory>/<tenant>/<name>
    <operator directory>/<name>
    <packaged prompts>/<name>

Without any of them, it is the short form that a reflector of the library passes; the service has no
second text of its prompts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote

from memory_api.core.errors import HanseiError
from memory_api.core.resources import packaged_path
from memory_api.llm.port import Message
from memory_api.llm.untrusted_text import new_delimiter

_SUFFIXES = (".md", ".txt")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*(?:/[a-z0-9][a-z0-9_-]*)*", re.ASCII)
_PLAIN_FOLDER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}", re.ASCII)
_TOKEN = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)
_MAX_FOLDER_BYTES = 200  # file systems allow 255


class PromptMissing(HanseiError):
    """Prompt not found."""

    code = "prompt_missing"


class PromptInvalid(HanseiError):
    """A custom prompt file is not valid."""

    status, code = 422, "prompt_invalid"


_RUN = """schema outcome language task_goal task_description tools called_tools error
    error_category error_message error_context ground_truth recorded_result test_report findings
    comparison focus
    attempts task_hints lessons bullets events shortened unexplained agents"""
_TRAJECTORY = "schema query generated_answer ground_truth reasoning_steps"
PLACEHOLDERS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        name: frozenset(names.split())
        for name, names in {
            "reflection/failure": _RUN,
            "reflection/success": _RUN,
            "reflection/partial": _RUN,
            "maintenance/dreaming": "schema counts statements episodes",
            "maintenance/session_summary": "schema episodes",
            "reflection/data": _RUN,
            "reflection/batch": "schema runs focus tools lessons bullets unexplained",
            "reflection/batch_run": f"{_RUN} run had_bullets",
            "reflector/default": f"""{_TRAJECTORY} test_report used_bullets findings
                previous_insights""",
            "reflector/bullet/default": f"{_TRAJECTORY} bullet",
            "transcripts/analyze": "schema transcript playbook cited_ids",
            "curation/curate": "schema focus sections titles bullets lessons",
            "curation/consolidate": "schema groups",
            "evaluation/evaluate": "schema goal task answer evidence findings events",
            "workflow/answer": "context query",
            "grace/plan": """schema tools collections bullets experience situation query
                conversation""",
            "grace/answer": """schema bullets context sources query question person
                conversation""",
            "grace/judge": "schema sources others query answer person conversation",
            "grace/act": "schema tools query observations iterations person conversation",
            "retrieval/prompt_block": "key_points",
        }.items()
    }
)
"""Prompt name → the placeholders that its file may use."""
_REQUIRED = {
    "curation/curate": "lessons",
    "curation/consolidate": "groups",
    "evaluation/evaluate": "events",
}
"""Prompt name → the placeholder without which the model would see no data."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt template. `hash` is the SHA-256 of `text` in hex. `source` is its file, or
    "built-in".
    """

    name: str
    text: str
    hash: str
    source: str


def packaged_prompt_directory() -> Path:
    """The default prompts."""
    return packaged_path("prompts")


def load_prompt(
    name: str,
    *,
    tenant: str | Sequence[str] | None = None,
    playbook: str | None = None,
    operator_dir: Path | None = None,
    packaged_dir: Path | None = None,
    builtin: str | None = None,
) -> Prompt:
    """Load the prompt that applies to a tenant and a playbook.

    `operator_dir` has the operator's custom prompts; `packaged_dir` replaces the packaged prompts.
    `tenant` may have several names, such as its ID and its slug. Raises ValueError for an invalid
    name, PromptInvalid for a file with an unknown placeholder, and PromptMissing if there is
    neither a file nor `builtin`.
    """
    stem = name.removesuffix(".md").removesuffix(".txt")
    if not _NAME.fullmatch(stem):
        raise ValueError(f"{name!r} is not a valid prompt name.")
    packaged_dir = packaged_dir or packaged_prompt_directory()
    tenants = [tenant] if isinstance(tenant, str) else list(tenant or ())
    for folder in _list_folders(tenants, playbook, operator_dir, packaged_dir):
        for suffix in _SUFFIXES:
            path = folder / f"{stem}{suffix}"
            if path.is_file():
                is_custom = folder != packaged_dir
                text = _read_template(stem, path) if is_custom else path.read_text("utf-8")
                return Prompt(stem, text, content_hash(text), str(path))
    if builtin is None:
        raise PromptMissing(f"Prompt {stem!r} not found.")
    return Prompt(stem, builtin, content_hash(builtin), "built-in")


def _read_template(name: str, path: Path) -> str:
    """Raises PromptInvalid. The name of the file, without its folders outside the prompts, is in
    the message.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise PromptInvalid(f"The prompt file {name}{path.suffix} is not UTF-8 text.") from None
    problem = find_template_problem(name, text)
    if problem is not None:
        raise PromptInvalid(f"The prompt file {name}{path.suffix} is not valid. {problem}")
    return text


def find_template_problem(name: str, text: str) -> str | None:
    """What is wrong with a template of the prompt `name`, in one or two sentences; None if nothing
    is.
    """
    known = PLACEHOLDERS.get(name)
    if known is None:
        return None
    used = placeholders_of(text)
    if name in _REQUIRED and _REQUIRED[name] not in used:
        return f"The placeholder `{{{_REQUIRED[name]}}}` is missing."
    if unknown := sorted(used - known):
        names = ", ".join(f"`{{{item}}}`" for item in unknown)
        return f"Unknown placeholder {names}. Known placeholders: {', '.join(sorted(known))}."
    if len(_SECTION_START.findall(text)) != len(_SECTION.findall(text)):
        return "A line `{if …}` has no line `{end if}` of its own."
    return None


def check_prompt_directory(directory: Path) -> list[str]:
    """The problems of the operator's custom prompts, each with its file: files that are no valid
    template, and files that no prompt is named like.
    """
    if not directory.is_dir():
        return [f"The folder {directory} does not exist."]
    problems: list[str] = []
    for path in sorted(directory.rglob("*")):
        if path.suffix not in _SUFFIXES or not path.is_file():
            continue
        shown = path.relative_to(directory).as_posix()
        parts = path.relative_to(directory).with_suffix("").parts
        name = next(
            (n for n in PLACEHOLDERS if parts[-n.count("/") - 1 :] == tuple(n.split("/"))), ""
        )
        if not name:
            problems.append(f"{shown}: No prompt has this name. Names: {', '.join(PLACEHOLDERS)}.")
            continue
        try:
            _read_template(name, path)
        except PromptInvalid as error:
            problems.append(f"{shown}: {error.detail}")
    return problems


def _list_folders(
    tenants: Sequence[str], playbook: str | None, operator_dir: Path | None, packaged_dir: Path
) -> Iterator[Path]:
    """The folders to search, most specific first."""
    if operator_dir is not None:
        folders = [operator_dir / safe_folder_name(tenant) for tenant in tenants]
        if playbook is not None:
            yield from (folder / safe_folder_name(playbook) for folder in folders)
        yield from folders
        yield operator_dir
    yield packaged_dir


def safe_folder_name(name: str) -> str:
    """Convert the name of a tenant or playbook to a folder name: unchanged if it is plain ASCII,
    else percent-encoded, or a hash if that is too long. The result has no path separator and no
    leading dot, and different names have different folders.
    """
    if _PLAIN_FOLDER.fullmatch(name):
        return name
    encoded = quote(name, safe="", errors="surrogatepass").replace(".", "%2E")
    return encoded if 0 < len(encoded) <= _MAX_FOLDER_BYTES else f"%sha256-{content_hash(name)}"


def content_hash(text: str) -> str:
    """SHA-256 of the text, in hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def render_template(template: str, values: Mapping[str, str]) -> str:
    """Replace each `{name}` by its value. Braces in values are not interpreted.

    If the template contains `{{`, then `{{` and `}}` mean one brace each. Otherwise `}}` stays, for
    example at the end of a JSON object. All other braces stay too. Raises ValueError for a name
    without a value.
    """
    has_escapes = "{{" in template

    def fill(match: re.Match[str]) -> str:
        token, name = match.group(), match.group(1)
        if name is None:
            return token[0] if has_escapes else token
        if name not in values:
            raise ValueError(f"The prompt's placeholder {{{name}}} has no value.")
        return values[name]

    return _TOKEN.sub(fill, template)


_SECTION_START = re.compile(r"^\{if [a-z_]+\}[ \t]*$", re.MULTILINE)
_SECTION = re.compile(
    r"^\{if ([a-z_]+)\}[ \t]*\n(.*?)^\{end if\}[ \t]*(?:\n|\Z)", re.MULTILINE | re.DOTALL
)


def select_sections(template: str, values: Mapping[str, str]) -> str:
    """Leave out the sections without content: the lines between `{if name}` and `{end if}` stay
    only if the value of `name` is not empty. Both marks have a line of their own. Sections are not
    nested. Raises ValueError for a name without a value.
    """

    def choose(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise ValueError(f"The prompt's placeholder {{{match[1]}}} has no value.")
        return match[2] if values[match[1]] else ""

    return _SECTION.sub(choose, template)


def placeholders_of(template: str) -> frozenset[str]:
    """The names of the placeholders and sections of a template."""
    names = {match[1] for match in _TOKEN.finditer(template) if match[1]}
    return frozenset(names | {match[1] for match in _SECTION.finditer(template)})


_CONSTANT_PLACEHOLDER = "schema"
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True)
class PromptMessages:
    """A rendered prompt as messages. The first `cache_prefix` messages do not depend on the
    data.
    """

    messages: tuple[Message, ...]
    cache_prefix: int
    variable_text: str
    """The text of the other messages."""
    bullet_keys: tuple[str, ...] = ()
    """The keys of the bullets in the prompt."""
    hash: str | None = None
    """The hash of the template."""


def split_cacheable_prefix(
    template: str, values: Mapping[str, str], bullet_keys: tuple[str, ...] = ()
) -> PromptMessages:
    """Render a template, without its empty sections, as a constant system message and a user
    message with the data. The user message starts at the first line with a placeholder other than
    `{schema}`, or at the headings right above it.
    """
    delimiter = new_delimiter()
    template = select_sections(template, values)
    lines = template.splitlines(keepends=True)
    first = next((i for i, line in enumerate(lines) if _has_variable(line)), len(lines))
    while first and _is_heading_or_blank(lines[first - 1]):
        first -= 1
    delimited = "".join((*lines[:first], delimiter, *lines[first:]))
    rendered = render_template(delimited, values)
    constant, variable = (part.strip() for part in rendered.split(delimiter, 1))
    if not variable:  # a request needs a user message
        constant, variable = "", constant
    system = (Message("system", constant),) if constant else ()
    messages = (*system, Message("user", variable))
    return PromptMessages(messages, len(system), variable, bullet_keys)


def _is_heading_or_blank(line: str) -> bool:
    text = line.strip()
    return not text or text.startswith("#") or text.endswith(":")


def _has_variable(line: str) -> bool:
    return any(name != _CONSTANT_PLACEHOLDER for name in _PLACEHOLDER.findall(line))
