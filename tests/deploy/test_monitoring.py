"""The monitoring profile: its files load, and every metric they name is one that Hansei serves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from memory_api.api.exposition import render_metrics
from memory_api.core.settings import Settings
from memory_api.runtime import Runtime
from tests.deploy.conftest import VARIABLES
from tests.support.compose_services import ROOT, read_compose

FOLDER = ROOT / "deploy/monitoring"
SERVICES = read_compose(VARIABLES)["services"]
MONITORING = ("prometheus", "grafana")
OF_PROMETHEUS = {"up"}
NAME = re.compile(r"\b(?:hansei|process)_[a-z0-9_]+|\bup\b(?=\{)")
SELECTOR = re.compile(r"\b((?:hansei)_[a-z0-9_]+)\{([^}]*)\}")
LABEL = re.compile(r"(\w+)\s*(?:=~|!=|!~|=)")


def read_yaml(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


def alert_rules() -> list[dict[str, Any]]:
    return [rule for group in read_yaml("alerts.yml")["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    dashboard = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in alert_rules())
    yield from (target["expr"] for panel in panels() for target in panel["targets"])


@pytest.fixture
async def served(runtime: Runtime) -> dict[str, Any]:
    """The families that a process serves, by the names of their samples."""
    names: dict[str, Any] = {}
    text = (await render_metrics(runtime)).decode()
    for family in text_string_to_metric_families(text):
        suffixes = {
            "counter": ("_total",),
            "histogram": ("_bucket", "_sum", "_count"),
        }.get(family.type, ("",))
        names.update({f"{family.name}{suffix}": family for suffix in suffixes})
    return names


async def test_every_metric_exists(served: dict[str, Any]) -> None:
    named = {name for expression in expressions() for name in NAME.findall(expression)}
    assert len(named) > 20
    assert named - served.keys() - OF_PROMETHEUS == set()


async def test_every_hansei_metric_is_shown_or_alerted(served: dict[str, Any]) -> None:
    named = {name for expression in expressions() for name in NAME.findall(expression)}
    families = {family.name for name, family in served.items() if name in named}
    all_of_hansei = {f.name for f in served.values() if f.name.startswith("hansei_")}
    assert all_of_hansei - families == set()


def test_labels_of_selectors_are_known() -> None:
    known = {"state", "status", "result", "job", "instance"}
    used = {
        label
        for expression in expressions()
        for _, selector in SELECTOR.findall(expression)
        for label in LABEL.findall(selector)
    }
    assert used <= known


def test_every_alert_says_what_to_do() -> None:
    rules = alert_rules()
    assert len({rule["alert"] for rule in rules}) == len(rules) > 10
    for rule in rules:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"].keys() == {"summary", "action"}


def test_panels_do_not_overlap() -> None:
    cells = [
        (x, y)
        for panel in panels()
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert all(panel["datasource"]["uid"] == "prometheus" for panel in panels())


def test_prometheus_scrapes_both_kinds_of_processes() -> None:
    jobs = {job["job_name"]: job for job in read_yaml("prometheus.yml")["scrape_configs"]}
    found = {
        name: (sd["names"], sd["port"])
        for name, job in jobs.items()
        for sd in job["dns_sd_configs"]
    }
    assert found == {"hansei-api": (["api"], 8321), "hansei-worker": (["worker"], 9321)}
    secrets = {f"/run/secrets/{name}" for name in SERVICES["prometheus"]["secrets"]}
    assert {job["authorization"]["credentials_file"] for job in jobs.values()} == secrets
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    assert "#HANSEI_WORKER_METRICS_PORT=9321" in example
    assert "worker_metrics_port" in Settings.model_fields


@pytest.mark.parametrize("name", MONITORING)
def test_profile_loads_existing_files(name: str) -> None:
    service = SERVICES[name]
    assert service["profiles"] == ["monitoring"]
    assert re.fullmatch(r"[\w/]+:v?\d+\.\d+\.\d+@sha256:[0-9a-f]{64}", service["image"])
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    files = [volume for volume in service["volumes"] if volume.startswith("./")]
    assert files
    for volume in files:
        source, _, options = volume.split(":")
        assert (ROOT / source).is_file(), source
        assert options == "ro"


def test_grafana_finds_its_dashboard_and_data() -> None:
    targets = {volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]}
    (provider,) = read_yaml("dashboards.yml")["providers"]
    assert f"{provider['options']['path']}/hansei.json" in targets
    (source,) = read_yaml("datasource.yml")["datasources"]
    assert source["uid"] == "prometheus"
    assert source["url"].startswith("http://prometheus:")
