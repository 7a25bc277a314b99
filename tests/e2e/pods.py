"""Pods as tests want them: as restricted as Kubernetes allows, and asked through kubectl."""

from __future__ import annotations

import json
import subprocess

from rootcellar.kube.kinds import untyped
from testbed import image_ours
from tests.agent.agents import wait_until

PODS = untyped("", "v1", "pods")
JOBS = untyped("batch", "v1", "jobs")

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def pod(name, *, args=(), command=(), volumes=(), mounts=(), image=image_ours.NAME):
    """One that runs to its end."""
    container = {
        "name": "main",
        "image": image,
        "args": list(args),
        "securityContext": RESTRICTED,
        "volumeMounts": list(mounts),
    }
    if command:
        container["command"] = list(command)
    security = {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "fsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": security,
        "containers": [container],
        "volumes": list(volumes),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def outcome(cluster, namespace, body):
    """Run a pod to its end: whether it succeeded, and what it printed."""
    name = body["metadata"]["name"]
    cluster.kubectl("apply", "--filename=-", stdin=json.dumps(body), namespace=namespace)
    wait_until(lambda: phase(cluster, namespace, name) in {"Succeeded", "Failed"}, f"pod {name} ends", 120)
    return phase(cluster, namespace, name) == "Succeeded", cluster.kubectl("logs", name, namespace=namespace)


def phase(cluster, namespace, name):
    return cluster.client.get(PODS, name, namespace)["status"].get("phase")


def is_ready(cluster, namespace, name):
    found = cluster.client.get(PODS, name, namespace)
    conditions = {each["type"]: each["status"] for each in found["status"].get("conditions", [])}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in found["metadata"]


def execute(cluster, namespace, pod, container, *command):
    """What a command in a container printed; None while that is not possible or it fails."""
    try:
        return cluster.kubectl("exec", pod, f"--container={container}", "--", *command, namespace=namespace)
    except subprocess.CalledProcessError:
        return None
