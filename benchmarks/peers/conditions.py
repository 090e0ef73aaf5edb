"""Under which conditions something was measured: the machine, the versions of the peers, the commit."""

import json
import os
import pathlib
import platform
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
