"""deploy/citus: right by its schema, and as `hansei distribute` needs it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from memory_api.core.resources import read_sql
from tests.deploy.test_compose_file import schema_accepts
from tests.support.paths import ROOT

FOLDER = ROOT / "deploy/citus"
COMPOSE = FOLDER / "docker-compose.yml"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]
NODES = ("coordinator", "worker-1", "worker-2")


def test_schema(tmp_path: Path) -> None:
    text = COMPOSE.read_text()
    assert schema_accepts(text, tmp_path)
    wrong = text.replace("condition: service_healthy", "condition: service_is_well")
    assert not schema_accepts(wrong, tmp_path)


def test_nodes_have_the_settings_that_distribution_checks() -> None:
    wanted = re.findall(
        r"then '(\w+) = (\w+)' end", read_sql("distribution/distribution.sql", "wrong_settings")
    )
    assert len(wanted) == 3
    for name in NODES:
        for setting, value in wanted:
            assert f"{setting}={value}" in SERVICES[name]["command"]


def test_mounted_files_exist() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (FOLDER / source).resolve().is_file(), source


def test_register_names_every_node() -> None:
    text = (FOLDER / "register.sql").read_text()
    assert set(re.findall(r"'([\w-]+)', 5432", text)) == set(NODES)
    assert "alter role hansei_owner bypassrls" in text


def test_clients_reach_the_coordinator_alone() -> None:
    for name, service in SERVICES.items():
        networks = set(service["networks"])
        if name == "coordinator":
            assert networks == {"nodes", "clients"}
        else:
            is_node = name in NODES or name == "register"
            assert networks == {"nodes" if is_node else "clients"}, name


def test_trusted_network_is_that_of_the_nodes() -> None:
    networks = yaml.safe_load(COMPOSE.read_text())["networks"]
    subnet = networks["nodes"]["ipam"]["config"][0]["subnet"]
    trusted = re.findall(r"^host \S+ \S+ (\S+) trust$", (FOLDER / "pg_hba.conf").read_text(), re.M)
    assert trusted == [subnet]
    assert networks["nodes"]["internal"] is True
