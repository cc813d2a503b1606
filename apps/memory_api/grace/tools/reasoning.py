"""`reasoning`: answers from sources and cites them; says when they do not suffice (S3.31).

With a model, a search for the answer's own words finds passages that it does not cite, such as a
later change of a value, and a second call compares its claims with the sources and with these.
Without a model, the answer is the passage that fits best, in the source's own sentences.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import structlog
from pydantic import BaseModel, Field, field_validator

from memory_api.collections.markdown_tables import MarkdownTable, find_tables
from memory_api.collections.sentences import split_sentences
from memory_api.grace.agent_model import AgentModel
from memory_api.grace.confidence import ConfidenceFactors, Groundedness
from memory_api.grace.context import format_conversation
from memory_api.grace.corrections import Correction, choose_correction
from memory_api.grace.execution_plan import SEARCH_ACTIONS, without_citations
from memory_api.grace.tools.port import (
    Source,
    Tool,
    ToolContext,
    ToolInput,
    ToolResult,
    fence_sources,
    show_source,
)
from memory_api.grace.tools.rag_search import (
    find_unused,
    relevance,
    search_factors,
    word_weights,
)
from memory_api.llm.errors import LLMRefused, LLMTruncated, LLMUnparseable
from memory_api.llm.untrusted_text import fence_text, fit_text
from memory_api.text.excerpts import detect_language
from memory_api.text.terms import document_weights, query_terms

log = structlog.get_logger()

MAX_SENTENCES = 3
MAX_CONTEXT_TOKENS = 4_000
UNTRUSTED = 0.3
"""The highest self-evaluation of a judge that found support where there is none."""
UNCOMPARED = 0.4
"""The highest self-evaluation of an answer that nobody could compare: it is in another script than
its sources, or the model gave no usable verdict.
"""
SUPPORT_SHARE = 0.6
"""Share of the words of a claim that a source must have, for the rules to count it as supported."""
NOT_FOUND = {
    "en": "The sources do not answer this question.",
    "ja": "この質問の答えは情報源に見つかりませんでした。",
}
FITS_BEST = {"en": "The passage that fits best: ", "ja": "最もよく合う箇所: "}
MAX_UNCHECKED = 0.89
"""The highest confidence in a passage that no model has compared with the question."""
_CITATION = re.compile(r"\[(\d{1,3})\]")


class SourcedAnswer(BaseModel):
    """The answer of a model."""

    answer: str = Field(min_length=1, max_length=20_000)
    sufficient: bool = Field(description="Whether the sources answer the question.")
    search: str | None = Field(default=None, description="Words to search for, or null.")

    @field_validator("answer", mode="before")
    @classmethod
    def _strip(cls, value: Any) -> Any:
        return value.strip() if isinstance(value, str) else value

    @field_validator("search", mode="before")
    @classmethod
    def _ignore_other_types(cls, value: Any) -> str | None:
        """An answer is not lost because of what it says about another search."""
        return value if isinstance(value, str) else None


class ClaimVerdict(BaseModel):
    claim: str
    verdict: Literal["supported", "contradicted", "neutral"]


class AnswerJudgment(BaseModel):
    """How the claims of an answer relate to its sources."""

    claims: list[ClaimVerdict] = Field(max_length=50)
    self_evaluation: float = Field(ge=0, le=1)
    coverage: float = Field(ge=0, le=1)


class ReasoningTool(Tool):
    name = "reasoning"
    description = "Answer from the sources of earlier steps, with citations."

    async def run(self, context: ToolContext, given: ToolInput) -> ToolResult:
        sources = context.sources
        if context.model is None:
            recalled = None if sources else recall_answer(context.query, context.corrections)
            learned = choose_correction(given.query, context.corrections, ["search-words"])
            # A person has confirmed that these words find the answer to this question.
            question = given.query if learned is None else learned[0].text
            asked = " ".join([question, *context.person_inputs])
            language = detect_language([given.query])
            return recalled or extract_answer(asked, sources, language)
        return await self._ask(context, context.model, given, sources)

    async def _ask(
        self, context: ToolContext, model: AgentModel, given: ToolInput, sources: list[Source]
    ) -> ToolResult:
        is_part = given.query != context.query
        values = {
            "bullets": context.bullets,
            "context": _format_context(context),
            "sources": fence_sources(sources),
            "person": format_inputs(context),
            "conversation": format_conversation(context.conversation),
            "question": fence_text(context.query, label="question") if is_part else "",
            "query": fence_text(given.query, label="question"),
        }
        temperature = context.config.llm.temperature
        answer = await model.ask(SourcedAnswer, "answer", values, temperature=temperature)
        text, cited = cite_sources(answer.answer, sources)
        if not answer.sufficient:
            factors, words = answer_factors(cited), (answer.search or "").strip()
            return ToolResult(text, "partial", cited, factors, found=False, next_search=words)
        if context.is_intermediate:  # the answer that uses it is compared with the sources of both
            return ToolResult(text, sources=cited, factors=answer_factors(cited), is_checked=False)
        claimed = without_citations(text)
        others = await find_unused(context, claimed, cited)
        grounded = await judge_answer(context, model, given.query, text, cited or sources, others)
        return ToolResult(
            text,
            next_search=claimed if grounded.contradicted and others else "",
            sources=cited,
            factors=replace(answer_factors(cited), llm_self_confidence=grounded.self_evaluation,
                            query_coverage=grounded.coverage),
            grounded=grounded,
        )  # fmt: skip


def answer_factors(sources: Sequence[Source]) -> ConfidenceFactors:
    return replace(search_factors(sources), is_search_step=False)


def _format_context(context: ToolContext) -> str:
    """The outputs of earlier steps and what they answer. Those of searches are in the sources, and
    those of a person in `format_inputs`.
    """
    texts: list[str] = []
    for number, result in context.outputs.items():
        if result.action in (*SEARCH_ACTIONS, "ask_user") or not result.output:
            continue
        output = fit_text(without_citations(result.output), MAX_CONTEXT_TOKENS)
        asked = context.queries.get(number, "")
        shown = fence_text(f"{asked}\n{output}".strip(), label="result")
        texts.append(f"Step {number} ({result.action}):\n{shown}")
    return "\n\n".join(texts)


def format_inputs(context: ToolContext) -> str:
    """What a person has added, fenced and after the question that it answers: facts about their
    case, and no source to cite.
    """
    asked = {
        result.output: context.queries.get(number, "")
        for number, result in context.outputs.items()
        if result.action == "ask_user"
    }
    return "\n".join(
        fence_text(f"{asked.get(each, '')}\n{each}".strip(), label="person")
        for each in context.person_inputs
    )


def cite_sources(answer: str, sources: Sequence[Source]) -> tuple[str, list[Source]]:
    """The answer with the sources that it cites numbered from 1 in the order of their numbers, and
    these sources. A number that no source has is removed.
    """
    numbers = sorted({int(number) for number in _CITATION.findall(answer)})
    known = [number for number in numbers if 0 < number <= len(sources)]

    def renumber(found: re.Match[str]) -> str:
        number = int(found[1])
        return f"[{known.index(number) + 1}]" if number in known else ""

    return _CITATION.sub(renumber, answer), [sources[number - 1] for number in known]


async def judge_answer(
    context: ToolContext,
    model: AgentModel,
    query: str,
    answer: str,
    sources: Sequence[Source],
    others: Sequence[Source] = (),
) -> Groundedness:
    """Compare the claims of an answer with its sources, with what a person has said, and with other
    passages that may contradict it: by the model, or by the rules if the configuration says so.
    Without a usable verdict, the rules decide, and are not sure.
    """
    said = [Source("person", each, 1.0) for each in context.person_inputs]
    known = [*sources, *said]
    if not context.config.llm.light_model_judgments:
        return judge_by_rules(answer, known)
    values = {
        "sources": fence_sources(sources),
        "others": "\n".join(fence_text(show_source(each), label="source") for each in others),
        "person": format_inputs(context),
        "conversation": format_conversation(context.conversation),
        "query": fence_text(query, label="question"),
        "answer": fence_text(answer, label="answer"),
    }
    try:
        judged = await model.ask(AnswerJudgment, "judge", values, temperature=0)
    except (LLMRefused, LLMTruncated, LLMUnparseable) as error:
        log.warning("judgment_not_usable", error=str(error)[:200])
        ruled = judge_by_rules(answer, known)
        return replace(ruled, self_evaluation=min(ruled.self_evaluation, UNCOMPARED))
    count = dict.fromkeys(("supported", "contradicted", "neutral"), 0)
    own, words = judged.self_evaluation, SourceWords(known)
    for claim in judged.claims:
        # A judge may be talked into a verdict by the text that it judges: words must agree.
        verdict = claim.verdict
        agrees = words.are_in(claim.claim) if verdict == "supported" else True
        if agrees is None:
            own = min(own, UNCOMPARED)
        elif not agrees:
            verdict, own = "neutral", min(own, UNTRUSTED)
        count[verdict] += 1
    return Groundedness(**count, self_evaluation=own, coverage=judged.coverage)


def judge_by_rules(answer: str, sources: Sequence[Source]) -> Groundedness:
    """A sentence is supported if a source has most of its words. Finds no contradictions."""
    plain = _CITATION.sub("", answer)
    sentences = [plain[a:b] for a, b in split_sentences(plain) if plain[a:b].strip()]
    words = SourceWords(sources)
    supported = sum(bool(words.are_in(sentence)) for sentence in sentences)
    share = supported / len(sentences) if sentences else 0.0
    return Groundedness(supported, 0, len(sentences) - supported, share, share)


class SourceWords:
    """The words of sources, to find claims that a source has."""

    def __init__(self, sources: Sequence[Source]) -> None:
        texts = [f"{each.title or ''}\n{each.content}" for each in sources]
        self._scripts = {"", *map(_script_of, set("".join(texts)))}
        self._words = [document_weights(text) for text in texts]

    def are_in(self, claim: str) -> bool | None:
        """Whether one source has most of the words of a claim. Words in a script that no source
        uses cannot be compared: None if they are most of the claim and the others agree.
        """
        scripts = self._scripts
        comparable = "".join(each if _script_of(each) in scripts else " " for each in claim)
        terms = document_weights(comparable)
        needed = SUPPORT_SHARE * len(terms)
        if not any(sum(term in words for term in terms) >= needed for words in self._words):
            return False
        is_whole = 2 * sum(map(str.isalpha, comparable)) >= sum(map(str.isalpha, claim))
        return bool(terms) if is_whole else None


def _script_of(character: str) -> str:
    """The script of a letter: `LATIN`, `CYRILLIC`, `CJK`; empty for other characters."""
    return unicodedata.name(character, "").split(" ")[0] if character.isalpha() else ""


def recall_answer(query: str, corrections: Sequence[Correction]) -> ToolResult | None:
    """The corrected answer to the same or a similar question, with its bullet as the source. Its
    score is the similarity of the questions.
    """
    chosen = choose_correction(query, corrections, ["corrected-answer"])
    if chosen is None:
        return None
    found, similarity = chosen
    source = Source(f"bullet:{found.key}", f"{found.question}\n{found.text}", similarity)
    factors = replace(search_factors([source]), is_search_step=True)
    return ToolResult(f"{found.text} [1]", sources=[source], factors=factors)


def extract_answer(query: str, sources: Sequence[Source], language: str = "en") -> ToolResult:
    """The sentences of the best source that have most of the query's words, in their order: the
    passage that fits best, which need not be an answer. The score is about this query and the
    quoted text, also if the source was found with other words or has more of them elsewhere.
    """
    if not sources:
        factors = ConfidenceFactors(is_search_step=True)
        return ToolResult(NOT_FOUND[language], "partial", factors=factors, found=False)
    texts = [f"{each.title or ''}\n{each.content}" for each in sources]
    weights = word_weights(query, texts)
    found = max(range(len(texts)), key=lambda n: relevance(weights, texts[n]))
    best = sources[found]
    spans = _best_spans(query, best.content)
    parts = [best.content[start:end].strip() for start, end in spans]
    has_rows = any("|" in part for part in parts)
    quoted = "\n\n{}\n\n[1]".format("\n".join(parts)) if has_rows else f"{' '.join(parts)} [1]"
    cited = replace(best, score=min(relevance(weights, " ".join(parts)), MAX_UNCHECKED))
    if best.start is not None and best.end is not None:
        offset = best.end - len(best.content)  # the content may repeat the heading of a table
        start, end = (max(best.start, offset + n) for n in (spans[0][0], spans[-1][1]))
        cited = replace(cited, start=start, end=end)
    factors = replace(search_factors([cited]), is_search_step=True)
    text = f"{FITS_BEST[language]}{quoted}"
    return ToolResult(text, sources=[cited], factors=factors, is_checked=False)


def _best_spans(query: str, text: str) -> list[tuple[int, int]]:
    """The spans of at most `MAX_SENTENCES` different sentences or rows of a table, in the order of
    the text. Before rows, there is the heading of their table.
    """
    terms = query_terms(query)
    tables = find_tables(text)
    heads = {row: table.heading for table in tables if table.heading for row in table.rows}
    first: dict[str, tuple[int, int]] = {}
    for start, end in _split_units(text, tables):
        first.setdefault(text[start:end].strip(), (start, end))
    first.pop("", None)
    spans = [span for span in first.values() if span not in heads.values()] or [(0, len(text))]
    known = [document_weights(text[a:b]) for a, b in spans]
    scores = [sum(w for term, w in terms.items() if term in each) for each in known]
    ranked = sorted(range(len(spans)), key=lambda n: (-scores[n], n))
    best = scores[ranked[0]]
    chosen = [spans[n] for n in ranked[:MAX_SENTENCES] if scores[n] >= 0.5 * best]
    return sorted({*chosen, *(heads[each] for each in chosen if each in heads)})


def _split_units(text: str, tables: Sequence[MarkdownTable]) -> list[tuple[int, int]]:
    """Sentences, and the heading and each row of a table as a whole."""
    units: list[tuple[int, int]] = []
    end = 0
    for table in tables:
        units += [(end + a, end + b) for a, b in split_sentences(text[end : table.start])]
        units += [table.heading, *table.rows] if table.heading else table.rows
        end = table.end
    return units + [(end + a, end + b) for a, b in split_sentences(text[end:])]
