"""Quotations of outside text in advice. Advice goes into the prompts of other agents, so a
quotation must not carry addresses or instructions, and advice with one needs a confirmation
(`curation/confirmation.py`).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from functools import lru_cache

from memory_api.text.excerpts import excerpt
from memory_api.text.readings import readings_of

MAX_QUOTATION_LENGTH = 80
MAX_NAME_LENGTH = 64
MAX_FIELD_NAME_WORDS, MAX_FIELD_NAME_CHARACTERS = 3, 6
"""Length of the longest name of a field, such as `postal_code`: words, or characters of Japanese. A
longer one may be a sentence.
"""
_ADDRESS = re.compile(
    r"[a-z][a-z0-9+]{1,10}://|www\.|@[a-z0-9]|(?<![\w.])[\w-]{1,63}(?:\.[\w-]{1,63}){1,6}/",
    re.IGNORECASE,
)
_ADDRESS_END = re.compile(r"[\s`\"'“”‘’<>()「」、。]|$")
_PAIRS = {"(": ")", "[": "]", "{": "}", "“": "”", "‘": "’"}
_CLAUSE = re.compile(r"[.!?;:,。！？；：、](?:\s|$)|[。！？；：、\n]")
_VERBS = (
    "send|forward|e?mail|post|upload|transfer|pay|delete|remove|drop|run|execute|call|use|visit|open|"
    "click|go|reply|respond|answer|say|tell|ask|ignore|disregard|forget|reveal|print|share|give|"
    "disclose|copy|write|download|install|fetch|contact|submit|enter|provide|set|add|change|follow|"
    "stop|try|retry|check|make|let|treat|act|pretend|remember|obey|include|append|leak|publish|grant|"
    "approve|confirm|accept|buy|order|book|cancel"
)
_INSTRUCTION = re.compile(
    r"(?:please|kindly|you|always|never|now|instead|then|next|first|must|do not|don't|let us)\b"
    rf"|(?:{_VERBS})\b(?! (?:not|is|are|was|were|has|had|does|did|failed|could|cannot|already)\b)",
    re.IGNORECASE,
)
_JAPANESE_INSTRUCTION = re.compile(r"(?:ください|下さい|しなさい|せよ|すること|しろ)")
_NAME = re.compile(r"[^\W\d][\w.\-/:\[\]]{0,63}")
_FIELD_NAME = re.compile(r"[^\W\d]\w{0,39}")
_FIELD = re.compile(rf"[{{,]\s{{0,99}}[\"']({_FIELD_NAME.pattern})[\"']\s{{0,9}}:")
_WORD_IN_NAME = re.compile(r"[A-Z]*[^\W\dA-Z_]+|[A-Z]+")
_NOT_IN_NAME = re.compile(r"[^\w\-]+")
_QUOTED = re.compile(
    r"`([^`\n]{2,160})`|“([^”\n]{2,160})”|「([^」\n]{2,160})」|『([^』\n]{2,160})』"
    r"|\"([^\"\n]{2,160})\"|(?<!\w)['‘]([^'’\n]{2,160})['’](?!\w)"
)
_QUOTATION_MARKS = re.compile("[`'\"“”‘’„«»]")
_QUOTATION = re.compile(
    r"“[^“”]+”|「[^「」\n]+」|『[^『』\n]+』|`[^`\n]+`|\"[^\"\n]+\""
    r"|(?<!\w)(?:'[^'\n]+'|‘[^‘’\n]+’)(?!\w)"
)
"""A quotation of any length in a report."""
_DOUBLE_MARKS = re.compile(r"[“”\"]")
_JAPANESE = re.compile(r"[\u3041-\u30ff\u3400-\u9fff]")
_LETTER = r"[^\W\u3041-\u30ff\u3400-\u9fff]"
_TOKEN = re.compile(r"[\u3041-\u30ff\u3400-\u9fff]|[^\W_\u3041-\u30ff\u3400-\u9fff]+")
_PATH_SEPARATOR = re.compile(r"[.\[\]]+")
QUOTATIONS = "quotations"
"""Key of a lesson's metadata: the passages of outside text that it quotes."""
MAX_QUOTATIONS = 32
MIN_COPIED_WORDS, MIN_COPIED_CHARACTERS = 5, 12
"""Length of the shortest copied passage: words, or characters of Japanese."""
Span = tuple[int, int]
"""Where a passage starts and ends in its text."""


def safe_quotation(text: str) -> str:
    """The start of a text, up to 80 characters and before the first clause with an address or an
    instruction, where it ends with … and closed brackets and quotes. '' if nothing is left.
    """
    line = excerpt(text, MAX_QUOTATION_LENGTH)
    start = 0
    for end in (*(match.end() for match in _CLAUSE.finditer(line)), len(line)):
        clause = line[start:end].strip(" \"'“”‘’([{-*>#")
        if _ADDRESS.search(clause) or _is_instruction(clause):
            begin = line[:start].rstrip(" .:;,、。：")
            return f"{begin}…{_closing_marks(begin)}" if begin else ""
        start = end
    return line


def _closing_marks(text: str) -> str:
    """The marks that close what a text leaves open. An apostrophe opens nothing."""
    open_marks: list[str] = []
    for before, character in zip(f" {text}", text, strict=False):
        if open_marks and character == open_marks[-1]:
            open_marks.pop()
        elif character in _PAIRS:
            open_marks.append(_PAIRS[character])
        elif character in "'\"" and not before.isalnum():
            open_marks.append(character)
    return "".join(reversed(open_marks))


def safe_quotations(texts: Iterable[str]) -> list[str]:
    """The quotations that are not shortened: a part of a name is no name."""
    return [text for text in texts if safe_quotation(text) == text]


def is_safe_name(name: str) -> bool:
    """Whether advice may name this tool or argument: one word without spaces, and no address."""
    return _NAME.fullmatch(name) is not None and not has_address(name)


def is_field_name(name: str) -> bool:
    """Whether a name can be that of a field or an argument: letters, digits and `_`, at most 3
    words. A tool chooses the names of its fields, so it could write a sentence as one.
    """
    if _FIELD_NAME.fullmatch(name) is None:
        return False
    if _JAPANESE.search(name):
        return len(name) <= MAX_FIELD_NAME_CHARACTERS
    return len(_WORD_IN_NAME.findall(name)) <= MAX_FIELD_NAME_WORDS


def is_word(text: str) -> bool:
    """Whether a quotation is one word, such as a value. It is either written or not; a longer
    passage can be written in other words.
    """
    return len(text.split()) == 1 and not _JAPANESE.search(text)


def words_of_name(name: str) -> str:
    """The words of a name in camelCase, with spaces between them."""
    return " ".join(_WORD_IN_NAME.findall(name))


def to_safe_name(name: str) -> str:
    """The name with other characters replaced, as one word of at most 64 characters."""
    return name if is_safe_name(name) else _NOT_IN_NAME.sub("_", name)[:MAX_NAME_LENGTH].strip("_")


def find_quotations_of(
    texts: Collection[str],
    outside_texts: Iterable[str],
    own_names: Collection[str] = (),
    documented: Sequence[str] = (),
) -> dict[str, list[str]]:
    """The passages of each text that occur in outside texts, in one pass over these: quoted or
    marked as code, copied with at least 5 words (12 characters of Japanese), or a whole clause that
    is an instruction. An address always is one: a model knows none that nobody wrote.

    `own_names`, such as the names of tools, are no quotations, nor are the names of fields of JSON
    objects in outside texts, nor a single word that the documentation of the tools has too, such as
    a value of an argument. A process of its own may execute it, so this module imports little.
    """
    words = {word.casefold() for text in documented for word in _NAME.findall(text)}
    outside_texts = list(outside_texts)
    names = {*own_names, *words, *_find_field_names(outside_texts)}
    found = _find_passages(texts, outside_texts, names)
    return {
        text: list(dict.fromkeys([*sorted(find_addresses(text)), *passages]))[:MAX_QUOTATIONS]
        for text, passages in found.items()
    }


def _find_field_names(outside_texts: Iterable[str]) -> set[str]:
    """The names of the fields of all JSON objects in the texts."""
    fields = {name for text in readings_of(outside_texts) for name in _FIELD.findall(text)}
    return set(filter(is_field_name, fields))


def _find_passages(
    texts: Collection[str], outside_texts: Iterable[str], own_names: Collection[str]
) -> dict[str, list[str]]:
    """The passages of each text that occur in outside texts."""
    own = {name.casefold() for name in own_names}
    spans = [(text, span, needles) for text in texts for span, needles in _quoted_spans(text, own)]
    passages, instructions = _PassageIndex(texts), _InstructionIndex(texts)
    found: dict[str, dict[str, None]] = {text: {} for text in texts}
    for outside in readings_of(outside_texts):
        folded = outside.casefold()
        for text, span, needles in spans:
            if span not in found[text] and all(_has_words(folded, each) for each in needles):
                found[text][span] = None
        for text, (start, end) in passages.find_in(folded):
            found[text][text[start:end]] = None
        for text, clause in instructions.find_in(folded):
            found[text][clause] = None
    return {text: list(passages) for text, passages in found.items()}


def _quoted_spans(text: str, own: Set[str]) -> list[tuple[str, list[str]]]:
    """The quoted passages of a text, each with the words to look for: the parts between "…"."""
    spans: dict[str, list[str]] = {}
    for match in _QUOTED.finditer(text):
        span = next(group for group in match.groups() if group)
        words = span.rstrip("…. ").casefold()
        path = [part for part in _PATH_SEPARATOR.split(words) if part and not part.isdigit()]
        is_name = span.casefold() in own or (bool(path) and own >= set(path))
        if any(c.isalpha() for c in span) and not is_name:
            parts = [part.strip() for part in words.split("…")]
            needles = [part for part in parts if any(c.isalpha() for c in part)]
            if " " not in span:
                needles = [_PATH_SEPARATOR.split(words)[-1]]
            spans[span] = list(filter(None, needles)) or [span.casefold()]
    return list(spans.items())


def quote_passages_of(texts: Collection[str], outside_texts: Iterable[str]) -> dict[str, str]:
    """Each report with quotation marks around each copied passage of at least 5 words (12
    characters of Japanese), so that it reads as what another wrote; in one pass over the outside
    texts.
    """
    index = _PassageIndex(texts)
    copied: dict[str, set[Span]] = {text: set() for text in texts}
    for outside in readings_of(outside_texts) if index else ():
        for text, span in index.find_in(outside.casefold()):
            copied[text].add(span)
    return {text: _quote_spans(text, spans) for text, spans in copied.items()}


def _quote_spans(text: str, copied: Collection[Span]) -> str:
    """The text with each span in quotation marks, unless a quotation contains all of it. Marks
    within the span may be copied too, so they must not end the quotation.
    """
    quoted = [match.span() for match in _QUOTATION.finditer(text)] if copied else []
    pieces, position = list[str](), 0
    for start, end in _join(sorted(copied)):
        before = bisect_left(quoted, (start, 0)) - 1
        if before < 0 or end >= quoted[before][1]:
            passage = _DOUBLE_MARKS.sub("'", text[start:end])
            pieces += (text[position:start], f"“{passage}”")
            position = end
    return "".join((*pieces, text[position:]))


def quote_values_of(values: Iterable[str], outside_texts: Sequence[str]) -> dict[str, str]:
    """The values of structured data that repeat outside text, in quotation marks. Unlike in a
    report, a short instruction is a quotation too, if it is nothing but outside text.
    """
    sentences = [value for value in values if not is_safe_name(value)]
    quoted = quote_passages_of(sentences, outside_texts)
    orders = [v for v in sentences if quoted[v] == v and has_instruction(v)]
    for outside in readings_of(outside_texts) if orders else ():
        quoted |= {value: f"“{value}”" for value in orders if value in outside}
    return {value: shown for value, shown in quoted.items() if shown != value}


def has_instruction(text: str) -> bool:
    """Whether a passage has an address or a clause that is an instruction."""
    return _ADDRESS.search(text) is not None or any(map(_is_instruction, _clauses(text)))


def without_quotation_marks(text: str) -> str:
    return _QUOTATION_MARKS.sub("", text)


def find_addresses(text: str) -> set[str]:
    """The addresses in a text, each up to a space or a mark."""
    addresses: set[str] = set()
    end = 0
    for match in _ADDRESS.finditer(text):
        if match.start() >= end:
            end = next(_ADDRESS_END.finditer(text, match.end())).start()
            addresses.add(text[match.start() : end].rstrip(".,;:!?"))
    return addresses


def has_address(text: str) -> bool:
    """Whether a passage has a URL, a host with a path, or an account such as `@name`."""
    return _ADDRESS.search(text) is not None


def _is_instruction(clause: str) -> bool:
    return bool(_INSTRUCTION.match(clause) or _JAPANESE_INSTRUCTION.search(clause))


def _clauses(text: str) -> Iterator[str]:
    for clause in _CLAUSE.split(text):
        if clause := clause.strip(" \"'“”‘’([{-*>#"):
            yield clause


def _words(text: str) -> tuple[str, ...]:
    return tuple(_TOKEN.findall(text.casefold()))


def _join(spans: Iterable[Span]) -> list[Span]:
    """Sorted spans, with those that overlap as one."""
    joined: list[Span] = []
    for start, end in spans:
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def _has_words(text: str, words: str) -> bool:
    """Whether a text contains these words, not only as a part of another word."""
    return words in text and _words_pattern(words).search(text) is not None


@lru_cache(256)
def _words_pattern(words: str) -> re.Pattern[str]:
    before = f"(?<!{_LETTER})" if re.match(_LETTER, words[0]) else ""
    after = f"(?!{_LETTER})" if re.match(_LETTER, words[-1]) else ""
    return re.compile(before + re.escape(words) + after)


def _passage_size(text: str) -> int:
    return MIN_COPIED_CHARACTERS if _JAPANESE.search(text) else MIN_COPIED_WORDS


def _passages(text: str, size: int) -> Iterator[tuple[tuple[str, ...], Span]]:
    """Each run of `size` words of a text, with its start and end."""
    matches = list(_TOKEN.finditer(text))
    for n in range(len(matches) - size + 1):
        words = tuple(match[0].casefold() for match in matches[n : n + size])
        yield words, (matches[n].start(), matches[n + size - 1].end())


class _PassageIndex:
    """The passages of several texts by their words, to find them in one pass over another text."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._by_size: dict[int, dict[tuple[str, ...], list[tuple[str, Span]]]] = {}
        for text in texts:
            size = _passage_size(text)
            for words, span in _passages(text, size):
                passages = self._by_size.setdefault(size, {})
                passages.setdefault(words, []).append((text, span))
        self._first_words = {
            size: {words[0] for words in passages} for size, passages in self._by_size.items()
        }

    def __bool__(self) -> bool:
        return bool(self._by_size)

    def find_in(self, folded: str) -> Iterator[tuple[str, Span]]:
        """The texts and places of passages that another text contains, each passage only once."""
        tokens = _TOKEN.findall(folded) if self else []
        for size, passages in self._by_size.items():
            first_words = self._first_words[size]
            for n, token in enumerate(tokens):
                if token in first_words:
                    yield from passages.pop(tuple(tokens[n : n + size]), ())


class _InstructionIndex:
    """The instructions of several texts by their words, to find them in one pass over another
    text.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._by_words: dict[tuple[str, ...], list[tuple[str, str]]] = {}
        for text in texts:
            for clause in filter(_is_instruction, _clauses(text)):
                self._by_words.setdefault(_words(clause), []).append((text, clause))
        self._first_words = {words[0] for words in self._by_words}

    def find_in(self, folded: str) -> Iterator[tuple[str, str]]:
        """As in `_PassageIndex`, the texts and their clauses that are a clause of another text."""
        for clause in _clauses(folded) if self._by_words else ():
            first = _TOKEN.search(clause)
            if first and first[0] in self._first_words:
                yield from self._by_words.pop(_words(clause), ())
