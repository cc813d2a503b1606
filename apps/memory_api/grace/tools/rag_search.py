"""`rag_search`: searches collections and measures the result (S3.30)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from math import exp, log
from statistics import fmean, pvariance
from uuid import UUID

from memory_api.collections.passages import Passage, search_passages
from memory_api.grace.confidence import ConfidenceFactors
from memory_api.grace.config import GraceConfig
from memory_api.grace.tools.port import Source, Tool, ToolContext, ToolInput, ToolResult
from memory_api.text.terms import content_terms, document_weights

CANDIDATES = 20
"""Passages that are compared to weight the words of the query."""
MAX_UNUSED = 4
PREFERENCE = 0.05
"""A passage of the collection that the plan names precedes others that score as much more."""
PERSON_PREFERENCE = 0.1
"""So does a passage with all words that the person has said, in part one with some of them."""
SHARE_WEIGHT, OFFSET = 8.0, 4.0
"""Fitted on 480 questions of JSQuAD and XQuAD, a third of them without their passage."""


class RAGSearchTool(Tool):
    name = "rag_search"
    description = (
        "Search the collections of documents. Returns passages with their source. A passage scores"
        " by the share of the query's words that it has: use few words that it surely has, without"
        " synonyms."
    )

    async def run(self, context: ToolContext, given: ToolInput) -> ToolResult:
        said = " ".join(context.person_inputs)
        passages = await _find_passages(context, given.query)
        if said:
            passages |= await _find_passages(context, f"{given.query} {said}")
        texts = [f"{each.title or ''}\n{each.content}" for each in passages.values()]
        scores = relevance_scores(given.query, texts)
        by_person = _word_shares(said, texts)
        ranked = sorted(
            zip(map(to_source, passages.values(), scores), by_person, strict=True),
            key=lambda each: (
                -each[0].score
                - PREFERENCE * (each[0].collection == given.collection)
                - PERSON_PREFERENCE * each[1]
            ),
        )
        sources = select_sources([source for source, _ in ranked], context.config)
        return ToolResult(
            "\n\n".join(source.content for source in sources),
            sources=sources,
            factors=search_factors(sources),
            found=bool(sources),
        )


async def find_unused(context: ToolContext, text: str, used: Sequence[Source]) -> list[Source]:
    """The passages that fit a text best, at most `MAX_UNUSED`, without those that were used."""
    passages = list((await _find_passages(context, text)).values())
    scores = relevance_scores(text, [f"{each.title or ''}\n{each.content}" for each in passages])
    known = {source.content for source in used}
    found = [to_source(each, score) for each, score in zip(passages, scores, strict=True)]
    unused = [source for source in found if source.content not in known]
    return sorted(unused, key=lambda source: -source.score)[:MAX_UNUSED]


async def _find_passages(context: ToolContext, query: str) -> dict[UUID, Passage]:
    """The candidates for a query."""
    found = await search_passages(
        context.runtime,
        context.tenant_id,
        context.project_id,
        context.collections,
        query[:10_000],
        top_k=max(CANDIDATES, context.config.search.top_k),
    )
    return {each.memory_id: each for each in found}


def _word_shares(words: str, texts: Sequence[str]) -> list[float]:
    """For each text, the share of the words that it has."""
    terms = content_terms(words)
    return [
        sum(term in known for term in terms) / len(terms) if terms else 0.0
        for known in map(_terms_of, texts)
    ]


def to_source(passage: Passage, score: float) -> Source:
    return Source(
        source=passage.source,
        content=passage.content,
        score=score,
        title=passage.title,
        collection=passage.collection,
        document_id=str(passage.document_id),
        memory_id=str(passage.memory_id),
        page=passage.page,
        start=passage.start,
        end=passage.end,
    )


def relevance_scores(query: str, texts: Sequence[str]) -> list[float]:
    """For each candidate, how likely it answers the query."""
    weights = word_weights(query, texts)
    return [relevance(weights, text) for text in texts]


def word_weights(query: str, texts: Sequence[str]) -> dict[int, float]:
    """The query's words, each weighted by its inverse frequency among the candidates. A word that
    no candidate has counts most. Whatever else was found, a score means the same (docs/grace.md).
    """
    known = [_terms_of(text) for text in texts]
    count = max(len(known), CANDIDATES)  # in a small collection, each word is in few candidates
    weights: dict[int, float] = {}
    for term in content_terms(query):
        having = sum(term in each for each in known)
        weights[term] = log(1 + (count - having + 0.5) / (having + 0.5))
    return weights


def relevance(weights: Mapping[int, float], text: str) -> float:
    """A logistic function of the share of the weights whose words the text has."""
    total, known = sum(weights.values()), _terms_of(text)
    if not total:
        return 0.0
    share = sum(weight for term, weight in weights.items() if term in known) / total
    return round(1 / (1 + exp(OFFSET - SHARE_WEIGHT * share)), 4)


@lru_cache(maxsize=1_000)
def _terms_of(text: str) -> frozenset[int]:
    """The words of a passage. The same passages are candidates again and again; the cache takes
    about 10 KB for each.
    """
    return frozenset(document_weights(text))


def select_sources(sources: Sequence[Source], config: GraceConfig) -> list[Source]:
    """Those that may be used and cited, in the order of the search."""
    usable = [source for source in sources if source.score >= config.search.min_score]
    return usable[: config.search.top_k]


def search_factors(sources: Sequence[Source]) -> ConfidenceFactors:
    scores = [source.score for source in sources]
    return ConfidenceFactors(
        search_result_count=len(scores),
        search_avg_score=fmean(scores) if scores else 0.0,
        search_max_score=scores[0] if scores else 0.0,
        search_score_variance=pvariance(scores) if scores else 1.0,
        source_agreement=source_agreement(sources),
        source_count=len({(source.source, source.page) for source in sources}),
        is_search_step=True,
    )


def source_agreement(sources: Sequence[Source]) -> float:
    """Mean cosine of the word weights of all pairs of passages, 0 to 1; 1 for one passage. It needs
    no call of an embedding model.
    """
    if len(sources) < 2:
        return float(len(sources))
    weights = [document_weights(source.content) for source in sources]
    lengths = [sum(w * w for w in each.values()) ** 0.5 or 1.0 for each in weights]
    cosines = [
        sum(w * weights[right].get(term, 0.0) for term, w in weights[left].items())
        / (lengths[left] * lengths[right])
        for left, right in combinations(range(len(weights)), 2)
    ]
    return min(1.0, fmean(cosines))
