"""The kinds of runs, in words."""

from __future__ import annotations

from memory_api.console.translations import N_

KINDS = {
    "evaluate": (
        N_("Evaluation"),
        N_("Decides how an agent run ended, and judges the bullets in its prompt"),
    ),
    "reflect": (
        N_("Reflection"),
        N_("Finds out what happened in a trace and why, and writes lessons"),
    ),
    "curate": (N_("Curation"), N_("Decides which lessons change the playbook")),
    "apply": (N_("Playbook change"), N_("Writes the changes as a version of the playbook")),
    "trajectory": (
        N_("Reflection on a trajectory"),
        N_("Reflects on an answer with its reasoning steps"),
    ),
    "transcript": (N_("Reflection on a transcript"), N_("Reflects on a chat session")),
    "workflow": (N_("Workflow"), N_("Answers a question and reflects on the answer")),
    "chunk": (N_("Document"), N_("Splits a document into parts that searches find")),
    "agent": (N_("Question"), N_("Answers a question with sources")),
    "agent_correction": (
        N_("Correction"),
        N_("Learns from an answer that a person called wrong"),
    ),
    "webhook": (N_("Webhook"), N_("Sends an event to a webhook")),
    "budget_alert": (N_("Budget alert"), N_("Reports that a budget is nearly spent")),
    "cleanup": (N_("Cleanup"), N_("Merges and removes bullets of a playbook")),
    "reembed": (N_("New vectors"), N_("Computes vectors with a new embedding model")),
    "upkeep": (N_("Upkeep"), N_("Works through what is due for the tenant")),
    "maintenance": (N_("Maintenance"), N_("Deletes old rows")),
    "erasure": (N_("Erasure"), N_("Removes personal data permanently")),
}
"""Kinds of runs: the name of each, and what it does."""
LEARNING = ("evaluate", "reflect", "curate", "apply", "trajectory", "transcript", "workflow")
ANSWERS = ("agent", "agent_correction", "chunk")
GROUPS = {
    "": (N_("learning, questions, documents"), (*LEARNING, *ANSWERS)),
    "learning": (N_("learning, with every evaluation"), LEARNING),
    "answers": (N_("questions and documents"), ANSWERS),
    "messages": (N_("webhooks and alerts"), ("webhook", "budget_alert")),
    "housekeeping": (
        N_("housekeeping"),
        ("cleanup", "reembed", "upkeep", "maintenance", "erasure"),
    ),
}
"""What the list shows: the name of a choice, and its kinds of runs."""
