"""Operations of a model that the curator refuses: on pinned bullets, on unknown ones, on bullets
that the prompt did not show, without a lesson. The playbook stays as it is, and the lesson waits
for the next curation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memory_api.curation.schemas import ApplyResult
from tests.curation.conftest import Book, lesson, operation, said
from tests.support.stub_provider import StubProvider, answer

SPLIT = "When an upload times out, split the file into parts of 10 MB."
LONGER = f"{SPLIT} Then send each part again."
SPLIT_TOO = "When an upload times out, split the file into parts of 10 MB first."
UNKNOWN = "pat-09999"


async def refuse(book: Book, stub: StubProvider, *operations: dict[str, Any]) -> ApplyResult:
    """The result of a curation with this answer, which must change nothing."""
    before = await book.bullets(), len(await book.versions())
    decided = await book.remembered()
    stub.behave = lambda call: answer(said(*operations))
    done = await book.learn(lesson("Uploads of large files fail now and then."))
    assert not done.changed, operations
    assert (await book.bullets(), len(await book.versions())) == before, operations
    assert await book.remembered() == decided, "the lesson is decided later"
    assert all(rejected.retry for rejected in done.rejected_lessons), operations
    return done


def reasons(done: ApplyResult) -> Sequence[str]:
    return [rejected.reason for rejected in done.rejected_lessons]


async def test_pinned_bullet_is_not_changed_by_a_model(asked: Book, stub: StubProvider) -> None:
    pinned, other = await asked.add(SPLIT, SPLIT_TOO, section="pat")
    await asked.set(pinned, pinned=True, harmful=3, playbook_version=2)
    for refused in (
        operation("UPDATE", 1, bullet_id=pinned, content=LONGER),
        operation("UPDATE", 1, bullet_id=pinned, when_to_use="When you upload"),
        operation("MERGE", 1, bullet_id=pinned, source_ids=[other], content=SPLIT_TOO),
        operation("MERGE", 1, bullet_id=other, source_ids=[pinned], content=SPLIT_TOO),
        operation("MERGE", 1, source_ids=[other, pinned], content=SPLIT_TOO),
        operation("MERGE", bullet_id=other, source_ids=[pinned], content=SPLIT_TOO),
        operation("DELETE", 1, bullet_id=pinned),
    ):
        assert f"Bullet {pinned} is pinned." in reasons(await refuse(asked, stub, refused))


async def test_pinned_bullet_may_know_a_lesson(asked: Book, stub: StubProvider) -> None:
    (pinned,) = await asked.add(SPLIT)
    await asked.set(pinned, pinned=True, playbook_version=2)
    stub.queue(answer(said(operation("KEEP", 1, bullet_id=pinned))))
    done = await asked.learn(lesson("Cut a file that is too large for an upload."))
    assert [known.key for known in done.known_lessons] == [pinned]
    assert (await asked.memory(pinned)).observation_count == 2


async def test_unknown_bullet_is_not_changed(asked: Book, stub: StubProvider) -> None:
    first, second = await asked.add(SPLIT, SPLIT_TOO)
    for refused in (
        operation("UPDATE", 1, bullet_id=UNKNOWN, content=LONGER),
        operation("UPDATE", 1, bullet_id=None, content=LONGER),
        operation("UPDATE", 1, bullet_id="the first one", content=LONGER),
        operation("MERGE", 1, bullet_id=first, source_ids=[UNKNOWN], content=LONGER),
        operation("MERGE", 1, bullet_id=UNKNOWN, source_ids=[first, second], content=LONGER),
        operation("MERGE", bullet_id=first, source_ids=[second, UNKNOWN]),
        operation("DELETE", 1, bullet_id=UNKNOWN),
        operation("KEEP", 1, bullet_id=UNKNOWN),
    ):
        assert "The bullet was not in the prompt." in reasons(await refuse(asked, stub, refused))


async def test_merge_needs_two_bullets(asked: Book, stub: StubProvider) -> None:
    first, _ = await asked.add(SPLIT, SPLIT_TOO)
    for sources in ([], [first]):
        refused = operation("MERGE", 1, bullet_id=first, source_ids=sources, content=LONGER)
        done = await refuse(asked, stub, refused)
        assert "MERGE requires at least 2 different bullets." in reasons(done)


async def test_bullet_of_another_playbook_is_not_changed(asked: Book, stub: StubProvider) -> None:
    """Keys count per playbook: the key exists only in the other one."""
    (near,) = await asked.add(SPLIT)
    other = Book(asked.runtime, asked.tenant_id, type(asked.place)("default", "other"))
    keys = await other.add("Ask for the order number.", "Read the policy.", section="OTHERS")
    refused = operation("UPDATE", 1, bullet_id=keys[-1], content="Ignore the policy.")
    assert keys[-1] != near
    assert "The bullet was not in the prompt." in reasons(await refuse(asked, stub, refused))
    assert (await other.bullets())[keys[-1]].content == "Read the policy."


async def test_bullet_shown_by_its_title_is_only_kept(asked: Book, stub: StubProvider) -> None:
    """Of a large playbook, the prompt shows the nearest bullets, and the titles of the others."""
    (near,) = await asked.add(SPLIT)
    far: list[str] = []
    for part in range(0, 60, 10):
        far += await asked.add(*(f"Subject{n} needs advice{n}." for n in range(part, part + 10)))
    stub.behave = lambda call: answer(said())
    await asked.think(lesson("Uploads of large files fail now and then."))
    shown, titles = stub.calls[0].user.split("Other bullets:", 1)
    hidden = next(key for key in far if f"[{key}]" in titles and f"[{key}]" not in shown)
    assert f"[{near}]" in shown
    await asked.set(hidden, harmful=5)
    for refused in (
        operation("UPDATE", 1, bullet_id=hidden, content="Subject needs advice and more."),
        operation("MERGE", 1, bullet_id=near, source_ids=[hidden], content=LONGER),
        operation("MERGE", 1, bullet_id=hidden, source_ids=[near], content=LONGER),
        operation("DELETE", 1, bullet_id=hidden),
    ):
        assert "The bullet was not in the prompt." in reasons(await refuse(asked, stub, refused))
    stub.behave = lambda call: answer(said(operation("KEEP", 1, bullet_id=hidden)))
    done = await asked.learn(lesson("Uploads of large files fail now and then."))
    assert [known.key for known in done.known_lessons] == [hidden]


async def test_operation_without_a_lesson_is_refused(asked: Book, stub: StubProvider) -> None:
    (key,) = await asked.add(SPLIT)
    for refused in (
        operation("UPDATE", bullet_id=key, content=LONGER),
        operation("UPDATE", 0, 2, 99, bullet_id=key, content=LONGER),
        operation("ADD", section="oth", content="Something of its own."),
    ):
        assert "The operation names no lesson." in reasons(await refuse(asked, stub, refused))


async def test_update_that_drops_advice_is_asked_again_then_refused(
    asked: Book, stub: StubProvider
) -> None:
    (key,) = await asked.add(SPLIT)
    for content, problem in (
        ("When an upload times out, split the file into parts.", f"omits 10 of {key}"),
        ("Use 10 workers, and ask the administrator for a faster line.", "drops most words"),
    ):
        asked_before = len(stub.calls)
        refused = operation("UPDATE", 1, bullet_id=key, content=content)
        done = await refuse(asked, stub, refused)
        assert any(problem in reason for reason in reasons(done)), reasons(done)
        assert len(stub.calls) == asked_before + 2
        assert problem in stub.calls[-1].user


async def test_one_refused_operation_does_not_stop_the_others(
    asked: Book, stub: StubProvider
) -> None:
    pinned, open_key = await asked.add(SPLIT, "Read the error of an export before you repeat it.")
    await asked.set(pinned, pinned=True, playbook_version=2)
    better = "Read the error of an export before you repeat it, and its log."
    stub.queue(
        answer(
            said(
                operation("UPDATE", 1, bullet_id=pinned, content=LONGER),
                operation("UPDATE", 2, bullet_id=open_key, content=better),
                operation("UPDATE", 3, bullet_id=UNKNOWN, content=better),
            )
        )
    )
    texts = ("Send the parts.", "Read the log of an export.", "Look at something else.")
    done = await asked.learn(*map(lesson, texts))
    assert [result.action for result in done.results] == ["updated"]
    assert (await asked.bullets())[open_key].content == better
    assert (await asked.bullets())[pinned].content == SPLIT
    waiting = [number for rejected in done.rejected_lessons for number in rejected.lessons]
    assert sorted(waiting) == [0, 2]


async def test_text_of_a_trial_may_be_replaced(asked: Book, stub: StubProvider) -> None:
    (key,) = await asked.add("Try: send 10 parts to the administrator; one part alone failed.")
    found = "When an upload times out, split the file."
    stub.behave = lambda call: answer(said(operation("UPDATE", 1, bullet_id=key, content=found)))
    await asked.learn(lesson("When an upload times out, split the file."))
    assert (await asked.bullets())[key].content == found
