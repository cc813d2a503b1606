"""Simulation of quarantine in a domain where most runs fail for other reasons.

    python -m bench simulate_counting [--seeds N] [--runs N]

A playbook has 20 bullets: 4 good (+25 percentage points of success), 12 without effect, 4 bad (-25
points). Without bullets, 40 % of the runs succeed. Each run takes one of 60 tasks at random, whose
own success rates are between 20 and 60 %. Either each bullet is served with a probability of 1/4,
or five bullets are served per run. The agent cites a served bullet in half of its runs. A model
detects the effect of a cited bullet in 10 % of the failures with a bad one and of the successes
with a good one; or never, so that there are only outcomes.

The counters come from the real code: `outcome_contrast` (which outcomes the attempts at a task
confirm), `winning_tag` (one verdict per run and bullet) and `should_quarantine`. A quarantined
bullet is not served again. The naive baseline counts each failure as harmful and each success as
helpful for each served bullet.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.report import Report
from memory_api.playbooks.usefulness import harm_rate, should_quarantine
from memory_api.playbooks.verdicts.record import winning_tag
from memory_api.reflection.credit.outcome_contrast import AttemptCounts, outcome_tag

EFFECT = {"good": 0.25, "none": 0.0, "bad": -0.25}
KINDS = ["good"] * 4 + ["none"] * 12 + ["bad"] * 4
BASE, SPREAD = 0.4, 0.2
TASKS, SERVED = 60, 5
CITED, SEEN = 0.5, 0.1
EVERY = 10
"""Runs between two looks at whom to quarantine."""


@dataclass
class Attempt:
    """One run: its outcome, what it was served, and what the model saw (bullet → tag)."""

    won: bool
    served: tuple[int, ...]
    seen: dict[int, str]


@dataclass
class World:
    """Attempts by task, and when each bullet was quarantined (its run)."""

    rng: random.Random
    places: bool
    """Whether bullets take each other's places."""
    seen: float
    """In what share of the telling runs the model sees what a cited bullet did."""
    attempts: dict[int, list[Attempt]] = field(default_factory=lambda: defaultdict(list))
    gone: dict[int, int] = field(default_factory=dict[int, int])

    def run(self, rates: Sequence[float]) -> Attempt:
        task = self.rng.randrange(TASKS)
        alive = [n for n in range(len(KINDS)) if n not in self.gone]
        served = tuple(n for n in alive if self.rng.random() < SERVED / len(KINDS))
        if self.places:
            served = tuple(self.rng.sample(alive, min(SERVED, len(alive))))
        chance = rates[task] + sum(EFFECT[KINDS[n]] for n in served)
        luck = self.rng.random()
        won = luck < min(0.98, max(0.02, chance))
        made = Attempt(won, served, self._seen(served, won))
        self.attempts[task].append(made)
        return made

    def _seen(self, served: Sequence[int], won: bool) -> dict[int, str]:
        """Verdicts of the model on cited bullets: sometimes the true effect, never the opposite."""
        seen: dict[int, str] = {}
        for n in served:
            tag = "helpful" if won and KINDS[n] == "good" else None
            tag = "harmful" if not won and KINDS[n] == "bad" else tag
            if tag and self.rng.random() < CITED * self.seen:
                seen[n] = tag
        return seen


def counted(world: World) -> dict[int, tuple[int, int]]:
    """Helpful and harmful verdicts of each bullet, as the service counts them."""
    counts = {n: [0, 0] for n in range(len(KINDS))}
    for attempts in world.attempts.values():
        for n in counts:
            for tag in _tags(attempts, n):
                counts[n][tag == "harmful"] += 1
    return {n: (good, bad) for n, (good, bad) in counts.items()}


def _tags(attempts: Sequence[Attempt], bullet: int) -> list[str]:
    having = [a for a in attempts if bullet in a.served]
    lacking = [a for a in attempts if bullet not in a.served]
    won = sum(a.won for a in having)
    outcome = outcome_tag(
        AttemptCounts(len(having), won, len(lacking), sum(a.won for a in lacking))
    )
    open_ = outcome is not None
    tags: list[str] = []
    for attempt in having:
        judges = {"llm": attempt.seen[bullet]} if bullet in attempt.seen else {}
        if open_ and outcome and attempt.won == (outcome == "helpful"):
            judges["outcome"], open_ = outcome, False
        tag = winning_tag(judges)
        if tag:
            tags.append(tag)
    return tags


def naive(world: World) -> dict[int, tuple[int, int]]:
    """Every outcome is a vote on each served bullet."""
    counts = {n: [0, 0] for n in range(len(KINDS))}
    for attempts in world.attempts.values():
        for attempt in attempts:
            for n in attempt.served:
                counts[n][not attempt.won] += 1
    return {n: (good, bad) for n, (good, bad) in counts.items()}


def against_base(counts: dict[int, tuple[int, int]], n: int) -> bool:
    """The service's rule: compared with the other bullets of the playbook."""
    others = [v for m, v in counts.items() if m != n]
    usual = harm_rate(sum(v[0] for v in others), sum(v[1] for v in others))
    return should_quarantine(*counts[n], usual)


def alone(counts: dict[int, tuple[int, int]], n: int) -> bool:
    """Spec 4's rule, which knows no base rate."""
    return should_quarantine(*counts[n], 0.0)


ARMS = {
    "as the service does": (counted, against_base),
    "naive counts, base rate": (naive, against_base),
    "naive counts, spec 4's rule": (naive, alone),
}


def simulate(seed: int, runs: int, arm: str, *, places: bool, seen: float) -> World:
    """The same tasks and luck for each arm, until who is served makes them part."""
    count, rule = ARMS[arm]
    rng = random.Random(seed)
    rates = [rng.uniform(BASE - SPREAD, BASE + SPREAD) for _ in range(TASKS)]
    world = World(rng, places, seen)
    for done in range(1, runs + 1):
        world.run(rates)
        if done % EVERY == 0:
            votes = count(world)
            for n in [n for n in votes if n not in world.gone and rule(votes, n)]:
                world.gone[n] = done
    return world


def main() -> None:
    """Prints the tables and writes them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--runs", type=int, default=2_000)
    options = parser.parse_args()
    seeds = range(1, options.seeds + 1)
    about = (
        f"Seeds {seeds[0]} to {seeds[-1]}, {options.runs} runs each; 20 bullets (4 good, 12 no "
        f"effect, 4 bad), {TASKS} tasks of which {BASE:.0%} of the runs succeed before bullets."
    )
    report = Report("simulate_counting", about)
    worlds = {
        "Each bullet served to a quarter of the runs": (False, SEEN),
        "The same, and the model sees nothing: outcomes alone": (False, 0.0),
        "Five bullets a run, each takes another's place": (True, SEEN),
    }
    last = ("runs until a bad one goes, median", "90th percentile", "success at the end")
    for title, (places, seen) in worlds.items():
        report.table(title, title, "counting", "good gone", "no effect gone", "bad gone", *last)
        for arm in ARMS:
            done = [simulate(n, options.runs, arm, places=places, seen=seen) for n in seeds]
            report.row(title, arm, *_row(done))
    report.finish()


def _row(worlds: Sequence[World]) -> list[str]:
    cells: list[str] = []
    for kind in EFFECT:
        total = KINDS.count(kind) * len(worlds)
        out = sum(KINDS[n] == kind for world in worlds for n in world.gone)
        cells.append(f"{out} of {total}")
    when = sorted(at for world in worlds for n, at in world.gone.items() if KINDS[n] == "bad")
    cells.append(f"{statistics.median(when):.0f}" if when else "never")
    cells.append(f"{when[int(0.9 * (len(when) - 1))]}" if when else "never")
    return [*cells, f"{statistics.mean(map(_late, worlds)):.1%}"]


def _late(world: World) -> float:
    """Share of successes among the last attempts of each task, 500 in all."""
    last = [a.won for attempts in world.attempts.values() for a in attempts[-(500 // TASKS) :]]
    return statistics.mean(last)


if __name__ == "__main__":
    main()
