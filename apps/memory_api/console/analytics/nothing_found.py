"""What a question answers if it has no rows: what was not found, whether that is good, and what
would fill the page.
"""

from __future__ import annotations

from collections.abc import Mapping

from memory_api.analytics.questions import Question
from memory_api.console.translations import N_

_NO_CHANGE = N_(
    "No bullet changed. Bullets change when Hansei learns from traces that name a playbook, or "
    "when a person edits them."
)
_NO_VERDICT = N_(
    "No bullet got a verdict. People, tests and models give verdicts, and outcomes of agent runs "
    "that had the bullet in their prompt."
)
_NO_BULLET = N_(
    "There is no bullet. Hansei adds bullets when it learns from traces that name a playbook."
)
NOTHING_FOUND: Mapping[Question, str] = {
    Question.BULLETS: _NO_BULLET,
    Question.BULLET_VERSIONS: _NO_CHANGE,
    Question.PLAYBOOK_SIZES: N_(
        "There was no playbook. Hansei fills one when it learns from traces that name it."
    ),
    Question.CHURN: _NO_CHANGE,
    Question.SURVIVAL: _NO_BULLET,
    Question.VERDICTS: _NO_VERDICT,
    Question.MOVERS: _NO_VERDICT,
    Question.VERDICT_DRIFT: N_(
        "Nothing can be compared: no bullet has verdicts both in this period and in the one "
        "before. A shorter or longer period may have both."
    ),
    Question.FUNNEL: N_(
        "No trace names a playbook, so no playbook learned anything. Send traces with the "
        "name of a playbook."
    ),
    Question.EFFECTS: N_(
        "Unknown: no agent run with a known outcome had a bullet in its prompt. Send the "
        "`retrieval_id` of the prompt and the outcome with each trace."
    ),
    Question.IMPROVEMENT: N_(
        "Unknown: no agent run that names a playbook has a known outcome. Send the outcome with "
        "each trace."
    ),
    Question.COVERAGE: N_(
        "No agent asked a playbook. Each search and each prompt for a task counts here."
    ),
    Question.UNCOVERED_QUERIES: N_(
        "No query was left without a match. That is good if agents asked at all, which the "
        "question `coverage` shows."
    ),
    Question.NEAR_DUPLICATES: N_(
        "No two active bullets say nearly the same. That is good: no advice takes its room in the "
        "prompt twice. Bullets that share rare words are listed here from a likeness of 0.85 on."
    ),
    Question.CONTRADICTIONS: N_(
        "No two bullets were found to contradict each other. That is good if a model curates: the "
        "rules do not look for contradictions."
    ),
    Question.CONFLICTS: N_(
        "No check contradicts the outcome that a client reported. That is good if your traces "
        "have both: an outcome, and a check (a `test_report`, or a `ground_truth` with `match`). "
        "A trace whose check disagrees would be listed here."
    ),
    Question.COSTS: N_("No model was called, so nothing was spent. Rules cost nothing."),
    Question.UNIT_COSTS: N_(
        "There is no playbook to pay for. Hansei fills one when it learns from traces that name it."
    ),
    Question.AGENT_RUNS: N_(
        "Nobody asked a question, so nothing shows how far the agent's confidence can be trusted. "
        "Ask one on the page Ask, and say whether its answer is right."
    ),
    Question.ERROR_CATEGORIES: N_(
        "No reflection was written, so no error has a category. Hansei reflects on failed agent "
        "runs; this page then counts their errors by kind, such as timeouts."
    ),
}
