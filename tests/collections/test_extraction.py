"""The text of documents, and what is said of one that cannot be read."""

from __future__ import annotations

import subprocess
import sys

import pytest

from memory_api.collections.extraction import (
    UnreadableDocument,
    choose_media_type,
    extract_text,
)
from tests.support.cases import each_case
from tests.support.pdf import encrypt_pdf, make_pdf

HTML = b"""<html><head><title> Refunds
and returns </title><style>p{color:red}</style></head><body>
<h1>Refund <b>rules</b></h1><p>Pending orders &amp; others.<br>Second line</p>
<script>alert("no")</script><ul><li>one</li><li>two</li></ul></body></html>"""


def test_html_keeps_headings_and_drops_scripts() -> None:
    extracted = extract_text(HTML, "text/html")
    assert extracted.title == "Refunds and returns"
    text = extracted.pages[0]
    assert "# Refund rules" in text
    assert "Pending orders & others.\nSecond line" in text
    assert "- two" in text
    assert "alert" not in text
    assert "color" not in text


TABLE = b"""<table><caption>Prices</caption><thead><tr><th>Kind<th>Price</tr></thead>
<tbody><tr><td><p>Green<br>tea</p></td><td>1 | 2</td></tr><tr><td>Milk<td>3</table><p>End.</p>"""


def test_html_table_is_one_line_for_each_row() -> None:
    assert extract_text(TABLE, "text/html").pages[0] == (
        "Prices\n\n| Kind | Price |\n|---|---|\n| Green tea | 1 \\| 2 |\n| Milk | 3 |\n\nEnd."
    )


@each_case(
    ("html", "text"),
    [
        (b"<table><tr><th>a</th><td>1</td></tr><tr><th>b</th><td>2</td></tr></table>",
         "| a | 1 |\n| b | 2 |"),
        (b"<table><tr></tr><tr><th>a<th>b<tr><td>1<td>2", "| a | b |\n|---|---|\n| 1 | 2 |"),
        (b"<table><tr><td><h1>Page</h1><table><tr><th>a<th>b<tr><td>1<td>2</table></td></tr></table>",
         "# Page\n\n| a | b |\n|---|---|\n| 1 | 2 |"),
        (b"<table><tr><td><p>One.</p><p>Two.</p></td></tr></table>", "One.\n\nTwo."),
        (b"<template><table><tr><td>x</td></tr></table></template>Text", "Text"),
        (b"<table>" * 200 + b"<tr><td>deep", "deep"),
    ],
)  # fmt: skip
def test_html_tables_of_other_shapes(html: bytes, text: str) -> None:
    assert extract_text(html, "text/html").pages[0] == text


def test_pdf_is_read_by_page() -> None:
    pages = extract_text(make_pdf(["First page", "Second page"]), "application/pdf").pages
    assert [page.strip() for page in pages] == ["First page", "Second page"]


def test_pdf_without_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    with pytest.raises(UnreadableDocument, match=r"hansei-server\[documents\]") as raised:
        extract_text(make_pdf(["Text"]), "application/pdf")
    assert raised.value.code == "pdf_not_supported"


def test_a_process_without_pdf_documents_does_not_import_their_parser() -> None:
    code = (
        "import sys, memory_api.commands.processes;"
        "print(sorted({'pypdf', 'cryptography', 'fastapi'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['fastapi']"


@each_case("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp932", "euc_jp"])
def test_encodings_of_japanese(encoding: str) -> None:
    data = "返品は三十日以内です。".encode(encoding)
    assert extract_text(data, "text/plain").pages == ["返品は三十日以内です。"]


def test_nul_is_replaced() -> None:
    assert extract_text(b"x" * 200 + b"\0", "text/plain").pages[0].endswith("\ufffd")


@each_case(
    ("data", "media_type", "code"),
    [
        (b"", "text/plain", "empty"),
        (b" \n ", "text/markdown", "empty"),
        (b"<p> </p>", "text/html", "no_text"),
        (b"%PDF-1.4 cut off", "application/pdf", "broken_pdf"),
        (make_pdf(["Text"])[:200], "application/pdf", "broken_pdf"),
        (make_pdf([""]), "application/pdf", "no_text"),
        (encrypt_pdf(make_pdf(["Secret"])), "application/pdf", "encrypted"),
        (bytes(range(256)) * 4 + b"\0" * 100, "text/plain", "not_text"),
        (b"\xff\xff\xfe\xa0\x80" * 10, "text/plain", "unknown_encoding"),
    ],
)
def test_unreadable_document_has_a_reason(data: bytes, media_type: str, code: str) -> None:
    with pytest.raises(UnreadableDocument) as caught:
        extract_text(data, media_type)
    assert caught.value.code == code


@each_case(
    ("content_type", "source", "start", "expected"),
    [
        ("application/octet-stream", "a.bin", b"%PDF-1.7", "application/pdf"),
        ("text/plain", "notes.md", b"# A", "text/markdown"),
        ("text/plain", "notes", b"A", "text/plain"),
        ("", "page.HTM", b"<p>", "text/html"),
        ("application/octet-stream", "a.docx", b"PK", None),
        ("image/png", "a.txt", b"\x89PNG", None),
    ],
)
def test_media_type(content_type: str, source: str, start: bytes, expected: str | None) -> None:
    assert choose_media_type(content_type, source, start) == expected
