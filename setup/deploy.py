"""Check compose.yaml and the chart as far as that goes without Docker and Kubernetes.

compose.yaml against the schema of the Compose specification; the chart linted and rendered by Helm itself
with several sets of values, each document against the strict schemas of several Kubernetes versions. Custom
resources (ServiceMonitor) have no schema there: their fields are looked at by tests/deploy.

Run by `make deploy`, with the packages of the group `deploy`. With --render FOLDER what is rendered is kept.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import helm_python as helm
import kubernetes_validate
import yaml

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy" / "helm" / "lethe"
KUBERNETES = ("1.29", "1.31", "1.33", "1.35")
CUSTOM = {"ServiceMonitor"}
SETS = {
    "default": {},
    "full": {
        "image": {"repository": "registry.invalid/lethe", "tag": "1", "pullSecrets": ["pull"]},
        "storeSecrets": "lethe-stores",
        "settings": {"LETHE_ALLOWED_HOSTS": "db.invalid", "LETHE_PURGE_WORKERS": 4, "LETHE_OTEL": True}
        | {"LETHE_REPLICATION_BATCH_MAX_BYTES": 33_554_432, "LETHE_LEASE_TTL_S": 20.5},
        "settingsFrom": [{"configMapRef": {"name": "more"}}],
        "service": {"tlsSecret": "lethe-tls", "persistence": {"storageClass": "fast"}},
        "worker": {"replicas": 4, "labels": ["zone-a", "zone-b"]},
        "archive": {"existingClaim": "shared"},
        "networkPolicy": {
            "ingressFrom": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}],
            "egress": [{"ports": [{"port": 5432, "protocol": "TCP"}]}],
        },
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "podAnnotations": {"a": "b"},
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "high",
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
        ],
    },
    "bare": {
        "archive": {"enabled": False},
        "podDisruptionBudget": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "worker": {"replicas": 0},
    },
}
WRONG = (
    {"metadata": {"url": "postgresql+psycopg://lethe:secret@db/lethe"}},  # a password among the values
    {"worker": {"replica": 3}},
    {"settings": {"PATH": "/tmp"}},  # noqa: S108
)


def check_compose() -> None:
    """Raise CalledProcessError where compose.yaml is not of the specification."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    subprocess.run([*command, str(ROOT / "compose.yaml")], check=True)  # noqa: S603


def rendered(values: dict[str, object]) -> dict[str, str]:
    """The manifests of the chart with these values, by the template that made them."""
    with helm.Chart.load(str(CHART)) as chart:
        chart.validate_schema(values)
        found: dict[str, str] = chart.render(values, name="lethe", namespace="lethe")
        return found


def check_pod(pod: dict[str, Any]) -> None:
    """Raise SystemExit where a pod would take variables of its neighbours, or has a container without bounds.

    For a Service named `lethe` Kubernetes gives every pod LETHE_PORT=tcp://..., a setting of Lethe that then
    ends the start with 78. A namespace with a ResourceQuota refuses pods with an unbounded container.
    Helm writes a million as 1e+06, which is no whole number to a setting.
    """
    if pod.get("enableServiceLinks") is not False:
        raise SystemExit("a pod takes variables of services: LETHE_PORT=tcp://... ends its start with 78")
    for container in (*pod["initContainers"], *pod["containers"]):
        if "limits" not in container.get("resources", {}):
            raise SystemExit(f"{container['name']}: no resources")
        for each in container["env"]:
            if "e+" in each.get("value", ""):
                raise SystemExit(f"{container['name']}: {each['name']} is {each['value']}")


def check_chart(folder: Path | None) -> int:
    """Return how many documents were valid; raises at the first that is not."""
    checked = 0
    for name, values in SETS.items():
        for template, text in rendered(values).items():
            if folder is not None and text.strip():
                (folder / f"{name}-{Path(template).name}").write_text(text)
            if not template.endswith(".yaml"):
                continue
            for document in filter(None, yaml.safe_load_all(text)):
                if document["kind"] in CUSTOM:
                    continue
                if document["kind"] == "Deployment":
                    check_pod(document["spec"]["template"]["spec"])
                for version in KUBERNETES:
                    kubernetes_validate.validate(document, version, strict=True)
                    checked += 1
    for values in WRONG:
        try:
            rendered(values)
        except helm.HelmError:
            continue
        raise SystemExit(f"the schema of the values takes {values}")
    return checked


def main() -> None:
    """Check both, and say what was checked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--render", type=Path)
    folder = parser.parse_args().render
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    check_compose()
    findings = helm.lint(str(CHART))
    print(f"helm {helm.helm_sdk_version()} lint: {findings}")
    checked = check_chart(folder)
    versions = ", ".join(KUBERNETES)
    print(f"chart: {len(SETS)} sets of values, Kubernetes {versions}: {checked} documents are valid")


if __name__ == "__main__":
    main()
