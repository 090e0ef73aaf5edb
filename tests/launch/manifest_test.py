#!/usr/bin/env python3
"""deploy/parameter_servers.yaml tells all processes the same hosts. deploy/mpijob.yaml is what the MPI operator's own schema of an MPIJob allows, and a manifest with a mistake is not. The
command in it is one that `trainyard launch` takes.

The schema is tests/launch/mpi_operator/kubeflow.org_mpijobs.yaml.gz: manifests/base/kubeflow.org_mpijobs.yaml of
https://github.com/kubeflow/mpi-operator as of 2026-02-13 (commit 4954c997), unchanged, under the Apache License 2.0 that lies
beside it.

Usage: python3 tests/launch/manifest_test.py PROGRAM (build/trainyard).
"""
import copy
import gzip
import os
import pathlib
import re
import subprocess
import sys
import unittest

from namespaces import skip

try:
    import yaml
except ImportError:
    skip("needs PyYAML (Debian: python3-yaml; scripts/setup --tests installs it)")

program = os.path.abspath(sys.argv.pop(1))
here = pathlib.Path(__file__).resolve().parent


def load_yaml(text):
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


DEFINITION = load_yaml(gzip.decompress((here / "mpi_operator" / "kubeflow.org_mpijobs.yaml.gz").read_bytes()))["spec"]
MANIFEST = load_yaml((here.parents[1] / "deploy" / "mpijob.yaml").read_text())
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}


def schema_problems(value, schema, place):
    """What the schema does not allow, a line each. As `kubectl apply --validate=strict`, it refuses fields without a name."""
    if schema.get("x-kubernetes-int-or-string"):
        types = (int, str)
    else:
        types = TYPES[schema["type"]]
    if not isinstance(value, types) or isinstance(value, bool) != (types is bool):
        return [f"{place}: expected {schema.get('type', 'integer or string')}, got {value!r}"]
    found = []
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{place}: expected one of {schema['enum']}, got {value!r}")
    if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
        found.append(f"{place}: expected {schema['pattern']}, got {value!r}")
    if isinstance(value, dict) and ("properties" in schema or "additionalProperties" in schema):
        found += [f"{place}: has no {name}" for name in schema.get("required", []) if name not in value]
        for name, inner in value.items():
            kind = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            found += [f"{place}: unknown field {name}"] if kind is None else schema_problems(inner, kind, f"{place}.{name}")
    if isinstance(value, list):
        for index, inner in enumerate(value):
            found += schema_problems(inner, schema["items"], f"{place}[{index}]")
    return found


def operator_problems(manifest):
    """What the operator itself refuses though the schema allows it."""
    found = []
    replicas = manifest["spec"]["mpiReplicaSpecs"]
    if replicas.get("Launcher", {}).get("replicas") != 1:
        found.append("Launcher: must have 1 replica")
    for kind, spec in replicas.items():
        if kind not in ("Launcher", "Worker"):
            found.append(f"{kind}: no kind of replica")
        if spec.get("replicas", 0) < 1:
            found.append(f"{kind}: must have at least 1 replica")
        if spec.get("restartPolicy") not in ("Never", "OnFailure"):
            found.append(f"{kind}: restartPolicy must be Never or OnFailure")
    last = f"{manifest['metadata']['name']}-worker-{replicas.get('Worker', {}).get('replicas', 1) - 1}"
    if not re.fullmatch("[a-z]([-a-z0-9]{0,61}[a-z0-9])?", last):
        found.append(f"metadata.name: the last worker's host name {last} is none")
    return found


def problems(manifest):
    names, version = DEFINITION["names"], DEFINITION["versions"][0]
    found = []
    if manifest["apiVersion"] != f"{DEFINITION['group']}/{version['name']}" or manifest["kind"] != names["kind"]:
        found.append(f"unknown kind {manifest['kind']} of {manifest['apiVersion']}")
    found += schema_problems(manifest, version["schema"]["openAPIV3Schema"], "manifest")
    return found or operator_problems(manifest)


class Manifest(unittest.TestCase):
    def test_follows_the_schema(self):
        self.assertEqual(problems(MANIFEST), [])

    def test_with_a_mistake_is_refused(self):
        def mutated(change):
            manifest = copy.deepcopy(MANIFEST)
            change(manifest, manifest["spec"], manifest["spec"]["mpiReplicaSpecs"])
            return problems(manifest)

        for change, problem in (
                (lambda top, spec, replicas: top.update(apiVersion="kubeflow.org/v1"), "unknown kind MPIJob of kubeflow.org/v1"),
                (lambda top, spec, replicas: spec.update(slotsPerWorker="2"), "slotsPerWorker: expected integer"),
                (lambda top, spec, replicas: spec.update(mpiImplementation="LAM"), "mpiImplementation: expected one of"),
                (lambda top, spec, replicas: spec.pop("mpiReplicaSpecs") and spec.update(mpiReplicaSpecs=[]),
                 "mpiReplicaSpecs: expected object"),
                (lambda top, spec, replicas: top["metadata"].update(name="9-lives"), "host name 9-lives-worker-1"),
                (lambda top, spec, replicas: replicas["Worker"]["template"]["spec"]["containers"][0]["volumeMounts"][0].update(
                    mountpath="/data"), "unknown field mountpath"),
                (lambda top, spec, replicas: spec.update(slotPerWorker=2), "spec: unknown field slotPerWorker"),
                (lambda top, spec, replicas: replicas.pop("Launcher"), "Launcher: must have 1 replica"),
                (lambda top, spec, replicas: replicas["Worker"].update(replicas=0), "Worker: must have at least 1 replica"),
                (lambda top, spec, replicas: replicas["Worker"].update(restartPolicy="Always"), "restartPolicy must be"),
                (lambda top, spec, replicas: replicas["Worker"]["template"]["spec"]["containers"][0].pop("name"), "has no name"),
                (lambda top, spec, replicas: replicas["Worker"]["template"]["spec"]["containers"][0]["resources"]["limits"].update(
                    memory="16 GB"), "memory: expected")):
            found = mutated(change)
            self.assertEqual(len(found), 1, found)
            self.assertIn(problem, found[0])

    def test_workers_have_the_slots_that_the_command_asks_for(self):
        spec = MANIFEST["spec"]
        command = spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["command"]
        slots = spec["slotsPerWorker"] * spec["mpiReplicaSpecs"]["Worker"]["replicas"]
        self.assertIn(f"--ranks={slots}", command)
        # The network is the pods' own: this machine takes the command with its own.
        flags = [flag for flag in command[1:command.index("--")] if not flag.startswith("--network")]
        done = subprocess.run([program, *flags, "--network=127.0.0.0/8", "--dry_run", *command[command.index("--"):]],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f" -n {slots} --hostfile /etc/mpi/hostfile ", done.stdout)


class ServersManifest(unittest.TestCase):
    """deploy/parameter_servers.yaml: plain Jobs of Kubernetes, whose pods find each other by the names that it gives them."""

    def test_each_process_is_told_the_hosts_that_there_are(self):
        documents = list(yaml.load_all((here.parents[1] / "deploy" / "parameter_servers.yaml").read_text(),
                                       getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
        service, jobs = documents[0], documents[1:]
        self.assertEqual((service["kind"], service["spec"]["clusterIP"]), ("Service", "None"))
        self.assertEqual([job["metadata"]["name"] for job in jobs], ["ps", "worker"])
        port, hosts = service["spec"]["ports"][0]["port"], {}
        for job in jobs:
            name, spec = job["metadata"]["name"], job["spec"]
            pod = spec["template"]["spec"]
            self.assertEqual((spec["completionMode"], spec["completions"]), ("Indexed", spec["parallelism"]))
            self.assertEqual(pod["subdomain"], service["metadata"]["name"])
            self.assertEqual(spec["template"]["metadata"]["labels"], service["spec"]["selector"])
            hosts[name] = ",".join(f"{name}-{index}.{pod['subdomain']}:{port}" for index in range(spec["completions"]))
        for job in jobs:
            command = job["spec"]["template"]["spec"]["containers"][0]["command"]
            self.assertIn(f"--job_name={job['metadata']['name']}", command)
            for name, addresses in hosts.items():
                self.assertIn(f"--{name}_hosts={addresses}", command)
            words = [word.replace("$(JOB_COMPLETION_INDEX)", "1") for word in command]
            read = subprocess.run([program, *words[1:], "--dump_config"], capture_output=True, text=True)
            self.assertEqual(read.returncode, 0, read.stderr)
            self.assertRegex(read.stdout, r"task_index\W+1\b")


if __name__ == "__main__":
    unittest.main()
