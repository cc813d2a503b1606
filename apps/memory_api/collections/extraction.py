"""Extracts the text of a document: plain text, Markdown, HTML and PDF. No database, no model."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Literal, TypeVar
from uuid import UUID

from memory_api.collections.markdown_tables import MAX_HEADING_ROWS
from memory_api.core.isolated_work import WorkTimeout, run_isolated
from memory_api.core.json_input import replace_unstorable
from memory_api.core.secret_redaction import redact

if TYPE_CHECKING:
    from pypdf import PdfReader

T = TypeVar("T")
MediaType = Literal["text/plain", "text/markdown", "text/html", "application/pdf"]

MAX_PAGES = 20_000
MAX_CHARACTERS = 50_000_000
"""Of the extracted text. A compressed PDF may contain far more than its size suggests."""
MAX_SECONDS = 600.0
"""For one document."""
MAX_TITLE_LENGTH = 200

SUFFIXES: dict[str, MediaType] = {
    ".txt": "text/plain",
    ".text": "text/plain",
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".html": "text/html",
    ".htm": "text/html",
    ".pdf": "application/pdf",
}
_ENCODINGS = ("utf-8-sig", "cp932", "euc_jp")
_PRIVATE_USE = re.compile("[\ue000-\uf8ff]")
"""What `cp932` makes of bytes that are no Japanese text."""
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class UnreadableDocument(Exception):
    """The document has no text that can be read. `code` and the message go to its `error`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)  # both, so that the error can leave a process
        self.code = code

    def __str__(self) -> str:
        return self.args[1]


@dataclass(frozen=True)
class ExtractedText:
    """The text by page; formats without pages have one. That of HTML is Markdown."""

    pages: list[str]
    title: str | None = None
    has_headings: bool = False


def choose_media_type(content_type: str, source: str, start: bytes) -> MediaType | None:
    """The type of a document by its first bytes, its `Content-Type` or the suffix of its source;
    None if none of them is supported.
    """
    if start.startswith(b"%PDF-"):
        return "application/pdf"
    if content_type in ("text/markdown", "text/html", "application/pdf"):
        return content_type
    suffix = re.search(r"\.\w{1,8}$", source.lower())
    by_suffix = SUFFIXES.get(suffix[0]) if suffix else None
    if content_type == "text/plain":
        return by_suffix or "text/plain"
    return by_suffix if content_type in ("", "application/octet-stream") else None


async def extract_isolated(data: bytes, media_type: str, tenant_id: UUID) -> ExtractedText:
    """`extract_clean_text` in a process of its own. Raises `UnreadableDocument`."""
    return await read_isolated(partial(extract_clean_text, data, media_type), len(data), tenant_id)


async def read_isolated(work: Callable[[], T], size: int, tenant_id: UUID) -> T:
    """Run `work` on a document in a process of its own: a hostile document of 20 MB takes gigabytes
    or hours. Raises `UnreadableDocument`.
    """
    try:
        return await run_isolated(work, size, tenant_id, max_inline_size=0, seconds=MAX_SECONDS)
    except WorkTimeout as error:
        reason = "Reading the document takes more than ten minutes, or too much memory."
        raise UnreadableDocument("too_slow", reason) from error


def extract_clean_text(data: bytes, media_type: str) -> ExtractedText:
    """`extract_text`, with secrets replaced."""
    extracted = extract_text(data, media_type)
    pages = [redact(page).text for page in extracted.pages]
    title = redact(extracted.title[:MAX_TITLE_LENGTH]).text if extracted.title else None
    return ExtractedText(pages, title, extracted.has_headings)


def extract_text(data: bytes, media_type: str) -> ExtractedText:
    """The text of a document. Raises `UnreadableDocument`."""
    if not data.strip():
        raise UnreadableDocument("empty", "The document is empty.")
    extracted = _extract_pdf(data) if media_type == "application/pdf" else _decode(data, media_type)
    pages = [replace_unstorable(page) for page in extracted.pages]
    if not any(page.strip() for page in pages):
        reason = (
            "The PDF contains no text. A scanned document needs text recognition first."
            if media_type == "application/pdf"
            else "The document contains no text."
        )
        raise UnreadableDocument("no_text", reason)
    title = " ".join(replace_unstorable(extracted.title or "").split())  # one line
    return ExtractedText(pages, title or None, extracted.has_headings)


def _decode(data: bytes, media_type: str) -> ExtractedText:
    text = _decode_text(data).replace("\r\n", "\n").replace("\r", "\n")
    if media_type == "text/html":
        parser = _HtmlText()
        parser.feed(text)
        parser.close()
        return ExtractedText([parser.text()], parser.title.strip(), has_headings=True)
    return ExtractedText([text], has_headings=media_type == "text/markdown")


def _decode_text(data: bytes) -> str:
    encodings = ("utf-16",) if data.startswith(_UTF16_MARKS) else _ENCODINGS
    if encodings == _ENCODINGS and data.count(b"\0") > len(data) // 100:
        raise UnreadableDocument("not_text", "The document is binary data, not text.")
    for encoding in encodings:
        with suppress(UnicodeDecodeError):
            text = data.decode(encoding)
            if encoding != "cp932" or not _PRIVATE_USE.search(text):
                return text
    raise UnreadableDocument("unknown_encoding", "The encoding is unknown. Send the text as UTF-8.")


def _extract_pdf(data: bytes) -> ExtractedText:
    # Imported with the first PDF: it takes 13 MB, half of them for cryptography.
    try:
        from pypdf import PasswordType, PdfReader  # noqa: PLC0415
        from pypdf.errors import DependencyError, PdfReadError, PyPdfError  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise UnreadableDocument(
            "pdf_not_supported", "This service does not read PDF. Install hansei-server[documents]."
        ) from error

    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and reader.decrypt("") is PasswordType.NOT_DECRYPTED:
            raise _encrypted()
        if len(reader.pages) > MAX_PAGES:
            raise UnreadableDocument(
                "too_many_pages", f"The PDF has more than {MAX_PAGES:,} pages."
            )
        title = reader.metadata.title if reader.metadata else None
        return ExtractedText(list(_pdf_pages(reader)), title)
    except UnreadableDocument:
        raise
    except DependencyError as error:  # an encryption that needs another library
        raise _encrypted() from error
    except PdfReadError as error:
        raise _broken() from error
    except (PyPdfError, ValueError, KeyError, IndexError, TypeError, AttributeError,
            RecursionError, OverflowError, AssertionError) as error:  # fmt: skip
        raise _broken() from error  # what the parser raises for damaged objects


def _pdf_pages(reader: PdfReader) -> Iterator[str]:
    size = 0
    for page in reader.pages:
        text = page.extract_text()
        size += len(text)
        if size > MAX_CHARACTERS:
            raise UnreadableDocument(
                "too_much_text", f"The PDF has more than {MAX_CHARACTERS:,} characters."
            )
        yield text


def _encrypted() -> UnreadableDocument:
    return UnreadableDocument(
        "encrypted", "The PDF is encrypted. Remove the password and send it again."
    )


def _broken() -> UnreadableDocument:
    return UnreadableDocument("broken_pdf", "The PDF is damaged and cannot be read.")


_BLOCK_NAMES = """
address article aside blockquote dd div dl dt figcaption figure footer form header hr main nav ol p
pre section table td th tr ul caption
"""
_BLOCKS = frozenset(_BLOCK_NAMES.split())
_HIDDEN = frozenset({"script", "style", "template", "noscript", "svg"})
_VOID_HIDDEN_LIMIT = 64
_TABLE_PARTS = frozenset({"caption", "tbody", "td", "tfoot", "th", "thead", "tr"})
_MAX_TABLE_DEPTH = 64


@dataclass
class _Table:
    """A table while its cells are read. One with headings or tables in its cells lays out a page
    and is no table of data.
    """

    rows: list[list[list[str]]] = field(default_factory=list[list[list[str]]])
    heading_count: int = 0
    """Rows at the start that have only `th` cells or are in `thead`."""
    outside: list[str] = field(default_factory=list[str])
    """What is outside of its cells, such as a caption."""
    in_head: bool = False
    is_layout: bool = False

    def add_cell(self, tag: str) -> list[str]:
        if not self.rows:
            self.rows.append([])
        cell: list[str] = []
        row, number = self.rows[-1], len(self.rows) - 1
        is_heading = tag == "th" or self.in_head
        if is_heading and not row and self.heading_count == number:
            self.heading_count += 1
        elif not is_heading and self.heading_count > number:
            self.heading_count = number
        row.append(cell)
        return cell

    def text(self) -> str:
        """A Markdown table with one line for each row, or the cells as paragraphs. One row or
        column without a heading is no table of data either.
        """
        before = "".join(self.outside).strip()
        rows = [["".join(cell) for cell in row] for row in self.rows if row]
        is_single = len(rows) < 2 or all(len(row) == 1 for row in rows)
        if self.is_layout or (is_single and not self.heading_count):
            cells = [cell for row in rows for cell in row]
            return "\n\n" + "\n\n".join([before, *cells]) + "\n\n"
        lines = [
            "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in row) + " |"
            for row in rows
        ]
        if 0 < self.heading_count <= MAX_HEADING_ROWS:
            width = len(rows[self.heading_count - 1])
            lines.insert(self.heading_count, "|" + "---|" * width)
        return "\n\n" + before + "\n\n" + "\n".join(lines) + "\n\n"


class _HtmlText(HTMLParser):
    """Collects the visible text as Markdown: headings, list items and tables."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self._page: list[str] = []
        self._parts = self._page
        """Where text goes: the page, or a cell."""
        self._tables: list[tuple[_Table, list[str]]] = []
        """The open tables, each with the parts that it is in."""
        self._hidden: list[str] = []
        self._in_title = False
        self._in_pre = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HIDDEN and len(self._hidden) < _VOID_HIDDEN_LIMIT:
            self._hidden.append(tag)
        elif tag == "title":
            self._in_title = True
        elif self._hidden:
            pass
        elif re.fullmatch("h[1-6]", tag):
            self._mark_layout()
            self._parts.append("\n\n" + "#" * int(tag[1]) + " ")
        elif tag == "li":
            self._parts.append("\n- ")
        elif tag == "br":
            self._parts.append("\n")
        elif tag == "table" and len(self._tables) < _MAX_TABLE_DEPTH:
            self._mark_layout()
            self._tables.append((table := _Table(), self._parts))
            self._parts = table.outside
        elif self._tables and tag in _TABLE_PARTS:
            self._start_table_part(self._tables[-1][0], tag)
        elif tag in _BLOCKS:
            self._parts.append("\n\n")
        self._in_pre += tag == "pre"

    def _mark_layout(self) -> None:
        """An open table has a heading or a table in a cell."""
        if self._tables and self._parts is not self._tables[-1][0].outside:
            self._tables[-1][0].is_layout = True

    def _start_table_part(self, table: _Table, tag: str) -> None:
        if tag in ("td", "th"):
            self._parts = table.add_cell(tag)
            return
        self._parts = table.outside
        table.in_head = tag == "thead" or (tag == "tr" and table.in_head)
        if tag == "tr" and (not table.rows or table.rows[-1]):
            table.rows.append([])

    def _end_table(self) -> None:
        table, self._parts = self._tables.pop()
        self._parts.append(table.text())

    def handle_endtag(self, tag: str) -> None:
        if self._hidden and tag == self._hidden[-1]:
            self._hidden.pop()
        elif tag == "title":
            self._in_title = False
        elif self._hidden:
            pass
        elif tag == "table" and self._tables:
            self._end_table()
        elif tag in _BLOCKS or re.fullmatch("h[1-6]", tag):
            self._parts.append("\n\n")
        self._in_pre -= tag == "pre" and self._in_pre > 0

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
        elif not self._hidden:
            self._parts.append(data if self._in_pre else re.sub(r"\s+", " ", data))

    def text(self) -> str:
        while self._tables:
            self._end_table()
        lines = "".join(self._page).split("\n")
        joined = "\n".join(line.strip(" \t") for line in lines)
        return re.sub(r"\n{3,}", "\n\n", joined).strip()
