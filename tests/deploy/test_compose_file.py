"""docker-compose.yml: right by its schema, and safe as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from memory_api.commands.processes import DRAIN_SECONDS
from memory_api.core.settings import Settings
from tests.deploy.conftest import VARIABLES
from tests.rules.configuration import names, passed_on
from tests.support.cases import each_case
from tests.support.compose_services import COMPOSE, ROOT, NotSet, image, read_compose, seconds

RAW: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
FILE = read_compose(VARIABLES)
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
OURS = ("migrate", "api", "worker")
NEEDED = sorted(set(re.findall(r"\$\{(\w+):\?", COMPOSE.read_text())))
OPTIONAL = set(re.findall(r"\$\{(\w+):-", COMPOSE.read_text())) | {
    name
    for service in RAW["services"].values()
    for name, value in service.get("environment", {}).items()
    if value is None
}
OPTIONAL |= {secret["environment"] for secret in RAW["secrets"].values()}


def schema_accepts(text: str, folder: Path) -> bool:
    """What the compose specification's JSON schema says (shipped by check-jsonschema)."""
    file = folder / "docker-compose.yml"
    file.write_text(text)
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, str(file)], capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode == 0


def test_schema(tmp_path: Path) -> None:
    assert schema_accepts(COMPOSE.read_text(), tmp_path)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("condition: service_healthy", "condition: service_is_well"),
        ("read_only: true", "readonly: true"),
        ("retries: 3", "retries: [3]"),
    ],
)
def test_schema_refuses_typo(right: str, wrong: str, tmp_path: Path) -> None:
    text = COMPOSE.read_text()
    assert right in text
    assert not schema_accepts(text.replace(right, wrong), tmp_path)


@each_case("name", NEEDED)
def test_no_password_has_a_default(name: str) -> None:
    without = {key: value for key, value in VARIABLES.items() if key != name}
    for variables in (without, without | {name: ""}):
        with pytest.raises(NotSet, match=name):
            read_compose(variables)


def test_every_secret_comes_from_required_variable() -> None:
    for service in RAW["services"].values():
        for name, value in service.get("environment", {}).items():
            found = re.findall(r"://\w+:(.*)@", value or "")
            found += [value] if name.endswith("PASSWORD") else []
            for secret in found:
                assert re.fullmatch(r"\$\{\w+_PASSWORD:\?[^}]+\}", secret), name


def test_env_example_lists_every_variable() -> None:
    lines = (ROOT / ".env.example").read_text().splitlines()
    assert sorted(line[:-1] for line in lines if re.fullmatch(r"\w+=", line)) == NEEDED
    offered = {line[1:].partition("=")[0] for line in lines if re.match(r"#\w+=", line)}
    assert offered <= OPTIONAL
    others = {name for field in passed_on() for name in names(field)[1:]}
    assert OPTIONAL - offered == others


def test_every_variable_is_a_setting() -> None:
    known: set[str] = set()
    for name, field in Settings.model_fields.items():
        alias = field.validation_alias
        known |= set(alias.choices) if alias is not None else {f"HANSEI_{name.upper()}"}  # type: ignore[union-attr]
    for name in OURS:
        assert set(SERVICES[name]["environment"]) <= known


def test_only_migrate_connects_as_owner() -> None:
    for name in ("api", "worker"):
        assert "hansei_owner" not in str(SERVICES[name])
    assert "hansei_worker" not in str(SERVICES["api"])
    assert "hansei_app" not in str(SERVICES["worker"])
    assert not any("postgresql://postgres" in str(service) for service in SERVICES.values())


def test_published_ports_are_on_loopback() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert published == {"api": ["127.0.0.1:8321:8321"], "grafana": ["127.0.0.1:3000:3000"]}
    opened = read_compose(VARIABLES | {"HANSEI_PUBLISH": "10.0.0.5:80"})
    assert opened["services"]["api"]["ports"] == ["10.0.0.5:80:8321"]


def test_start_order() -> None:
    assert SERVICES["migrate"]["depends_on"] == {"db": {"condition": "service_healthy"}}
    for name in ("api", "worker"):
        after = SERVICES[name]["depends_on"]
        assert after == {"migrate": {"condition": "service_completed_successfully"}}
    assert SERVICES["migrate"]["restart"] == "no"
    assert {SERVICES[name]["restart"] for name in ("db", "api", "worker")} == {"unless-stopped"}


@pytest.mark.parametrize("name", OURS)
def test_services_have_least_privileges(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "user", "cap_add", "volumes", "network_mode"} & set(service)


def test_database_image_is_pinned_and_its_data_survives() -> None:
    database = SERVICES["db"]
    assert re.fullmatch(r"pgvector/pgvector:\d+\.\d+\.\d+-pg18-\w+@.+", database["image"])
    mounts = [volume.split(":")[:2] for volume in database["volumes"]]
    # the image of 18 refuses a volume at the old place, /var/lib/postgresql/data
    assert ["data", "/var/lib/postgresql"] in mounts
    assert "data" in FILE["volumes"]
    assert all((ROOT / source).is_file() for source, _ in mounts if source != "data")


def test_database_is_healthy_only_after_start_scripts() -> None:
    assert "--host=127.0.0.1" in SERVICES["db"]["healthcheck"]["test"]


def test_service_has_time_to_drain() -> None:
    lease = Settings.model_fields["lease_seconds"].default
    assert seconds(SERVICES["api"]["stop_grace_period"]) > DRAIN_SECONDS + 1
    assert seconds(SERVICES["worker"]["stop_grace_period"]) > lease


def test_same_port_everywhere() -> None:
    port = SERVICES["api"]["command"][-1]
    assert port == image().command[-1] == SERVICES["api"]["ports"][0].rpartition(":")[2]
    assert f"127.0.0.1:{port}/health/ready'" in SERVICES["api"]["healthcheck"]["test"][-1]
    assert f"127.0.0.1:{port}/health'" in image().healthcheck[-1]


@each_case("name", SERVICES)
def test_container_has_no_rights(name: str) -> None:
    """It cannot write its file system, gains no rights, and runs as a user without any."""
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    user = service.get("user", f"{image().uid}" if "build" in service else "")
    assert user.split(":")[0] not in ("", "root", "0")
    assert not {"privileged", "cap_add", "devices", "pid", "ipc", "network_mode"} & set(service)
    for volume in service.get("volumes", []):
        source, _, *mode = volume.split(":")
        assert not source.startswith(("/", ".")) or mode == ["ro"], volume


@each_case("name", SERVICES)
def test_image_is_pinned_by_its_digest(name: str) -> None:
    service = SERVICES[name]
    if "build" not in service:
        assert re.fullmatch(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}", service["image"])
