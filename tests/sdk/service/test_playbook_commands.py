"""`hansei playbook` against the service itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from hansei import Hansei
from hansei.cli.main import app
from tests.conftest import TestTenant

Command = Callable[..., Awaitable[Result]]
ACE = """## MISTAKES TO AVOID
[mis-00007] helpful=3 harmful=1 :: Look up a payment that timed out before trying it again.

## USER PREFERENCES
[pref-00002] helpful=0 harmful=0 :: Be brief.
"""


@pytest.fixture
def command(live: str, tenant: TestTenant, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("HANSEI_URL", live)
    monkeypatch.setenv("HANSEI_API_KEY", tenant.keys["admin"])

    async def run(*arguments: str, stdin: str | None = None) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, app, list(arguments), input=stdin)

    return run


@pytest.fixture
def client(live: str, tenant: TestTenant) -> Iterator[Hansei]:
    with Hansei(live, tenant.keys["admin"]) as client:
        yield client


@pytest.fixture
def playbook(command: Command) -> Command:
    """`hansei playbook …`, with one called pay."""

    async def run(*arguments: str, stdin: str | None = None) -> Result:
        return await command("playbook", *arguments, stdin=stdin)

    return run


async def taken(playbook: Command) -> None:
    done = await playbook("import", "pay", "-", "--reason", "from ACE", stdin=ACE)
    assert done.exit_code == 0, done.output
    assert "pay is at version 1 with 2 bullets." in done.stdout


async def document(playbook: Command, *arguments: str) -> Any:
    done = await playbook(*arguments, "--json")
    assert done.exit_code == 0, done.output
    assert done.stdout.count("\n") == 1
    return json.loads(done.stdout)


async def test_list_and_show(playbook: Command) -> None:
    assert "No playbooks." in (await playbook("list")).stderr
    await taken(playbook)
    listed = (await playbook("list")).stdout
    assert listed.split()[:5] == ["playbook", "version", "bullets", "review", "updated"]
    assert listed.splitlines()[1].split()[:4] == ["pay", "1", "2", "off"]
    assert (await document(playbook, "list"))["items"][0]["name"] == "pay"

    shown = (await playbook("show", "pay")).stdout
    assert shown.splitlines() == [
        "pay · version 1 · 2 bullets",
        "",
        "MISTAKES TO AVOID",
        "mis-00007 · 3 helpful · 1 harmful",
        "  Look up a payment that timed out before trying it again.",
        "",
        "USER PREFERENCES",
        "pref-00002",
        "  Be brief.",
    ]
    whole = await document(playbook, "show", "pay")
    assert (whole["name"], whole["version"]) == ("pay", 1)
    assert [bullet["id"] for bullet in whole["bullets"]] == ["mis-00007", "pref-00002"]


async def test_show_chooses_by_section_and_status(playbook: Command, client: Hansei) -> None:
    await taken(playbook)
    client.playbooks.bullets.update("pay", "pref-00002", status="archived")
    for section in ("mis", "Mistakes to avoid"):
        found = await document(playbook, "show", "pay", "--section", section)
        assert [bullet["id"] for bullet in found["bullets"]] == ["mis-00007"]
    assert "1 bullet not shown" in (await playbook("show", "pay")).stderr
    archived = await document(playbook, "show", "pay", "--status", "archived")
    assert [bullet["id"] for bullet in archived["bullets"]] == ["pref-00002"]
    assert "pref-00002 · archived" in (await playbook("show", "pay", "--status", "all")).stdout


async def test_render_prints_only_block(playbook: Command, client: Hansei) -> None:
    await taken(playbook)
    done = await playbook("render", "pay", "a payment timed out", "--top-k", "1")
    assert done.exit_code == 0
    block = client.playbooks.render("pay", "a payment timed out", top_k=1)
    assert done.stdout == block.text.rstrip("\n") + "\n"
    assert f"1 bullet, {block.token_count} tokens, version 1." in done.stderr
    assert "retrieval_id" in done.stderr
    told = await document(playbook, "render", "pay", "--section", "pref", "--ace")
    assert told["bullet_keys"] == ["pref-00002"]
    assert "[pref-00002] helpful=0 harmful=0 :: Be brief." in told["text"]
    empty = await playbook("render", "pay", "--tokens", "1")
    assert (empty.exit_code, empty.stdout) == (0, "")
    assert "no bullet fits the token budget" in empty.stderr


async def test_search_prints_citable_keys(playbook: Command) -> None:
    await taken(playbook)
    done = await playbook("search", "pay", "payment timed out", "--explain", "--fusion", "minmax")
    assert done.exit_code == 0, done.output
    assert "· mis-00007 · 3 helpful · 1 harmful · MISTAKES TO AVOID" in done.stdout
    assert "bm25 " in done.stdout
    found = await document(playbook, "search", "pay", "brief", "--section", "pref")
    assert [hit["bullet"]["id"] for hit in found["results"]] == ["pref-00002"]
    sure = await playbook("search", "pay", "", "--min-confidence", "0.9")
    assert "No results." in sure.stderr


async def test_project_search_prints_playbook_and_key(playbook: Command, command: Command) -> None:
    await taken(playbook)
    done = await command("search", "payment timed out", "--kind", "bullet")
    assert done.exit_code == 0, done.output
    assert "· bullet · mis-00007 of pay · MISTAKES TO AVOID ·" in done.stdout
    narrow = ["--playbook", "pay", "--section", "USER PREFERENCES", "--fusion", "rrf", "--json"]
    found = json.loads((await command("search", "brief", *narrow)).stdout)
    assert [hit["memory"]["key"] for hit in found["results"]] == ["pref-00002"]
    tagged = await command("search", "payment", "--playbook", "pay", "--tag", "nobody")
    assert "No results." in tagged.stderr


async def test_export_and_import_round_trip(playbook: Command, tmp_path: Path) -> None:
    await taken(playbook)
    for form in ("bullets", "sections", "ace"):
        file = tmp_path / form
        assert (await playbook("export", "pay", "--format", form, "-o", str(file))).stdout == ""
        printed = (await playbook("export", "pay", "--format", form)).stdout
        assert printed == file.read_text()
        assert printed.endswith("\n")
        put = await document(playbook, "import", form, str(file))
        assert put["active_bullet_count"] == 2
        ace = (await playbook("export", form, "--format", "ace")).stdout
        assert ace == (await playbook("export", "pay", "--format", "ace")).stdout


async def test_import_says_how_to_get_the_bullets_back(playbook: Command) -> None:
    """A report of `hansei eval` told users to import over their own playbook."""
    await playbook("import", "pay", "-", stdin=ACE)
    done = await playbook("import", "pay", "-", stdin='{"bullets": []}')
    command = "hansei playbook restore pay "
    assert command in " ".join(done.output.split())
    version = " ".join(done.output.split()).split(command)[1].split()[0]
    same = await playbook("import", "pay", "-", stdin='{"bullets": []}')
    assert same.exit_code == 0, same.output
    assert "restore" not in same.output
    restored = await playbook("restore", "pay", version)
    assert restored.exit_code == 0, restored.output


async def test_import_that_loses_work_is_refused(playbook: Command, tmp_path: Path) -> None:
    await taken(playbook)
    late = await playbook("import", "pay", "-", "--if-match", "0", stdin=ACE)
    assert late.exit_code == 1
    assert late.stderr.startswith("error: ")
    for text in ("[]", '["x"]'):
        wrong = await playbook("import", "pay", "-", stdin=text)
        assert wrong.stderr == "error: line 1: JSON, but not an object\n", "as from a PUT"
    damaged = await playbook("import", "pay", "-", stdin='{"bullets": [{"id": 7}]}')
    assert damaged.exit_code == 1
    assert "bullets.0.id: " in damaged.stderr
    assert len((await document(playbook, "show", "pay"))["bullets"]) == 2


async def test_history_diff_and_restore(playbook: Command, client: Hansei) -> None:
    await taken(playbook)
    why = "The tone of what we send is a matter of taste, " * 3 + "and this is ours."
    client.playbooks.bullets.update("pay", "pref-00002", content="Be brief and kind.", reason=why)
    client.playbooks.bullets.delete("pay", "mis-00007")
    history = (await playbook("versions", "pay")).stdout.splitlines()
    assert history[0].split() == [
        *("version", "changes", "bullets", "type", "created", "actor", "reason")
    ]
    assert history[2].startswith("2        +0 ~1 -0")
    assert history[2].rstrip().endswith(why)  # a pipe gets whole lines
    assert len((await document(playbook, "versions", "pay", "--limit", "1"))["items"]) == 1

    changes = (await playbook("diff", "pay", "1", "3")).stdout.splitlines()
    assert changes == [
        "version 1 → 3 · +0 ~1 -1",
        "- mis-00007 Look up a payment that timed out before trying it again.",
        "~ pref-00002",
        "  - Be brief.",
        "  + Be brief and kind.",
    ]
    assert (await document(playbook, "diff", "pay", "2"))["to_version"] == 3

    old = await playbook("show", "pay", "--as-of", "1", "--section", "pref")
    assert "Be brief.\n" in old.stdout
    assert "pay is at version 4." in (await playbook("restore", "pay", "1")).stdout
    assert "stays at version 4" in (await playbook("restore", "pay", "1")).stdout
    assert "Be brief.\n" in (await playbook("show", "pay")).stdout


async def test_missing_bullet_and_version_name_the_command_that_lists_them(
    playbook: Command, client: Hansei
) -> None:
    await taken(playbook)
    client.playbooks.bullets.update("pay", "pref-00002", status="archived")
    missing = await playbook("confirm", "pay", "pat-00099")
    assert (missing.exit_code, "`hansei playbook show pay --status all`" in missing.stderr) == (
        1,
        True,
    )
    missing = await playbook("restore", "pay", "9")
    assert missing.exit_code == 1
    assert "This playbook has versions 1 to 2; 0 is empty: playbooks/pay." in missing.stderr
    assert "Run `hansei playbook versions pay`" in missing.stderr
    for version, count in (("1", 2), ("0", 0)):
        assert (await playbook("restore", "pay", version)).exit_code == 0
        active = client.playbooks.get("pay").bullets
        assert len([bullet for bullet in active if bullet.status == "active"]) == count
    listed = await playbook("versions", "pay", "--limit", "3")
    assert (len(listed.stdout.splitlines()), listed.stderr) == (4, "There are more: --limit 30\n")
    assert (await playbook("versions", "pay", "--limit", "4")).stderr == ""


async def test_judge_and_delete_commands(playbook: Command) -> None:
    await taken(playbook)
    judged = await playbook("verdict", "pay", "pref-00002", "helpful", "--reason", "They liked it.")
    assert judged.stdout == "pref-00002: 1 helpful, 0 harmful.\n"
    gone = await playbook("delete", "pay", "--reason", "Done.")
    assert gone.stdout == "Deleted. `hansei playbook restore pay 1` restores it.\n"
    assert (await playbook("show", "pay")).exit_code == 1
    assert (await document(playbook, "list"))["items"] == []
    (deleted,) = (await document(playbook, "list", "--deleted"))["items"]
    assert (deleted["name"], deleted["active_bullet_count"]) == ("pay", 0)
    assert (await playbook("restore", "pay", "1")).exit_code == 0
    assert "No deleted playbooks." in (await playbook("list", "--deleted")).stderr
    assert "pref-00002 · 1 helpful" in (await playbook("show", "pay")).stdout


async def test_person_confirms_a_bullet(playbook: Command, client: Hansei) -> None:
    await taken(playbook)
    assert "No trace names the playbook pay." in (await playbook("lessons", "pay")).stderr
    client.playbooks.bullets.update("pay", "pref-00002", status="quarantined")
    assert "Be brief." not in (await playbook("show", "pay")).stdout
    confirmed = await playbook("confirm", "pay", "pref-00002", "--reason", "Read.")
    assert confirmed.stdout == "pref-00002 is active in version 3.\n"
    assert "Be brief." in (await playbook("show", "pay")).stdout


async def test_provenance_and_lessons_say_why(
    playbook: Command, client: Hansei, tenant: TestTenant, drain: Callable[..., Awaitable[int]]
) -> None:
    events = [
        {"event_type": "tool_call", "tool_name": "sql", "content": "SELECT * FROM sales"},
        {"event_type": "error_event", "content": "Query timeout after 30 seconds"},
        {"event_type": "tool_call", "tool_name": "sql", "content": "SELECT count(*) FROM sales"},
        {"event_type": "tool_response", "tool_name": "sql", "content": "1200"},
    ]
    trace = client.traces.create(
        playbook="pay", task_description="Count the sales", outcome="success", events=events
    )
    await drain(tenant.id)
    lessons = await playbook("lessons", "pay")
    assert "added · pat-00001" in lessons.stdout
    assert "No bullet matches this lesson." in lessons.stdout
    shown = await playbook("show", "pay")
    assert "1 bullet awaiting confirmation" in shown.stderr
    assert "`hansei playbook confirm pay pat-00001`" in shown.stderr
    shown = await playbook("show", "pay", "--project", "default")
    assert "`hansei playbook confirm pay pat-00001 --project default`" in shown.stderr
    shown = (await playbook("provenance", "pay", "pat-00001")).stdout
    assert f"strategy of trace · {trace.trace_id}" in shown
    assert "e0000 tool_call: SELECT * FROM sales" in shown
    assert shown.count("reflection of trace") == 1
    added = client.playbooks.bullets.create("pay", section="OTHERS", content="Be kind.")
    by_hand = await playbook("provenance", "pay", added.bullet.id)
    assert "written by hand" in by_hand.stderr, by_hand.output


async def test_person_decides_proposal(playbook: Command, command: Command, client: Hansei) -> None:
    await taken(playbook)
    client.playbooks.update("pay", review_mode="required")
    client.playbooks.apply_deltas(
        "pay", [{"type": "DELETE", "bullet_id": "pref-00002", "reasoning": "Long is fine."}]
    )
    client.playbooks.apply_deltas(
        "pay", [{"type": "ADD", "section": "OTHERS", "content": "Be kind."}]
    )
    shown = (await command("proposal", "list", "pay")).stdout
    assert "  ADD OTHERS Be kind." in shown
    assert "  DELETE pref-00002\n    reason: Long is fine." in shown
    newer, older = (await document(command, "proposal", "list", "pay"))["items"]
    everywhere = (await command("proposal", "list")).stdout
    assert "pay:" in everywhere
    assert newer["id"] in everywhere
    done = await command("proposal", "accept", "pay", older["id"])
    assert done.stdout == "Applied 1 change. pay is at version 3.\n", done.stderr
    assert (await command("proposal", "reject", "pay", newer["id"])).stdout == "Rejected.\n"
    assert "No proposals in state 'waiting'." in (await command("proposal", "list", "pay")).stderr
    left = await document(playbook, "show", "pay")
    assert [bullet["id"] for bullet in left["bullets"]] == ["mis-00007"]


async def test_focus_is_set_by_a_command(playbook: Command) -> None:
    done = await playbook("set", "pay", "--focus", "Conventions of payments.")
    assert done.stdout == "Version 1. Focus: Conventions of payments.\n"
    done = await playbook("set", "pay", "--focus", "x" * 301)
    assert done.exit_code == 1
    assert "`focus`" in done.stderr or "focus" in done.stderr
    assert (await document(playbook, "set", "pay", "--focus", ""))["focus"] is None


async def test_unknown_playbook_is_reported_in_one_line(playbook: Command) -> None:
    for arguments in (["show"], ["search"], ["versions"], ["diff"], ["restore"]):
        more = {"search": ["x"], "diff": ["1"], "restore": ["1"]}.get(arguments[0], [])
        done = await playbook(*arguments, "nope", *more)
        assert done.exit_code == 1
        assert done.stdout == ""
        assert done.stderr.startswith(
            "error: Playbook not found: playbooks/nope.\nRun `hansei playbook list`"
        )
    done = await playbook("render", "nope")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.startswith("The playbook nope does not exist yet, or")


@pytest.mark.parametrize(
    "arguments",
    [
        ["show"],
        ["show", "pay", "--status", "asleep"],
        ["show", "pay", "--as-of", "yesterday"],
        ["diff", "pay"],
        ["diff", "pay", "1", "soon"],
        ["restore", "pay"],
        ["import", "pay", "nowhere.json"],
        ["export", "pay", "--format", "yaml"],
        ["verdict", "pay", "mis-00007", "nice"],
        ["render", "pay", "--tokens", "-1"],
        ["search", "pay", "x", "--fusion", "best"],
        ["fly", "pay"],
    ],
)
async def test_wrong_usage_is_status_2(playbook: Command, arguments: list[str]) -> None:
    assert (await playbook(*arguments)).exit_code == 2


async def test_agent_files_are_written_and_read_back(
    playbook: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    await taken(playbook)
    for name in ("agents-md", "claude-md", "skill"):
        done = await playbook("export", "pay", "--format", name)
        assert done.exit_code == 0, done.output
    assert "- [mis-00007] Look up" in Path("AGENTS.md").read_text()
    assert Path("CLAUDE.md").read_text() == Path("AGENTS.md").read_text()
    assert (
        "- [pref-00002] Be brief."
        in Path(".claude/skills/pay/references/user-preferences.md").read_text()
    )
    Path("AGENTS.md").write_text("## Style\n\n- Be brief.\n- Use commas.\n")
    done = await playbook("import", "pay", "AGENTS.md")
    assert "1 lesson added, 1 already known." in done.stdout
    bullets = (await document(playbook, "show", "pay"))["bullets"]
    found = [(each["id"], each["helpful"]) for each in bullets]
    assert found == [("mis-00007", 3), ("pref-00002", 0), ("styl-00001", 0)]
    done = await playbook("import", "new", "AGENTS.md", "--json")
    assert json.loads(done.stdout)["active_bullet_count"] == 2


async def test_watch_writes_what_changes_until_it_is_edited_by_hand(
    playbook: Command, client: Hansei, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "AGENTS.md"
    await taken(playbook)
    texts: list[str] = []

    def change(_seconds: float) -> None:
        texts.append(path.read_text())
        if len(texts) == 2:
            path.write_text(path.read_text().replace("Be brief", "Be long"))
        client.playbooks.bullets.create("pay", f"Rule {len(texts)}.")

    monkeypatch.setattr("hansei.cli.playbook_transfer.time.sleep", change)
    options = ("--format", "agents-md", "-o", str(path), "--watch")
    done = await playbook("export", "pay", *options)
    assert done.exit_code == 1
    assert "line 1: the text of the block" in done.stderr
    assert "Rule 1." in texts[1]
