"""The text of an episode."""

from __future__ import annotations

from memory_api.reflection.episode import episode_text
from tests.support.runs import call, run, user


def test_a_call_and_its_response_are_one_call() -> None:
    rows = [user("Find it."), *call("search", {"q": "a"}, "b"), *call("open", {"id": 1}, "c")]
    rows += call("search", {"q": "d"}, "e")
    text = episode_text(None, None, "success", run(rows).events)
    assert "Tools: search ×2, open ×1." in text
