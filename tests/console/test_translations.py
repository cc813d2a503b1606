"""Every text of the console has a Japanese translation, with the same placeholders.

`python -m tests.console.test_translations` prints the missing entries, ready for a .po file.
"""

from __future__ import annotations

import re
from itertools import chain

from babel.messages.extract import extract_from_dir, extract_from_file

from hansei.evaluation import demo, notes, text_report, wording
from hansei.evaluation.plan import PHASES
from hansei.evaluation.report_format import PRIMARY_LABELS
from hansei.nothing_learned import (
    CONFIRMATION_RULE,
    NO_LESSON,
    NO_LESSON_BY_RULES,
    WhyNothing,
)
from memory_api.analytics.questions import Question, question_title
from memory_api.console.stored_reasons import translate_reason
from memory_api.console.translations import (
    FOLDER,
    choose_language,
    load_translation,
    read_messages,
)
from memory_api.curation.confirmation import (
    CONFIRMED_REASON,
    NOT_REWRITTEN_REASON,
    WAITING_REASON,
)
from memory_api.playbooks.verdicts.quarantine import quarantine_reason

Texts = set[str | tuple[str, str]]
PLACEHOLDER = re.compile(r"%\((\w+)\)s")


def texts_of_code() -> Texts:
    """The texts of templates and Python files, and the questions; a plural is a pair."""
    methods = [("**.py", "python"), ("templates/**.html", "jinja2.ext:babel_extract")]
    options = {"templates/**.html": {"trim_blocks": "true", "lstrip_blocks": "true"}}
    found: Texts = {question_title(question) for question in Question}
    found |= {*WhyNothing, NO_LESSON, NO_LESSON_BY_RULES, CONFIRMATION_RULE}
    found |= {demo.TITLE, *PHASES.values(), *PRIMARY_LABELS.values(), *text_report.GAINS.values()}
    found |= {*text_report.WORDS, *text_report.WORDS.values()}
    found |= {*wording.MEMORIES.values(), *wording.DECIDING_TASKS.values()}
    keywords = {"_": None, "N_": None, "gettext": None, "ngettext": (1, 2)}
    reports = (
        extract_from_file("python", str(module.__file__), keywords=keywords)
        for module in (notes, text_report, wording)
    )
    pages = extract_from_dir(str(FOLDER.parent), methods, options, keywords=keywords)
    for text in (each[-3] for each in chain(pages, *reports)):
        found.add((text[0], text[1]) if isinstance(text, tuple) else text)
    return found


def translated_texts() -> dict[str | tuple[str, str], list[str]]:
    return {(m.text, m.plural) if m.plural else m.text: list(m.forms) for m in read_messages("ja")}


def missing_texts() -> list[str | tuple[str, str]]:
    translated = translated_texts()
    return sorted(
        (text for text in texts_of_code() if not all(translated.get(text, [""]))), key=str
    )


def test_every_text_has_a_translation() -> None:
    assert missing_texts() == []


def test_no_translation_is_left_over() -> None:
    assert sorted(map(str, translated_texts().keys() - texts_of_code())) == []


def test_placeholders_are_the_same() -> None:
    for text, translations in translated_texts().items():
        wanted = set(PLACEHOLDER.findall(text if isinstance(text, str) else text[1]))
        for translation in translations:
            assert set(PLACEHOLDER.findall(translation)) == wanted, text


def test_plural_and_unknown_text() -> None:
    english, japanese = load_translation("en"), load_translation("ja")
    assert english.ngettext("one", "many", 1) == "one"
    assert english.ngettext("one", "many", 2) == "many"
    assert japanese.gettext("No such text") == "No such text"


def test_stored_reasons_are_translated() -> None:
    """Those of the service, as it writes them. Others stay as they are."""
    japanese = load_translation("ja")
    reasons = (
        WAITING_REASON,
        CONFIRMED_REASON,
        NOT_REWRITTEN_REASON,
        quarantine_reason(3, 5),
        "Contradicts bullet ctx-00004.",
        "From the lessons of 14 traces.",
        "Learned from trace 01a2.",
    )
    for reason in reasons:
        assert translate_reason(reason, load_translation("en")) == reason
        assert translate_reason(reason, japanese) != reason
    assert translate_reason(quarantine_reason(3, 5), japanese) == "有害の判定: 5。有用の判定: 3。"
    both = "mis-00001: Matches bullet ctx-00002.\nmis-00002: It charged twice."
    assert translate_reason(both, japanese) == (
        "mis-00001: 項目 ctx-00002 と同じです。\nmis-00002: It charged twice."
    )
    assert translate_reason(None, japanese) == ""


def test_language_follows_cookie_then_browser() -> None:
    assert choose_language("ja", "en") == "ja"
    assert choose_language("xx", "de, en-US;q=0.5") == "en"
    assert choose_language(None, "ja;q=0.9") == "ja"
    assert choose_language(None, "") == "en"


if __name__ == "__main__":
    for text in missing_texts():
        text = (
            tuple(t.replace('"', '\\"') for t in text)
            if isinstance(text, tuple)
            else text.replace('"', '\\"')
        )
        if isinstance(text, tuple):
            print(f'msgid "{text[0]}"\nmsgid_plural "{text[1]}"\nmsgstr[0] ""\n')  # noqa: T201
        else:
            print(f'msgid "{text}"\nmsgstr ""\n')  # noqa: T201
