#!/usr/bin/env python3
"""deploy/mpijob.yaml follows the schema of MPIJob, and a manifest with a mistake does not. The command in it is one that
`trainyard launch` takes.

Usage: python3 tests/launch/manifest_test.py PROGRAM (build/trainyard).
"""
import copy
import json
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
SCHEMA = json.loads((here / "mpijob_schema.json").read_text())
MANIFEST = yaml.safe_load((here.parents[1] / "deploy" / "mpijob.yaml").read_text())
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "quantity": (str, int)}


def problems(value, schema=SCHEMA, place="manifest"):
    """What the schema does not allow, a line each."""
    if "$ref" in schema:
        schema = SCHEMA["definitions"][schema["$ref"]]
    if not isinstance(value, TYPES[schema["type"]]) or isinstance(value, bool) != (schema["type"] == "boolean"):
        return [f"{place}: expected {schema['type']}, got {value!r}"]
    found = []
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{place}: expected one of {schema['enum']}, got {value!r}")
    if "minimum" in schema and value < schema["minimum"]:
        found.append(f"{place}: expected at least {schema['minimum']}, got {value}")
    if "pattern" in schema and not re.fullmatch(schema["pattern"], str(value)):
        found.append(f"{place}: expected {schema['pattern']}, got {value!r}")
    if isinstance(value, dict):
        found += [f"{place}: has no {name}" for name in schema.get("required", []) if name not in value]
        for name, inner in value.items():
            kind = schema.get("properties", {}).get(name, schema.get("values"))
            found += [f"{place}: unknown field {name}"] if kind is None else problems(inner, kind, f"{place}.{name}")
    if isinstance(value, list):
        for index, inner in enumerate(value):
            found += problems(inner, schema["items"], f"{place}[{index}]")
    return found


class Manifest(unittest.TestCase):
    def test_follows_the_schema(self):
        self.assertEqual(problems(MANIFEST), [])

    def test_with_a_mistake_is_refused(self):
        def mutated(change):
            manifest = copy.deepcopy(MANIFEST)
            change(manifest, manifest["spec"], manifest["spec"]["mpiReplicaSpecs"])
            return problems(manifest)

        for change, problem in (
                (lambda top, spec, replicas: top.update(apiVersion="kubeflow.org/v1"), "apiVersion: expected one of"),
                (lambda top, spec, replicas: spec.update(slotsPerWorker="2"), "slotsPerWorker: expected integer"),
                (lambda top, spec, replicas: spec.update(slotPerWorker=2), "spec: unknown field slotPerWorker"),
                (lambda top, spec, replicas: replicas.pop("Launcher"), "has no Launcher"),
                (lambda top, spec, replicas: replicas["Worker"].update(replicas=0), "expected at least 1"),
                (lambda top, spec, replicas: replicas["Worker"].update(restartPolicy="Sometimes"), "expected one of"),
                (lambda top, spec, replicas: replicas["Worker"]["template"]["spec"]["containers"][0].pop("image"), "has no image"),
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


if __name__ == "__main__":
    unittest.main()
