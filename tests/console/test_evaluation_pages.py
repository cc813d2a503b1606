"""The pages of published reports of `hansei eval`."""

from __future__ import annotations

import html
import re
from typing import Any

from tests.console.sample import publish_report
from tests.support.evaluation_report import evaluation_report

URL = "/api/v1/evaluation-reports"


async def publish(api: Any, report: dict[str, Any]) -> str:
    answer = await api.post(URL, json={"report": report})
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


async def test_list_says_what_each_evaluation_found(owner_of, api) -> None:
    page = (await owner_of.get("/console/evaluations")).text
    assert "No report yet" in page
    assert "hansei eval publish" in page
    made = await publish_report(api)
    page = html.unescape((await owner_of.get("/console/evaluations")).text)
    assert f"/console/evaluations/{made}" in page
    newest = page.split("The newest report: ", 1)[1].split("</p>", 1)[0]
    assert newest.startswith("Advice from Hansei (starting playbook: support) helped: of 30 tasks")
    assert "Advice did better than earlier attempts in the prompt." in newest
    assert newest.endswith("Controls: of 8 tasks, 0 became wrong with advice.")
    assert (
        "Advice from Hansei (starting playbook: support) helped: of 30 tasks kept out of learning"
        " in this run, 90.0 % were right"
    ) in page
    assert re.search(r"\(\+50\.0 points; 95 % interval \+26\.6 to \+67\.2; p < \.001\)", page)
    assert re.search(r"<code>none</code> 40\.0 % \(24\.6 % to 57\.7 %\)", page)
    assert "support" in page
    assert "$0.0555" in page


async def test_list_and_page_say_what_a_report_lacks(owner_of, api) -> None:
    whole = evaluation_report("whole") | {"failures": []}
    await publish(api, whole)
    page = (await owner_of.get("/console/evaluations")).text
    assert "INCOMPLETE" not in page
    assert "failed for good" not in page
    made = await publish(api, evaluation_report() | {"calls": {"done": 41, "planned": 290}})
    path = f"/console/evaluations/{made}"
    for language, incomplete, failed in (
        ("en", "INCOMPLETE: 41 of 290 calls were made.", "Calls that failed for good: 1."),
        ("ja", "未完了: 290 件中 41 件", "最後まで失敗した呼び出し: 1 件"),
    ):
        owner_of.http.headers["Accept-Language"] = language
        listed = (await owner_of.get("/console/evaluations")).text
        assert listed.count(incomplete) == 1
        assert listed.count(failed) == 1
        page = (await owner_of.get(path)).text
        assert incomplete in page
        assert failed in page


async def test_report_has_curve_turned_tasks_harm_and_cost(owner_of, api) -> None:
    made = await publish_report(api)
    page = html.unescape((await owner_of.get(f"/console/evaluations/{made}")).text)
    curve = page.split("<caption")[0]
    assert "While it was still learning (first pass, 30 tasks): +50.0 points" in curve
    assert "A memory that does not learn any more." in page
    assert curve.index("Advice from Hansei (starting playbook: support) helped") < curve.index(
        "Learning curve"
    )
    assert "2: hansei 70 %" in curve
    (changed,) = re.findall(r"Tasks that changed</h2>.*?</section>", page, re.DOTALL)
    assert "order-13" not in changed.split("icl − none")[0].split("became worse", 1)[1]
    assert re.search(r"hansei − none</td><td[^>]*>order-15, .*order-30</td><td[^>]*>order-01</td>",
                     changed)  # fmt: skip
    assert " and " not in changed, "all tasks are named"
    (controls,) = re.findall(r"Controls: tasks that need.*?</section>", page, re.DOTALL)
    assert re.search(r"icl − none.*hello-3", controls)
    (costs,) = re.findall(r"Cost of the agent.*?</section>", page, re.DOTALL)
    assert "502" in costs
    assert "$0.000210" in costs
    assert "The agent did not answer within 120 seconds." in page


async def test_shares_that_are_too_small_to_draw_are_zero(owner_of, api) -> None:
    report = evaluation_report()
    report["curve"] = [{"window": 1, "arms": {"none": 5e-324, "hansei": 1e-12}, "bullets": None}]
    page = await owner_of.get(f"/console/evaluations/{await publish(api, report)}")
    assert page.status_code == 200
    assert "1: hansei 0 %" in page.text


async def test_report_of_an_older_version_is_shown(owner_of, api) -> None:
    report = evaluation_report()
    del report["first_pass"]
    for row in [*report["comparisons"], *report["controls"]]:
        del row["changes_needed"], row["changed_by_failed_call"]
    made = await publish(api, report | {"primary": "stream after its first window"})
    page = html.unescape((await owner_of.get(f"/console/evaluations/{made}")).text)
    assert "of 30 tasks asked after the first lessons, 90.0 % were right with it" in page
    assert "While it was still learning" not in page
    assert "hansei − icl" in page


async def test_report_without_projects_names_no_command(owner_of, api) -> None:
    report = evaluation_report()
    commands = "hansei playbook show evaluation"
    page = (await owner_of.get(f"/console/evaluations/{await publish(api, report)}")).text
    assert commands in page
    report["learning"] = report["learning"] | {"projects": []}
    page = (await owner_of.get(f"/console/evaluations/{await publish(api, report)}")).text
    assert commands not in page
    assert "NOTHING LEARNED" not in page


async def test_report_in_japanese(owner_of, api) -> None:
    report = evaluation_report() | {"learning": None, "curve": []}
    report["advice"][0] |= {"rendered": 0, "measures_nothing": True}
    made = await publish(api, report)
    owner_of.http.headers["Accept-Language"] = "ja"
    page = html.unescape((await owner_of.get(f"/console/evaluations/{made}")).text)
    assert "測定できていません。" in page
    assert "助言なし: 条件 <code>hansei</code> は一度も助言を受けず" in page
    english = ("Accuracy", "Controls", "Cost", "Tasks", "unknown", "held-out", "first pass", "Plan")
    assert [text for text in english if text in page] == []


async def test_report_is_deleted_and_stored_text_stays_text(owner_of, console, api, tenant) -> None:
    report = evaluation_report()
    report["plan"]["agent"] = "<script>alert(1)</script>"
    report["comparisons"][0]["became_wrong"] = ["<b>x</b>"]
    made = await publish(api, report)
    path = f"/console/evaluations/{made}"
    page = (await owner_of.get(path)).text
    assert "<script>alert" not in page
    assert "&lt;b&gt;x&lt;/b&gt;" in page
    reader = await console(tenant.keys["read"])
    assert "Delete" not in (await reader.get(path)).text
    assert (await reader.send(f"{path}/delete")).status_code == 403
    assert (await owner_of.send(f"{path}/delete")).status_code == 303
    missing = await owner_of.get(path)
    assert missing.status_code == 404
    assert "Report not found." in missing.text
    assert (
        "The report was deleted." in (await owner_of.get("/console/evaluations?done=deleted")).text
    )
    assert (await owner_of.get("/console/evaluations/none")).status_code == 404
