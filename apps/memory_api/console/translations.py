"""The languages of the console. Texts in the code and the templates are English. The others are in
`translations/<language>/*.po`, which are read once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "translations"
LANGUAGES = {"en": "English", "ja": "日本語"}
DEFAULT_LANGUAGE = "en"
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_FIELD = re.compile(r'^(msg[a-z_]+)(?:\[\d\])?((?:\s+"(?:[^"\\]|\\.)*")+)', re.MULTILINE)


@dataclass(frozen=True)
class Translation:
    """The texts of one language. A text that is missing stays English."""

    language: str
    singular: Mapping[str, str] = field(default_factory=dict[str, str])
    plural: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def gettext(self, text: str) -> str:
        return self.singular.get(text) or text

    def ngettext(self, one: str, many: str, count: int) -> str:
        forms = self.plural.get(one)
        if forms:
            return forms[0 if count == 1 or len(forms) == 1 else 1] or many
        return one if count == 1 else many


@dataclass(frozen=True)
class TranslatedText:
    """An entry of a .po file. `forms` has several translations only for a plural."""

    text: str
    plural: str | None
    forms: tuple[str, ...]


def read_messages(language: str) -> list[TranslatedText]:
    """The entries of all .po files of a language."""
    return [
        message
        for path in sorted((FOLDER / language).glob("*.po"))
        for entry in path.read_text(encoding="utf-8").split("\n\n")
        if (message := _parse_entry(entry)).text
    ]


def _parse_entry(entry: str) -> TranslatedText:
    fields: dict[str, list[str]] = {}
    for name, quoted in _FIELD.findall(entry):
        text = "".join(json.loads(part) for part in _QUOTED.findall(quoted))
        fields.setdefault(name, []).append(text)
    plurals = fields.get("msgid_plural")
    return TranslatedText(
        fields["msgid"][0], plurals[0] if plurals else None, tuple(fields["msgstr"])
    )


@cache
def load_translation(language: str) -> Translation:
    """The texts of a language in `LANGUAGES`."""
    if language == DEFAULT_LANGUAGE:
        return Translation(language)
    messages = read_messages(language)
    return Translation(
        language,
        {message.text: message.forms[0] for message in messages if message.plural is None},
        {message.text: message.forms for message in messages if message.plural is not None},
    )


def N_(text: str) -> str:
    """Marks a text in code for translation. A template translates it."""
    return text


def choose_language(cookie: str | None, accept_language: str) -> str:
    """The language of the cookie, else the first known one that the browser asks for."""
    if cookie in LANGUAGES:
        return cookie
    for part in accept_language.split(",")[:20]:
        language = part.split(";")[0].strip().lower().partition("-")[0]
        if language in LANGUAGES:
            return language
    return DEFAULT_LANGUAGE
