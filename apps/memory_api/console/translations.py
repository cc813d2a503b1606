"""The languages of the console. Texts in the code and the templates are English. The others are in
`translations/<language>/*.po`, which are read once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from babel.core import Locale
from babel.messages.catalog import Message
from babel.messages.pofile import read_po

FOLDER = Path(__file__).parent / "translations"
LANGUAGES = {"en": "English", "ja": "日本語"}
DEFAULT_LANGUAGE = "en"


@dataclass(frozen=True)
class Translation:
    """The texts of one language. A text that is missing stays English."""

    language: str
    locale: Locale
    singular: Mapping[str, str] = field(default_factory=dict[str, str])
    plural: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def gettext(self, text: str) -> str:
        return self.singular.get(text) or text

    def ngettext(self, one: str, many: str, count: int) -> str:
        forms = self.plural.get(one)
        if forms:
            return forms[0 if count == 1 or len(forms) == 1 else 1] or many
        return one if count == 1 else many


def read_messages(language: str) -> list[Message]:
    """The entries of all .po files of a language."""
    messages: list[Message] = []
    for path in sorted((FOLDER / language).glob("*.po")):
        with path.open(encoding="utf-8") as file:
            messages += [message for message in read_po(file, locale=language) if message.id]
    return messages


@cache
def load_translation(language: str) -> Translation:
    """The texts of a language in `LANGUAGES`."""
    locale = Locale.parse(language)
    if language == DEFAULT_LANGUAGE:
        return Translation(language, locale)
    singular: dict[str, str] = {}
    plural: dict[str, tuple[str, ...]] = {}
    for message in read_messages(language):
        if isinstance(message.id, str) and isinstance(message.string, str):
            singular[message.id] = message.string
        elif not isinstance(message.id, str):
            plural[message.id[0]] = tuple(message.string or ())
    return Translation(language, locale, singular, plural)


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
