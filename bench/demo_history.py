"""Writes the data of `hansei demo` from recordings: `python -m bench demo_history`.

The two desks are runs of House Rules that readers did for docs/proof.md (seed 43, airline; seed 25,
orders): what the agents did with and without a playbook, how the runs were scored, and the answers
that a reader gave in place of the model that reflects and curates. Composed are the days, that the
last change waits for a person, and the verdicts of a person on the last runs: harmful where a run
failed at a call that a bullet is about, helpful where it succeeded.
"""

from __future__ import annotations

import json
import lzma
import re
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bench.corpus import ROOT

Json = dict[str, Any]
FILE = ROOT / "apps" / "memory_api" / "demo" / "history.jsonl.xz"
RECORDINGS = ROOT / "tests" / "recordings" / "eval"
DESKS = (
    ("airline", "e43", range(409, 532), "The service desk of an airline"),
    ("orders", "c25", range(409), "The order desk of a shop with a warehouse"),
)
"""Playbook, archive, the lines of `learner.jsonl` that belong to it, and what the desk is."""
WINDOWS = ((0.0, 14.0), (15.0, 29.0), (30.0, 41.0))
"""First and last day of each window. A playbook is curated at the end of each."""
LAST_PART = (42.0, 59.8)
"""When the last runs happen, each task with and without the playbook."""
WAITS = "orders"
"""The consolidation of this playbook, the last answer of its reader, waits for a person."""
LAST_TASKS = 30
"""Tasks of the last part: all that failed with the playbook, and the first of the others."""
FIRST_REVIEWS, LAST_REVIEW = 47.5, 59.4
"""A person judges the runs of the last part: until the first day soon after each run, and all later
ones together on the second day, after the last run that had advice. So no run has a bullet that
these verdicts quarantine.
"""
HUMAN = "person:mia@example.com"
_TASK = re.compile(r"<task-[0-9a-f]+>\n(.*?)\n</task-", re.DOTALL)
_RUN = re.compile(r"^# Run (R\d+)\n(.*?)(?=^# Run R|\Z)", re.DOTALL | re.MULTILINE)
_LESSON = re.compile(r"^(\d+)\. \(\w+\) (.+)$", re.MULTILINE)
_BULLET = re.compile(r"^\[([a-z]+-\d+)\] .*\n(?:  .*\n)*?  title: (.+)$", re.MULTILINE)
_KNOWN = re.compile(r"^\[(L\d+)\] (.+)$", re.MULTILINE)


def main() -> None:
    learner = read_learner()
    with lzma.open(FILE, "wt", encoding="utf8", preset=9 | lzma.PRESET_EXTREME) as file:
        for playbook, archive, lines, about in DESKS:
            for item in desk(playbook, archive, learner[lines.start : lines.stop], about):
                file.write(json.dumps(item, ensure_ascii=False) + "\n")
    print(f"{FILE.relative_to(ROOT)}: {FILE.stat().st_size:,} bytes")


def read_learner() -> list[Json]:
    with lzma.open(RECORDINGS / "learner.jsonl.xz", "rt", encoding="utf8") as file:
        return [json.loads(line) for line in file]


def desk(playbook: str, archive: str, learner: Sequence[Json], about: str) -> Iterator[Json]:
    """The lines of one desk, in the order of their days."""
    with tarfile.open(RECORDINGS / f"{archive}.tar.xz") as folder:
        answers, tasks = read_lines(folder, "answers.jsonl"), read_lines(folder, "tasks.jsonl")
    texts = {task["id"]: task["task"] for task in tasks}
    own = lines_of_desk(learner, texts.values())
    titles = first_titles(own)
    reflections = dict(recorded_reflections(learner, set(texts.values()), titles))
    consolidations, waits = list(recorded_consolidations(own, titles)), playbook == WAITS
    tools = next((a["tools"] for a in answers if a.get("tools")), None)
    yield {
        "type": "desk",
        "playbook": playbook,
        "about": about,
        "tools": tools,
        "curations": list(recorded_curations(own, titles)),
        "consolidations": [] if waits else consolidations,
    }
    stream = [a for a in answers if a["phase"] == "stream" and a["arm"] in ("hansei", "none")]
    for window, (start, end) in enumerate(WINDOWS):
        runs = [a for a in stream if a["window"] == window]
        without = {r["task_id"]: r for r in runs if r["arm"] == "none"}
        for number, answer in enumerate(r for r in runs if r["arm"] == "hansei"):
            day = start + (end - start) * number / 20
            text = texts[answer["task_id"]]
            yield run(answer, text, day, titles, reflections.get((text, outcome_of(answer))))
            if window:  # in the first window, no run has advice
                yield run(without[answer["task_id"]], text, day + 0.2, titles)
        yield {"type": "curate", "day": end + 0.3}
    for change in consolidations if waits else ():
        fields = ("title", "when_to_use", "content", "reasoning")
        yield {
            "type": "propose",
            "day": 59.9,
            "bullet": change["bullet_id"],
            **{name: change[name] for name in fields if change[name] is not None},
            "reason": "The condition is stated once.",
            "actor": HUMAN,
        }
    yield from last_part([a for a in answers if a["phase"] == "held_out"], texts, titles)


def last_part(answers: Sequence[Json], texts: Json, titles: dict[str, str]) -> Iterator[Json]:
    """The tasks that nothing is learned from, the failed ones in the second half."""
    with_advice = {a["task_id"]: a for a in answers if a["arm"] == "hansei"}
    without = {a["task_id"]: a for a in answers if a["arm"] == "none"}
    good = [task for task, answer in with_advice.items() if answer["score"] >= 1]
    bad = [task for task, answer in with_advice.items() if answer["score"] < 1]
    good = good[: LAST_TASKS - len(bad)]
    half = len(good) * 2 // 5
    late = good[half:]
    for number, task in enumerate(bad):
        late.insert(min(len(late), 2 + number * 2), task)
    order = [*good[:half], *late]
    first, last = LAST_PART
    for number, task in enumerate(order):
        day = first + (last - first) * number / len(order)
        answer = with_advice[task]
        yield run(answer, texts[task], day, titles)
        if number % 2 == 0 or answer["score"] < 1:
            judged = day + 0.1 if day < FIRST_REVIEWS else LAST_REVIEW + number / 1000
            yield from verdicts(answer, judged, titles)
        yield run(without[task], texts[task], day + 0.15, titles)


def verdicts(answer: Json, day: float, titles: dict[str, str]) -> Iterator[Json]:
    """Composed: a person's verdict on each bullet that is about a call of the run. A failed run is
    blamed on the bullets about its first wrong call.
    """
    calls = [call[0] for call in json.loads(answer["answer"])]
    failed = answer["score"] < 1
    if failed:
        calls = calls[-1:] if "set_ship_date" in calls else calls[:1]
    reason = "It was followed, and the desk accepted the result."
    if failed:
        right = next(
            line for line in answer["feedback"].splitlines()[1:] if line.startswith(calls[0])
        )
        reason = f"The agent followed it, and the result was wrong. Right: {right}"
    for key, text in advice_lines(answer):
        if any(call in text for call in calls):
            yield {
                "type": "verdict",
                "day": round(day, 3),
                "run": run_name(answer),
                "bullet": titles[key],
                "tag": "harmful" if failed else "helpful",
                "reason": reason,
                "actor": HUMAN,
            }


def run(
    answer: Json, task: str, day: float, titles: dict[str, str], reflection: Json | None = None
) -> Json:
    """One run of an agent. `advice` are the bullets that it had; None if they were withheld."""
    failed, with_advice = answer["score"] < 1, answer["arm"] == "hansei"
    return {
        "type": "run",
        "name": run_name(answer),
        "day": round(day, 3),
        "task": task,
        "task_key": answer["task_id"],
        "outcome": outcome_of(answer),
        "error": answer["feedback"] if failed else None,
        "events": answer["events"],
        "answer": answer["answer"] or "",
        "advice": [titles[key] for key in answer["bullet_keys"]] if with_advice else None,
        "used": [titles[key] for key in used_bullets(answer)],
        "usage": answer["usage"],
        "reflection": reflection,
    }


def used_bullets(answer: Json) -> list[str]:
    """The bullets in the advice that name a tool of the run: the agents cited none."""
    calls = [call[0] for call in json.loads(answer["answer"] or "[]")]
    return [k for k, text in advice_lines(answer) if any(call in text for call in calls)]


def advice_lines(answer: Json) -> list[tuple[str, str]]:
    """The key and the text of each bullet in the advice of a run."""
    return re.findall(r"^- \[([a-z]+-\d+)\] (.*)$", answer["advice"], re.MULTILINE)


def run_name(answer: Json) -> str:
    return f"{answer['task_id']}-{'with' if answer['arm'] == 'hansei' else 'without'}"


def outcome_of(answer: Json) -> str:
    return "success" if answer["score"] >= 1 else "failure"


def recorded_reflections(
    learner: Sequence[Json], desk_tasks: set[str], titles: dict[str, str]
) -> Iterator[tuple[tuple[str, str], Json]]:
    """(task, outcome) → the reader's answer on that run. In an answer on a batch, a run has the
    rules that name it. `same_as` names a known lesson by its text.
    """
    for line in learner:
        prompt, answer = line["prompt"][-1], json.loads(line["answer"])
        known = dict(_KNOWN.findall(prompt))
        if "runs" in answer:
            tasks = dict(_RUN.findall(prompt))
            for item in answer["runs"]:
                rules = [r for r in answer["rules"] if item["run"] in r["runs"]]
                rules = [{k: v for k, v in r.items() if k != "runs"} for r in rules][:3]
                text = tasks[item["run"]]
                if key_of(text)[0] in desk_tasks:
                    yield key_of(text), named(item, known, titles) | {"rules": rules}
        elif "root_cause" in answer and key_of(prompt)[0] in desk_tasks:
            yield key_of(prompt), named(answer, known, titles)


def key_of(prompt: str) -> tuple[str, str]:
    found = _TASK.search(prompt)
    outcome = "success" if re.search(r"^Outcome.*success", prompt, re.MULTILINE) else "failure"
    return (found[1] if found else "", outcome)


def named(answer: Json, known: Json, titles: dict[str, str]) -> Json:
    """The answer on one run, with texts of lessons and titles of bullets for their names."""
    verdicts = [v | {"key": titles[v["key"]]} for v in answer.get("verdicts", [])]
    return {k: v for k, v in answer.items() if k != "run"} | {
        "same_as": [known[name] for name in answer.get("same_as", []) if name in known],
        "verdicts": [v for v in verdicts if v["tag"] != "neutral"],
    }


def lines_of_desk(learner: Sequence[Json], tasks: Iterable[str]) -> list[Json]:
    """The prompts of the curator with these tasks, and of consolidations of the bullets that these
    curations added.
    """
    own: list[Json] = []
    added: set[str] = set()
    for line in learner:
        prompt, answer = line["prompt"][-1], json.loads(line["answer"])
        if any(f"task: {task}\n" in prompt for task in tasks):
            added |= {o["title"] for o in answer["operations"] if o["type"] == "ADD"}
            own.append(line)
        elif "## The bullets" in prompt:
            titles = {title for _key, title in _BULLET.findall(prompt)}
            own += [line] if len(titles & added) > len(titles) / 2 else []
    return own


def first_titles(learner: Sequence[Json]) -> dict[str, str]:
    """Key → the title with which the bullet was added."""
    titles: dict[str, str] = {}
    for line in learner:
        for key, title in _BULLET.findall(line["prompt"][-1]):
            titles.setdefault(key, title)
    return titles


def recorded_curations(learner: Sequence[Json], titles: dict[str, str]) -> Iterator[Json]:
    """The operations of the curator, each with the texts of its lessons. A bullet is named by the
    title with which it was added, because its key may be another one in the demo.
    """
    for line in learner:
        prompt, answer = line["prompt"][-1], json.loads(line["answer"])
        if "operations" not in answer or "Lessons:\n<lessons" not in prompt:
            continue
        lessons = {int(number): text for number, text in _LESSON.findall(prompt)}
        for operation in answer["operations"]:
            texts = [lessons[number] for number in operation["lessons"]]
            yield with_titles(operation, titles) | {"lessons": texts}


def recorded_consolidations(learner: Sequence[Json], titles: dict[str, str]) -> Iterator[Json]:
    """The operations of the consolidations."""
    for line in learner:
        answer = json.loads(line["answer"])
        if "operations" in answer and "## The bullets" in line["prompt"][-1]:
            yield from (with_titles(operation, titles) for operation in answer["operations"])


def with_titles(operation: Json, titles: dict[str, str]) -> Json:
    return operation | {
        "bullet_id": titles.get(operation["bullet_id"]),
        "source_ids": [titles[key] for key in operation["source_ids"]],
        "contradicts": [titles[key] for key in operation.get("contradicts", [])],
    }


def read_lines(folder: tarfile.TarFile, name: str) -> list[Json]:
    file = folder.extractfile(name)
    assert file is not None, name
    return [json.loads(line) for line in file]


if __name__ == "__main__":
    main()
