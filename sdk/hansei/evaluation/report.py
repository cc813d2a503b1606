"""Computes the report of an evaluation from its files."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from hansei._model import Json
from hansei.evaluation.command_words import hide_variables
from hansei.evaluation.notes import find_notes
from hansei.evaluation.plan import PHASES, Plan, load_plan
from hansei.evaluation.records import read_answers, read_learning
from hansei.evaluation.report_format import primary_label
from hansei.evaluation.runner import call_key
from hansei.evaluation.statistics import mean_interval, paired_difference, wilson_interval

DELTA = 0.05
"""The report states how many tasks a difference of this size needs."""
Means = Mapping[str, float]


def build_report(folder: Path) -> Json:
    """Raises `EvaluationError` if the folder has no evaluation."""
    return Report(load_plan(folder), folder).to_json()


class Report:
    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        records = {call_key(record): record for record in read_answers(folder)}
        self._answers = list(records.values())
        self._learning = sorted(read_learning(folder), key=lambda r: (r["repeat"], r["window"]))
        self._controls = {task.id for task in plan.tasks if task.control}

    def to_json(self) -> Json:
        plan = self._plan.to_json()
        arms = self._plan.protocol.arms
        costs = [self._costs(arm) for arm in arms]
        learning = self._learning_summary()
        report: Json = {
            "plan": {
                **{name: value for name, value in plan.items() if name != "orders"},
                "agent": hide_variables(plan["agent"]),
                "scorer": plan["scorer"] and hide_variables(plan["scorer"]),
            },
            "tasks": self._plan.task_counts,
            "calls": {"done": len(self._answers), "planned": plan["calls"]},
            "primary": primary_label(*self._plan.primary),
            "partial_scores": any(0 < r["score"] < 1 for r in self._answers),
            "accuracy": [
                self._accuracy("primary", arm, self._select(arm, self._decides)) for arm in arms
            ]
            + [
                self._accuracy(name, arm, [r for r in self._select(arm) if r["phase"] == name])
                for name in PHASES
                for arm in arms
            ],
            "comparisons": self._comparisons(_pairs(arms), self._decides),
            "first_pass": []
            if self._plan.primary[0] == "stream"
            else self._comparisons(_pairs(arms), lambda r: r["phase"] == "stream"),
            "agentcl": [self._gains(arm) for arm in arms if arm != "none" and "none" in arms],
            "controls": self._comparisons(
                [pair for pair in _pairs(arms) if pair[1] == "none"], self._is_fair_control
            ),
            "groups": self._groups(self._decides),
            "advice": [self._advice(arm) for arm in arms if arm != "none"],
            "bullets": [row for arm in arms for row in self._bullets(arm)],
            "costs": costs,
            "learning": learning,
            "total_usd": self._total_usd(costs, learning),
            "curve": self._curve(),
            "failures": [
                {name: r[name] for name in ("task_id", "arm", "phase", "repeat", "error")}
                for r in self._answers
                if r["error"]
            ],
        }
        return {**report, "notes": find_notes(report)}

    def _decides(self, record: Json) -> bool:
        phase, window = self._plan.primary
        if phase == "second" and record["arm"] == "none":
            phase = "stream"  # without a memory, there is no second pass
        return record["phase"] == phase and record["window"] >= window

    def _is_fair_control(self, record: Json) -> bool:
        is_control = record["task_id"] in self._controls and record["phase"] != "second"
        return is_control and not record["error"]

    def _select(self, arm: str, choose: Callable[[Json], bool] = bool) -> list[Json]:
        return [r for r in self._answers if r["arm"] == arm and choose(r)]

    def _accuracy(self, phase: str, arm: str, records: Sequence[Json]) -> Json:
        means = _means(records)
        interval = wilson_interval(list(means.values()))
        failed = sum(bool(r["error"]) for r in records)
        counts = {"tasks": len(means), "calls": len(records), "failed": failed}
        return {"phase": phase, "arm": arm, **counts, **asdict(interval)}

    def _comparisons(
        self, pairs: Iterable[tuple[str, str]], choose: Callable[[Json], bool]
    ) -> list[Json]:
        found = (self._compare(first, second, choose) for first, second in pairs)
        return [row for row in found if row is not None]

    def _compare(self, first: str, second: str, choose: Callable[[Json], bool]) -> Json | None:
        records = self._select(first, choose), self._select(second, choose)
        one, two = map(_means, records)
        ids = [task_id for task_id in one if task_id in two]
        if not ids:
            return None
        one_answered, two_answered = (_means(r for r in each if not r["error"]) for each in records)
        failed = [
            i
            for i in ids
            if one[i] != two[i]
            and not _has_same_sign(one[i] - two[i], one_answered.get(i), two_answered.get(i))
        ]
        result = paired_difference([one[i] for i in ids], [two[i] for i in ids], delta=DELTA)
        return {
            "first": first,
            "second": second,
            **asdict(result),
            "can_improve": sum(two[i] < 1 for i in ids),
            "became_right": [i for i in ids if one[i] > two[i] and i not in failed],
            "became_wrong": [i for i in ids if one[i] < two[i] and i not in failed],
            "changed_by_failed_call": failed,
        }

    def _groups(self, choose: Callable[[Json], bool]) -> list[Json]:
        """Accuracy of each `group` of tasks, for each arm."""
        group_of = {task.id: task.group for task in self._plan.tasks if task.group}
        scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for record in filter(choose, self._answers):
            if group := group_of.get(record["task_id"]):
                scores[group][record["arm"]].append(record["score"])
        return [
            {"group": group, "arms": {arm: sum(s) / len(s) for arm, s in by_arm.items()}}
            for group, by_arm in sorted(scores.items())
        ]

    def _gains(self, arm: str) -> Json:
        """Plasticity: first pass minus `none`. Stability: second pass minus first pass.
        Generalization: held-out tasks minus `none`.
        """

        def means(of: str, phase: str) -> Means:
            return _means(self._select(of, lambda r: r["phase"] == phase))

        first, base = means(arm, "stream"), means("none", "stream")
        return {
            "arm": arm,
            "plasticity": _gain(first, base),
            "stability": _gain(means(arm, "second"), first),
            "second_pass_gain": _gain(means(arm, "second"), base),
            "generalization": _gain(means(arm, "held_out"), means("none", "held_out")),
        }

    def _advice(self, arm: str) -> Json:
        records = self._select(arm)
        rendered = [r for r in records if r["advice"]]
        is_service = any(r["retrieval_id"] for r in records)
        is_learner = arm == self._plan.protocol.learner
        judged = self._count(rendered, "judged") if is_learner else 0
        return {
            "arm": arm,
            "calls": len(records),
            "rendered": len(rendered),
            "measures_nothing": bool(records) and not rendered,
            "cited": sum(bool(r["cited"]) for r in records) if is_service else None,
            "followed": self._count(rendered, "followed") if judged else None,
            "judged": judged,
            "tokens": _ratio(sum(r["advice_tokens"] for r in rendered), len(rendered)) or 0,
        }

    def _bullets(self, arm: str) -> list[Json]:
        """How often each bullet was given and cited, if the agent cites at all. Each repeat has
        bullets of its own.
        """
        given: Counter[tuple[str, int]] = Counter()
        cited: Counter[tuple[str, int]] = Counter()
        for record in self._select(arm):
            given.update((key, record["repeat"]) for key in record["bullet_keys"])
            cited.update((key, record["repeat"]) for key in record["cited"])
        return [
            {"arm": arm, "key": key, "repeat": repeat, "given": given[key, repeat], "cited": count}
            for count, key, repeat in sorted(
                ((cited[each], *each) for each in given), key=lambda row: (-row[0], *row[1:])
            )
            if cited
        ]

    def _count(self, rendered: Iterable[Json], name: str) -> int:
        """Attempts of the stream whose bullets a reflection judged, or found to be `followed`."""
        found = {(r["repeat"], r["window"], i) for r in self._learning for i in r[name]}
        stream = [r for r in rendered if r["phase"] == "stream"]
        return sum((r["repeat"], r["window"], r["task_id"]) in found for r in stream)

    def _costs(self, arm: str) -> Json:
        """Of the agent. Dollars are unknown unless the price of each answer is known."""
        records = self._select(arm, lambda r: not r["error"])
        usd = [r["usd"] for r in records if r["usd"] is not None]
        is_priced = bool(records) and len(usd) == len(records)
        has_usage = bool(records) and all(r["usage"] for r in records)

        def mean(name: str) -> float | None:
            values = [r["usage"].get(name, 0) for r in records]
            return sum(values) / len(values) if has_usage else None

        return {
            "arm": arm,
            "calls": len(records),
            "input_tokens": mean("input_tokens"),
            "output_tokens": mean("output_tokens"),
            "usd": sum(usd) / len(usd) if is_priced else None,
            "total_usd": sum(usd) if is_priced else None,
            "seconds": sum(r["seconds"] for r in records) / len(records) if records else None,
        }

    def _total_usd(self, costs: Sequence[Json], learning: Json | None) -> float | None:
        parts = [row["total_usd"] for row in costs] + ([learning["usd"]] if learning else [])
        return None if None in parts else sum(parts)

    def _learning_summary(self) -> Json | None:
        if not self._learning:
            return None
        last = {record["repeat"]: record for record in self._learning}.values()
        traces = sum(record["traces"] for record in self._learning)
        calls = sum(record["usage"].get("calls", 0) for record in last)
        unpriced = sum(r["usage"].get("unpriced", 0) for r in last)
        usd = None if unpriced else sum(r["usage"].get("usd", 0.0) for r in last)
        helpful = [r["helpful"] for r in last if r["helpful"] is not None]
        has_verdicts = len(helpful) == len(last)
        return {
            "traces": traces,
            "calls": calls,
            "calls_per_trace": _ratio(calls, traces),
            "input_tokens": sum(r["usage"].get("input_tokens", 0) for r in last),
            "output_tokens": sum(r["usage"].get("output_tokens", 0) for r in last),
            "usd": usd,
            "usd_per_trace": _ratio(usd, traces),
            "usd_per_helpful_bullet": _ratio(usd, sum(helpful)) if has_verdicts else None,
            "unpriced_calls": unpriced,
            "bullets": sum(record["bullets"] for record in last) / len(last),
            "helpful_bullets": sum(helpful) / len(last) if has_verdicts else None,
            "waiting": sum(record["waiting"] for record in last) / len(last),
            "seconds": sum(record["seconds"] for record in self._learning),
            "failed_runs": [run for record in self._learning for run in record["failed_runs"]],
            "projects": sorted({record["project"] for record in self._learning}),
        }

    def _curve(self) -> list[Json]:
        """Accuracy of each window of the stream, and the bullets after it."""
        windows: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for record in self._answers:
            if record["phase"] == "stream":
                windows[record["window"]][record["arm"]].append(record["score"])
        bullets: dict[int, list[int]] = defaultdict(list)
        for record in self._learning:
            bullets[record["window"]].append(record["bullets"])
        return [
            {
                "window": window + 1,
                "arms": {arm: sum(scores) / len(scores) for arm, scores in by_arm.items()},
                "bullets": sum(b) / len(b) if (b := bullets.get(window)) else None,
            }
            for window, by_arm in sorted(windows.items())
        ]


def _means(records: Iterable[Json]) -> dict[str, float]:
    """Task ID → mean score over repeats, in order of ID."""
    scores: dict[str, list[float]] = defaultdict(list)
    for record in records:
        scores[record["task_id"]].append(record["score"])
    return {task_id: sum(s) / len(s) for task_id, s in sorted(scores.items())}


def _has_same_sign(difference: float, first: float | None, second: float | None) -> bool:
    """Whether the answers differ as the scores do, without the calls that failed."""
    return first is not None and second is not None and (first - second) * difference > 0


def _ratio(value: float | None, count: float) -> float | None:
    return value / count if value is not None and count else None


def _gain(first: Means, second: Means) -> Json | None:
    ids = [task_id for task_id in first if task_id in second]
    if not ids:
        return None
    return {"tasks": len(ids), **asdict(mean_interval([first[i] - second[i] for i in ids]))}


def _pairs(arms: Sequence[str]) -> list[tuple[str, str]]:
    """Each arm with `none`, and `hansei` with each other arm."""
    pairs = [(arm, "none") for arm in arms if arm != "none" and "none" in arms]
    others = [arm for arm in arms if arm not in ("none", "hansei")]
    return pairs + ([("hansei", arm) for arm in others] if "hansei" in arms else [])
