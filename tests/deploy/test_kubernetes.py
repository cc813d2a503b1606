"""deploy/kubernetes: valid by the published schemas, safe as written, and right for Hansei."""

from __future__ import annotations

import re
from typing import Any

import kubernetes_validate
import pytest
import yaml

from memory_api.commands.processes import DRAIN_SECONDS
from memory_api.core.settings import Settings
from tests.rules.configuration import names, passed_on
from tests.rules.sources import ROOT, files
from tests.support.cases import each_case
from tests.support.compose_services import image

FOLDER = ROOT / "deploy/kubernetes"
VERSIONS = ("1.32", "1.37")
TEXTS = {path.name: path.read_text() for path in files("deploy/kubernetes", suffix=".yaml")}
RESOURCES: dict[str, dict[str, Any]] = {
    f"{resource['kind']}/{resource['metadata']['name']}": resource
    for name, text in TEXTS.items()
    if name != "kustomization.yaml"
    for resource in yaml.safe_load_all(text)
}


def pod(resource: dict[str, Any]) -> dict[str, Any]:
    """The pod template of a workload."""
    spec = resource["spec"]
    return spec["jobTemplate"]["spec"]["template"] if "jobTemplate" in spec else spec["template"]


PODS = {
    name: pod(each)
    for name, each in RESOURCES.items()
    if each["kind"] in ("Deployment", "Job", "CronJob")
}


def container(name: str) -> dict[str, Any]:
    (only,) = PODS[name]["spec"]["containers"]
    return only


def secrets_of(name: str) -> set[str]:
    found = re.findall(r"'secret(?:Key)?Ref': \{'name': '([\w-]+)'", str(PODS[name]))
    return set(found)


@each_case("name", RESOURCES)
def test_schema(name: str) -> None:
    for version in VERSIONS:
        kubernetes_validate.validate(RESOURCES[name], version, strict=True)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("readOnlyRootFilesystem: true", "readOnlyRootFileSystem: true"),
        ("containerPort: 8321", "containerPort: [8321]"),
        ("terminationGracePeriodSeconds: 25", "terminationGracePeriod: 25"),
    ],
)
def test_schema_refuses_typo(right: str, wrong: str) -> None:
    assert right in TEXTS["api.yaml"]
    changed = next(iter(yaml.safe_load_all(TEXTS["api.yaml"].replace(right, wrong))))
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(changed, VERSIONS[-1], strict=True)


def test_kustomization_lists_all_but_the_example() -> None:
    listed = yaml.safe_load(TEXTS["kustomization.yaml"])["resources"]
    assert {*listed, "kustomization.yaml", "secrets.example.yaml"} == set(TEXTS)


@each_case("name", PODS)
def test_pods_have_least_privileges(name: str) -> None:
    spec = PODS[name]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert f"ServiceAccount/{spec['serviceAccountName']}" in RESOURCES
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": image().uid,
        "runAsGroup": image().uid,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container(name)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [set(volume) for volume in spec["volumes"]] == [{"name", "emptyDir"}]
    assert {"cpu", "memory"} == set(container(name)["resources"]["requests"])
    assert "memory" in container(name)["resources"]["limits"]


def test_commands_are_those_of_the_image() -> None:
    assert container("Deployment/hansei-api")["args"] == [*image().command]
    commands = {name: container(name)["args"][0] for name in PODS}
    assert commands == {
        "Deployment/hansei-api": "serve",
        "Deployment/hansei-worker": "worker",
        "Job/hansei-migrate": "migrate",
        "CronJob/hansei-indexes": "maintain",
    }


def test_only_migration_and_indexes_connect_as_owner() -> None:
    with_owner = {name for name in PODS if "hansei-owner" in secrets_of(name)}
    assert with_owner == {"Job/hansei-migrate", "CronJob/hansei-indexes"}
    assert "worker-url" not in str(PODS["Deployment/hansei-api"])
    assert "app-url" not in str(PODS["Deployment/hansei-worker"])


def test_secrets_exist_and_have_no_values() -> None:
    example = TEXTS["secrets.example.yaml"]
    named = {name for pod_name in PODS for name in secrets_of(pod_name)}
    assert {f"Secret/{name}" for name in named} == {
        name for name in RESOURCES if name.startswith("Secret/")
    }
    for name in named:
        for value in RESOURCES[f"Secret/{name}"]["stringData"].values():
            assert re.search(r"\b(PASSWORD|TOKEN|KEY)\b", value), name
    assert not any("kind: Secret\n" in text for text in TEXTS.values() if text != example)


def test_every_variable_is_a_setting() -> None:
    known = {name for field in Settings.model_fields for name in names(field)}
    known |= {name for field in passed_on() for name in names(field)} | {"HANSEI_OWNER_URL"}
    used = {each["name"] for name in PODS for each in container(name)["env"]}
    used |= set(RESOURCES["ConfigMap/hansei-settings"]["data"])
    used |= {
        key
        for name in ("owner", "metrics", "models")
        for key in RESOURCES[f"Secret/hansei-{name}"]["stringData"]
    }
    assert used - known == set()


def test_selectors_find_their_pods() -> None:
    labels = {name: each["metadata"]["labels"] for name, each in PODS.items()}
    for name, resource in RESOURCES.items():
        spec = resource.get("spec", {})
        selector = spec.get("selector") or spec.get("podSelector")
        if selector is None:
            continue
        wanted = selector.get("matchLabels", selector)
        found = [pod for pod, have in labels.items() if wanted.items() <= have.items()]
        assert len(found) == (len(PODS) if name == "NetworkPolicy/hansei" else 1), name


def test_every_deployment_survives_disruption_and_scales() -> None:
    for name in ("hansei-api", "hansei-worker"):
        assert RESOURCES[f"PodDisruptionBudget/{name}"]["spec"]["maxUnavailable"] == 1
        scaler = RESOURCES[f"HorizontalPodAutoscaler/{name}"]["spec"]
        assert f"{scaler['scaleTargetRef']['kind']}/{scaler['scaleTargetRef']['name']}" in PODS
        assert 2 <= scaler["minReplicas"] < scaler["maxReplicas"]
        assert "replicas" not in RESOURCES[f"Deployment/{name}"]["spec"], "apply would reset it"


def test_workers_scale_on_a_metric_of_hansei() -> None:
    metrics = RESOURCES["HorizontalPodAutoscaler/hansei-worker"]["spec"]["metrics"]
    metric = metrics[0]["external"]["metric"]
    alerts = (ROOT / "deploy/monitoring/alerts.yml").read_text()
    assert f'{metric["name"]}{{state="{metric["selector"]["matchLabels"]["state"]}"}}' in alerts
    assert metric["name"] in (ROOT / "docs/install.md").read_text()


def test_probes_and_ports() -> None:
    api, worker = container("Deployment/hansei-api"), container("Deployment/hansei-worker")
    paths = {probe: api[f"{probe}Probe"]["httpGet"]["path"] for probe in ("liveness", "readiness")}
    assert paths == {"liveness": "/health", "readiness": "/health/ready"}
    assert str(api["ports"][0]["containerPort"]) == image().command[-1]
    port = RESOURCES["ConfigMap/hansei-settings"]["data"]["HANSEI_WORKER_METRICS_PORT"]
    assert str(worker["ports"][0]["containerPort"]) == port
    opened = {
        name: RESOURCES[f"NetworkPolicy/{name}"]["spec"]["ingress"][0]["ports"][0]["port"]
        for name in ("hansei-api", "hansei-worker")
    }
    assert opened == {"hansei-api": 8321, "hansei-worker": int(port)}


def test_pods_have_time_to_drain() -> None:
    lease = Settings.model_fields["lease_seconds"].default
    api = PODS["Deployment/hansei-api"]["spec"]["terminationGracePeriodSeconds"]
    pause = int(container("Deployment/hansei-api")["lifecycle"]["preStop"]["exec"]["command"][1])
    assert api > pause + DRAIN_SECONDS + 1
    assert PODS["Deployment/hansei-worker"]["spec"]["terminationGracePeriodSeconds"] > lease
