"""Under which conditions something was measured: the machine, the versions of the peers, the commit."""

import json
import os
import pathlib
import platform
import re
import subprocess
import zlib

HERE = pathlib.Path(__file__).parent


def machine():
    def field(path, name):
        return next((line.partition(":")[2].strip() for line in open(path) if line.startswith(name)), "unknown")

    system = dict(line.rstrip().replace('"', "").split("=", 1) for line in open("/etc/os-release") if "=" in line)
    return {"processor": field("/proc/cpuinfo", "model name") + f" (family {field('/proc/cpuinfo', 'cpu family')}, model {field('/proc/cpuinfo', 'model')})"
            if platform.machine() == "x86_64" else platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(int(field("/proc/meminfo", "MemTotal").split()[0]) / 2**20),
            "system": system.get("PRETTY_NAME", platform.system())}


# {(vendor's family, ranges of models): name}
ARCHITECTURES = [(25, ((0x00, 0x0F), (0x20, 0x5F)), "Zen 3"), (25, ((0x10, 0x1F), (0x60, 0xAF)), "Zen 4"), (26, ((0x00, 0xFF),), "Zen 5"),
                 (6, ((0x8F, 0x8F),), "Sapphire Rapids"), (6, ((0xCF, 0xCF),), "Emerald Rapids"), (6, ((0xAD, 0xAE),), "Granite Rapids")]


def architecture(machine):
    """The short name of machine()'s processor, or its own where none is known."""
    found = re.search(r"family (\d+), model (\d+)", machine["processor"])
    if found:
        family, model = int(found[1]), int(found[2])
        for known, models, name in ARCHITECTURES:
            if family == known and any(low <= model <= high for low, high in models):
                return name
    return machine["processor"]


def versions(python, packages):
    """{name: version} of packages {name: package}, as that Python has them installed"""
    program = ("import importlib.metadata as m, json\ndef of(p):\n try: return m.version(p)\n"
               f" except m.PackageNotFoundError: return 'not installed'\nprint(json.dumps({{n: of(p) for n, p in {packages!r}.items()}}))")
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def commit():
    """The newest commit of anything but documentation, and a number of the changes since, when there are any."""

    def git(*arguments):
        done = subprocess.run(["git", "-C", HERE, *arguments, "--", ":/", ":!/docs", ":!/*.md"], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else "unknown"

    changes = git("diff", "HEAD")
    return git("log", "-1", "--format=%h") + (f" + {zlib.crc32(changes.encode()):08x}" if changes else "")
