"""The bullets that the prompt of the curator shows completely."""

from __future__ import annotations

from memory_api.core.ids import new_id
from memory_api.curation.context import CurationContext, LessonEvidence, NearbyBullet
from memory_api.curation.prompt import (
    MAX_SHOWN_BULLETS_PER_LESSON,
    MAX_SHOWN_TOOLS,
    MIN_SHOWN_BULLETS_PER_LESSON,
    build_messages,
    choose_shown_bullets,
    list_tools,
)
from memory_api.curation.schemas import Lesson
from memory_api.llm.prompts import Prompt
from memory_api.playbooks.models import Bullet


def near(key: str, status: str = "active") -> NearbyBullet:
    bullet = Bullet.model_validate(
        {"id": key, "section": "OTHERS", "content": f"Advice {key}", "status": status}
    )
    return NearbyBullet(bullet, new_id())


def test_bullets_of_the_lessons_own_tools_come_first() -> None:
    """The nearest bullets are those of another domain, taught with other tools."""
    foreign = [near(f"oth-{n:05d}") for n in range(1, 13)]
    own = [near(f"pat-{n:05d}") for n in range(1, 4)]
    context = CurationContext(
        near=[[*foreign, *own, near("pat-00009", "quarantined")]],
        evidence=[LessonEvidence(tools=["search_flights", "think"])],
        bullet_tools={n.bullet.id: {"deploy"} for n in foreign}
        | {n.bullet.id: {"search_flights"} for n in own},
    )
    shown = [n.bullet.id for n in choose_shown_bullets([[0]], context)]
    assert shown[:3] == ["pat-00001", "pat-00002", "pat-00003"]
    assert shown[3:] == [n.bullet.id for n in foreign[:MIN_SHOWN_BULLETS_PER_LESSON]]


def test_own_tools_are_a_matter_of_each_lesson() -> None:
    flights, deploys = near("pat-00001"), near("pat-00002")
    context = CurationContext(
        near=[[deploys, flights], [flights, deploys]],
        evidence=[LessonEvidence(tools=["search_flights"]), LessonEvidence(tools=["deploy"])],
        bullet_tools={"pat-00001": {"search_flights"}, "pat-00002": {"deploy"}},
    )
    assert choose_shown_bullets([[0]], context)[0] == flights
    assert choose_shown_bullets([[1]], context)[0] == deploys
    many = [near(f"oth-{n:05d}") for n in range(20)]
    limited = CurationContext(near=[many], evidence=[LessonEvidence()])
    assert len(choose_shown_bullets([[0]], limited)) == MAX_SHOWN_BULLETS_PER_LESSON


def test_waiting_bullets_leave_half_of_the_titles_their_space() -> None:
    """One author's traces make many long bullets wait."""
    context = CurationContext(
        titles={f"pat-{n:05d}": f"Title {n}" for n in range(60)},
        unconfirmed={f"oth-{n:05d}": f"{n} " + "pay the desk " * 40 for n in range(40)},
        near=[[]],
    )
    prompt = Prompt("x", "{titles} {lessons}", "", "given")
    messages = build_messages(prompt, [Lesson(text="Pay.")], [[0]], context, budget=4000)
    shown = messages.variable_text
    assert shown.count("[oth-") > 2
    assert shown.count("[pat-") > 40


def test_a_list_of_tools_shows_that_it_is_cut() -> None:
    names = [f"tool_{n}" for n in range(MAX_SHOWN_TOOLS + 2)]
    assert list_tools(names).endswith("tool_7 and 2 more")
    assert list_tools(names[:2]) == "tool_0, tool_1"
