"""What docs/llms.txt tells agents is there."""

from __future__ import annotations

import re
from operator import attrgetter

from hansei import Hansei
from hansei.cli.main import app
from memory_api.core.settings import Settings
from memory_api.main import create_app
from sdk.generator.schemas import parameters
from tests.support.paths import ROOT

TEXT = (ROOT / "docs/llms.txt").read_text(encoding="utf-8")
METHODS = r"(?:GET|POST|PUT|PATCH|DELETE)"
ROUTE = re.compile(rf"({METHODS}(?:, {METHODS})*) (/(?:api|workflow)/[\w/{{}}]+)(\?[\w=&|]+)?")


def test_every_documented_route_exists_with_parameters() -> None:
    document = create_app(Settings.load(), "postgresql://nobody@localhost/none").openapi()
    paths = document["paths"]
    found = ROUTE.findall(TEXT)
    assert len(found) >= 20
    for methods, path, query in found:
        for method in methods.lower().split(", "):
            assert method in paths[path], (method, path)
            known = {each["name"] for each in parameters(document, paths[path][method])}
            assert set(re.findall(r"(\w+)=", query)) <= known


def test_every_playbook_route_is_documented() -> None:
    """Single decisions on proposals are for people, who find them in docs/playbooks.md."""
    paths = create_app(Settings.load(), "postgresql://nobody@localhost/none").openapi()["paths"]
    ours = {path for path in paths if path.startswith("/api/v1/playbooks") and "_id}" not in path}
    assert ours == {path for _, path, _ in ROUTE.findall(TEXT) if "/playbooks" in path}


def test_documented_commands_and_methods_exist() -> None:
    (told,) = re.findall(r"hansei playbook ([\w|]+);", TEXT)
    group = next(g for g in app.registered_groups if g.typer_instance.info.name == "playbook")
    commands = group.typer_instance.registered_commands
    assert {each.name or each.callback.__name__ for each in commands} == {*told.split("|")}
    (line,) = re.findall(r"^From Python: (.*)$", TEXT, re.M)
    names = re.findall(r"client\.([\w.]+\w)", line)
    assert len(names) > 4
    with Hansei("http://127.0.0.1:1", "key") as client:
        for name in names:
            assert callable(attrgetter(name)(client)), name
