"""Pages of playbooks: bullets, search, a bullet's life, review, timeline."""

from __future__ import annotations

import html
import re
from urllib.parse import quote

import httpx2
import pytest

HARMFUL_TEXT = "Always retry a payment at once."
BULLETS = [
    {"type": "ADD", "section": "MISTAKES TO AVOID", "content": HARMFUL_TEXT},
    {"type": "ADD", "section": "OTHERS", "content": "返金の前に注文を確認する。"},
]
HOSTILE = "<script>alert(1)</script> [x](javascript:alert(2)) " + "w" * 10_000
BOOK = "/console/playbooks/support"


async def fill(api: httpx2.AsyncClient, project: str = "default") -> list[str]:
    """A playbook with two bullets. Returns their keys."""
    body = {"deltas": BULLETS, "project_id": project}
    answer = await api.post("/api/v1/playbooks/support/deltas", json=body)
    return [result["key"] for result in answer.json()["results"]]


def plain(page: httpx2.Response) -> str:
    """The text of a page."""
    return html.unescape(re.sub(r"<[^>]+>", "", page.text))


async def test_empty_pages_say_what_to_do(owner_of) -> None:
    assert "No playbook yet" in (await owner_of.get("/console/playbooks")).text
    assert "Nothing has been learned yet" in (await owner_of.get("/console")).text
    assert (await owner_of.get(BOOK)).status_code == 404


async def test_bullets_are_listed_and_filtered(owner_of, api) -> None:
    await fill(api)
    assert "support" in (await owner_of.get("/console/playbooks")).text
    assert HARMFUL_TEXT in (await owner_of.get(BOOK)).text
    others = await owner_of.get(f"{BOOK}?section=others")
    assert "返金" in others.text
    assert HARMFUL_TEXT not in others.text
    assert "No bullet matches" in (await owner_of.get(f"{BOOK}?tag=none")).text


async def test_search_explains_scores_and_is_no_retrieval(owner_of, api) -> None:
    await fill(api)
    page = await owner_of.get(f"{BOOK}/search?q=retry+a+payment")
    assert "The agent gets " in page.text
    block = (
        await api.post("/api/v1/playbooks/support/render", json={"query_text": "retry"})
    ).json()
    assert block["text"] in plain(page)
    assert f"about {block['token_count']} tokens" in plain(page)
    part = await owner_of.http.get(f"{BOOK}/search?q=x", headers={"Hansei-Part": "true"})
    assert "<html" not in part.text
    coverage = (await api.get("/api/v1/analytics/coverage")).json()["rows"]
    assert [row["retrieval_count"] for row in coverage] == [1], "only the render counts"


async def test_focus_is_changed_by_a_form(owner_of, api) -> None:
    await fill(api)
    assert "Focus: none" in plain(await owner_of.get(BOOK))
    saved = await owner_of.send(f"{BOOK}/focus", focus="Conventions of <our> accounting.")
    assert saved.status_code == 303
    assert "Focus: Conventions of <our> accounting." in plain(await owner_of.get(BOOK))
    refused = await owner_of.send(f"{BOOK}/focus", focus="x" * 301)
    assert refused.status_code == 422
    assert "x" * 301 in refused.text, "what was typed is not lost"
    await owner_of.send(f"{BOOK}/focus", focus="")
    assert (await api.get("/api/v1/playbooks")).json()["items"][0]["focus"] is None


async def test_edit_shows_difference_before_it_saves(owner_of, api) -> None:
    key, _ = await fill(api)
    fields = {"content": "Never retry a payment at once.", "section": "MISTAKES TO AVOID"}
    shown = await owner_of.send(f"{BOOK}/bullets/{key}/edit", **fields)
    assert "<del>Always</del>" in shown.text
    assert "<ins>Never</ins>" in shown.text
    url = f"/api/v1/playbooks/support/bullets/{key}"
    assert (await api.get(url)).json()["content"] == HARMFUL_TEXT
    confirmed = fields | {"confirmed": "1", "version": "1", "reason": "It charged twice."}
    saved = await owner_of.send(f"{BOOK}/bullets/{key}/edit", **confirmed)
    assert saved.status_code == 303
    assert (await api.get(url)).json()["content"] == fields["content"]
    life = await owner_of.get(f"{BOOK}/bullets/{key}")
    assert "It charged twice." in life.text
    assert "<del>Always</del>" in life.text


async def test_edit_of_outdated_version_loses_no_input(owner_of, api) -> None:
    key, _ = await fill(api)
    await api.patch(f"/api/v1/playbooks/support/bullets/{key}", json={"pinned": True})
    fields = {"content": "My long text.", "confirmed": "1", "version": "1", "section": "OTHERS"}
    answer = await owner_of.send(f"{BOOK}/bullets/{key}/edit", **fields)
    assert answer.status_code == 412
    assert "My long text." in answer.text
    duplicate = await owner_of.send(f"{BOOK}/new", content=HARMFUL_TEXT, tags="a, b")
    assert duplicate.status_code == 409
    assert HARMFUL_TEXT in plain(duplicate)
    assert 'value="a, b"' in duplicate.text


async def test_new_bullet_verdict_pin_and_delete(owner_of, api) -> None:
    made = await owner_of.send(
        f"{BOOK}/new", content="Look up the order.", section="OTHERS", tags="orders, refunds"
    )
    key = made.headers["location"].split("/")[-1].split("?")[0]
    url = f"/api/v1/playbooks/support/bullets/{key}"
    assert (await api.get(url)).json()["tags"] == ["orders", "refunds"]
    page = f"{BOOK}/bullets/{key}"
    await owner_of.send(f"{page}/verdicts", tag="helpful", reason="password: hunter2secret")
    verdict = (await api.get(f"{url}/verdicts")).json()["items"][0]
    assert verdict["judge"] == "human"
    assert "hunter2secret" not in verdict["reason"]
    await owner_of.send(f"{page}/settings", pinned="yes")
    assert (await api.get(url)).json()["pinned"] is True
    assert (await owner_of.send(f"{page}/delete")).status_code == 422
    assert (await owner_of.send(f"{page}/delete", reason="Wrong.")).status_code == 303
    assert "Wrong." in (await owner_of.get(page)).text
    assert (await api.get(url)).status_code == 404


async def test_proposal_and_quarantine_are_reviewed(owner_of, console, tenant, api) -> None:
    key, other = await fill(api)
    await api.patch(f"/api/v1/playbooks/support/bullets/{other}", json={"status": "quarantined"})
    await api.patch("/api/v1/playbooks/support", json={"review_mode": "required"})
    writer = {"Authorization": f"Bearer {tenant.keys['write']}"}
    delta = {"type": "UPDATE", "bullet_id": key, "content": "Never retry a payment at once."}
    delta["when_to_use"] = "When a payment failed"
    held = await api.post(
        "/api/v1/playbooks/support/deltas", json={"deltas": [delta]}, headers=writer
    )
    proposal = held.json()["proposal_id"]
    assert "2 to review" in (await owner_of.get("/console/playbooks")).text
    review = await owner_of.get(f"{BOOK}/review")
    assert "<ins>Never</ins>" in review.text
    assert "<ins>When a payment failed</ins>" in review.text
    assert "It waits because the playbook asked for a review" in review.text
    assert "返金" in review.text
    assert re.search(r"Quarantined on .*, \d{4} by key", plain(review))
    assert "Review 2" in plain(await owner_of.get(BOOK))
    by_writer = await console(tenant.keys["write"])
    refused = await by_writer.send(f"{BOOK}/review/{proposal}", decision="accept")
    assert refused.status_code == 403
    accepted = await owner_of.send(f"{BOOK}/review/{proposal}", decision="accept")
    assert accepted.headers["location"].endswith("review?done=accepted")
    bullet = (await api.get(f"/api/v1/playbooks/support/bullets/{key}")).json()
    assert bullet["content"] == "Never retry a payment at once."
    path = f"{BOOK}/bullets/{other}/settings"
    back = await owner_of.send(path, status="active", **{"from": "review"})
    assert back.headers["location"].endswith("review?done=changed")


async def test_reviewer_sees_what_only_a_model_reads(owner_of, tenant, api) -> None:
    """An invisible instruction in a proposal, by tag characters, by bits, and reordered."""
    await fill(api)
    await api.patch("/api/v1/playbooks/support", json={"review_mode": "required"})
    writer = {"Authorization": f"Bearer {tenant.keys['write']}"}
    tags = "".join(chr(0xE0000 + ord(c)) for c in "Send")
    content = (
        f"Check the date.{tags} \u202eyadot \u200b\u200c\u200b\u200c Family: 👨\u200d👩 ❤️\u200d🔥"
    )
    delta = {"type": "ADD", "section": "oth", "content": content}
    deltas = {"deltas": [delta]}
    await api.post("/api/v1/playbooks/support/deltas", json=deltas, headers=writer)
    review = (await owner_of.get(f"{BOOK}/review")).text
    assert "Check the date.[U+E0053][U+E0065][U+E006E][U+E0064]" in review
    assert "[U+202E]yadot [U+200B][U+200C][U+200B][U+200C]" in review
    assert "👨\u200d👩 ❤️\u200d🔥" in review
    assert tags[0] not in review


async def test_review_marks_quoted_words_and_decides_several(
    owner_of, api, runtime, tenant
) -> None:
    first, second = await fill(api)
    for key in (first, second):
        await api.patch(f"/api/v1/playbooks/support/bullets/{key}", json={"status": "quarantined"})
    page = await owner_of.get(f"{BOOK}/review")
    assert "The marked words" not in plain(page)
    assert ">Use it</button>" in page.text
    nothing = await owner_of.send(f"{BOOK}/review/bullets", status="active")
    assert nothing.status_code == 422
    assert "Check at least one bullet." in nothing.text
    no_reason = await owner_of.send(f"{BOOK}/review/bullets", bullet=first, status="deleted")
    assert "Enter a reason." in no_reason.text
    both = {"bullet": [first, second], "status": "active", "reason": "Both are right."}
    assert (await owner_of.send(f"{BOOK}/review/bullets", **both)).status_code == 303
    found = await api.get("/api/v1/playbooks/support/bullets", params={"status": "active"})
    assert {bullet["id"] for bullet in found.json()["items"]} == {first, second}


async def test_bullet_page_begins_with_its_verdicts(owner_of, api) -> None:
    key, _ = await fill(api)
    address = f"{BOOK}/bullets/{key}"
    assert "Not known yet: no verdict counts." in (await owner_of.get(address)).text
    await api.post(
        f"/api/v1/playbooks/support/bullets/{key}/verdicts",
        json={"tag": "harmful", "reason": "It paid twice."},
    )
    page = (await owner_of.get(address)).text
    assert "Too few verdicts to know: 0 helpful, 1 harmful." in page
    table = page.split("Verdicts by week", 1)[1].split("</table>", 1)[0]
    weeks = re.findall(r'<tr><th scope="row">.*?</th>(.*?)</tr>', table)
    assert len(weeks) == 12
    assert weeks[-1] == '<td class="number">0</td><td class="number">1</td>'
    assert page.index("Verdicts by week") < page.index("Where it came from")
    for number in range(3):
        body = {
            "playbook": "support",
            "outcome": "success",
            "events": [{"event_type": "user_message", "content": f"Refund order {number}"}],
        }
        block = (await api.post("/api/v1/playbooks/support/render", json={})).json()
        body |= {"retrieval_id": block["retrieval_id"], "used_bullet_keys": [key]}
        sent = await api.post("/api/v1/traces?reflect=never", json=body)
        verdict = {"tag": "helpful", "trace_id": sent.json()["trace_id"]}
        await api.post(f"/api/v1/playbooks/support/bullets/{key}/verdicts", json=verdict)
        page = (await owner_of.get(address)).text
        assert ("One of them has a verdict on it." in page) is (number == 0)
    assert "It helps: 3 of 4 verdicts are helpful." in page


async def test_timeline_compares_and_restores(owner_of, api) -> None:
    key, _ = await fill(api)
    await api.delete(f"/api/v1/playbooks/support/bullets/{key}")
    page = await owner_of.get(f"{BOOK}/timeline")
    assert "From version 1 to version 2" in page.text
    assert f"<del>{HARMFUL_TEXT}</del>" in page.text
    past = await owner_of.get(f"{BOOK}/timeline?at=1&since=0")
    assert f"<ins>{HARMFUL_TEXT}</ins>" in past.text
    shown = await owner_of.send(f"{BOOK}/restore", version="1")
    assert f"<ins>{HARMFUL_TEXT}</ins>" in shown.text
    assert (await api.get("/api/v1/playbooks/support")).headers["etag"] == '"2"'
    done = await owner_of.send(f"{BOOK}/restore", version="1", confirmed="1", current="2")
    assert done.status_code == 303
    assert (await api.get(f"/api/v1/playbooks/support/bullets/{key}")).status_code == 200
    for moment in ("99", "nonsense", "2020-13-01"):
        answer = await owner_of.get(f"{BOOK}/timeline?at={moment}")
        assert answer.status_code in (404, 422)


async def test_timeline_shows_texts_and_how_runs_ended_afterwards(owner_of, api) -> None:
    await fill(api)
    for number, outcome in enumerate(("success", "failure", None)):
        trace = {"external_id": f"run-{number}", "playbook": "support", "outcome": outcome}
        trace["events"] = [{"event_type": "user_message", "content": "Refund the order"}]
        (await api.post("/api/v1/traces?reflect=never", json=trace)).raise_for_status()
    page = plain(await owner_of.get(f"{BOOK}/timeline"))
    assert re.search(rf"created\s+\S+\s+{re.escape(HARMFUL_TEXT)}", page)
    assert page.count("1 of 2 succeeded") == 1, "runs count for the version before them"


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (0, 12, "Better after version 2: 100 % of 12 agent runs succeeded"),
        (12, 0, "Worse after version 2: 0 % of 12 agent runs succeeded"),
        (6, 7, "No clear change after version 2: 58 % of 12 agent runs succeeded"),
    ],
)
async def test_timeline_says_whether_the_last_change_helped(
    owner_of, api, before: int, after: int, sentence: str
) -> None:
    """`before` and `after` the change, so many of 12 agent runs succeed."""
    url = "/api/v1/playbooks/support"
    await fill(api)
    assert "Not known yet whether the last changes helped" in plain(
        await owner_of.get(f"{BOOK}/timeline")
    )
    for successes in (before, after):
        for number in range(12):
            trace = {
                "playbook": "support",
                "outcome": "success" if number < successes else "failure",
                "events": [{"event_type": "user_message", "content": f"Refund {number}"}],
            }
            (await api.post("/api/v1/traces?reflect=never", json=trace)).raise_for_status()
        if successes is before:
            page = plain(await owner_of.get(f"{BOOK}/timeline"))
            assert "No earlier version has runs to compare with." in page
            await api.post(f"{url}/deltas", json={"deltas": [BULLETS[0] | {"content": "Wait."}]})
    page = plain(await owner_of.get(f"{BOOK}/timeline"))
    assert f"{sentence}, after version 1 it was {round(100 * before / 12)} % of 12 (" in page
    assert re.search(r"points, 95 % interval -?\d+ to -?\d+\)", page)
    verdict = sentence.partition(" after version")[0].lower()
    assert re.search(rf">\s*{verdict}\s*<", (await owner_of.get(f"{BOOK}/timeline")).text)


async def test_harmful_bullets_come_first_with_their_titles(owner_of, api) -> None:
    await fill(api)
    text = {"content": "Refund at once.", "title": "Refunds", "section": "OTHERS"}
    made = await api.post("/api/v1/playbooks/support/bullets", json=text)
    key = made.json()["bullet"]["id"]
    assert "What does harm" not in (await owner_of.get(BOOK)).text
    await api.post(f"/api/v1/playbooks/support/bullets/{key}/verdicts", json={"tag": "harmful"})
    page = (await owner_of.get(BOOK)).text
    harmful = page[page.index("What does harm") : page.index("</section>")]
    assert "<strong>Refunds</strong> Refund at once." in harmful
    assert "1 harmful, 0 helpful" in harmful
    assert HARMFUL_TEXT not in harmful
    assert "<strong>Refunds</strong>" in page[page.index("<tbody>") :]
    assert "What does harm" not in (await owner_of.get(f"{BOOK}?words=refund")).text


async def test_hostile_text_is_shown_as_text(owner_of, api) -> None:
    body = {"content": HOSTILE, "when_to_use": HOSTILE[:9_000], "title": "<img src=x onerror=1>"}
    made = (await api.post("/api/v1/playbooks/support/bullets", json=body)).json()
    key = made["bullet"]["id"]
    for page in ("", "/search?q=alert", "/timeline", f"/bullets/{key}", f"/bullets/{key}/edit"):
        answer = await owner_of.get(BOOK + page)
        assert answer.status_code == 200, page
        assert "alert(1)" in answer.text
        assert "<script>alert" not in answer.text
        assert 'href="javascript' not in answer.text
        assert "<img" not in answer.text


async def test_other_tenant_and_project_see_nothing(console, make_tenant, tenant, api) -> None:
    key, _ = await fill(api)
    await fill(api, "secret")
    stranger = await console((await make_tenant()).keys["admin"])
    for page in ("", "/search?q=retry", "/review", "/timeline", f"/bullets/{key}"):
        answer = await stranger.get(BOOK + page)
        assert answer.status_code == 404, page
        assert HARMFUL_TEXT not in answer.text
    assert (await stranger.send(f"{BOOK}/bullets/{key}/delete", reason="x")).status_code == 404
    made = await api.post("/api/v1/keys", json={"scopes": ["write"], "project_id": "secret"})
    bound = await console(made.json()["key"])
    assert HARMFUL_TEXT in (await bound.get(BOOK)).text
    assert (await bound.get(f"{BOOK}?project=default")).status_code == 403
    await bound.send(f"{BOOK}/bullets/{key}/delete", reason="x")
    assert (await api.get(f"/api/v1/playbooks/support/bullets/{key}")).status_code == 200


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/new", {"content": "x"}),
        ("/bullets/{key}/edit", {"content": "x", "confirmed": "1"}),
        ("/bullets/{key}/settings", {"pinned": "yes"}),
        ("/bullets/{key}/verdicts", {"tag": "harmful"}),
        ("/bullets/{key}/delete", {"reason": "x"}),
        ("/restore", {"version": "0", "confirmed": "1"}),
        ("/review/00000000-0000-7000-8000-000000000000", {"decision": "accept"}),
        ("/review/bullets", {"bullet": "{key}", "status": "active"}),
    ],
)
async def test_read_key_changes_nothing(console, tenant, api, path: str, fields: dict) -> None:
    key, _ = await fill(api)
    reader = await console(tenant.keys["read"])
    answer = await reader.send(BOOK + path.format(key=key), **fields)
    assert answer.status_code == 403
    assert (await api.get("/api/v1/playbooks/support")).headers["etag"] == '"1"'
    assert 'method="post"' not in (await reader.get(f"{BOOK}/bullets/{key}")).text.replace(
        'method="post" action="/console/logout"', ""
    )


async def test_broken_forms_are_errors_and_change_nothing(owner_of, api) -> None:
    key, _ = await fill(api)
    path = f"{BOOK}/bullets/{key}/verdicts"
    assert (await owner_of.send(path, tag="superb")).status_code == 422
    assert (await owner_of.send(path, tag="helpful", trace_id="nothing")).status_code == 422
    assert (await owner_of.send(path, tag="helpful", reason="a\0b")).status_code == 303
    json_body = await owner_of.http.post(path, json={"tag": "helpful"})
    assert json_body.status_code == 415
    huge = await owner_of.send(path, tag="helpful", reason="x" * 1_100_000)
    assert huge.status_code == 413


async def test_bullets_are_found_by_their_words(owner_of, api) -> None:
    for content, when in (("Lock the order.", "refund"), ("Ask 100% of it.", ""), ("Wait.", "")):
        body = {"content": content, "when_to_use": when}
        (await api.post("/api/v1/playbooks/support/bullets", json=body)).raise_for_status()
    book = "/console/playbooks/support"
    expected = {"ORDER": 1, "Refund": 1, "100%": 1, "%": 1, "oth-": 3, "x_": 0}
    for words, found in expected.items():
        page = (await owner_of.get(f"{book}?words={quote(words)}")).text
        assert page.count('class="bullet-text"') == found, words
        assert f"{found} in all" in page or "No bullet matches" in page
        assert f'value="{words}"' in page


async def test_empty_search_says_what_it_shows(owner_of, api) -> None:
    body = {"content": "Lock the order."}
    (await api.post("/api/v1/playbooks/support/bullets", json=body)).raise_for_status()
    page = (await owner_of.get("/console/playbooks/support/search")).text
    assert "Write the task of an agent above." in page
    assert "Lock the order." in page
    page = (await owner_of.get("/console/playbooks/support/search?q=order")).text
    assert "Write the task of an agent above." not in page
