"""Machines that a test makes out of namespaces: networks, host names and mounts of their own. As root only, and where the
system allows it."""
import os
import shutil
import subprocess
import sys

SKIPPED = 77  # what CTest counts as skipped
INSIDE = "TRAINYARD_TEST_INSIDE"


def skip(reason):
    print(reason)
    sys.exit(SKIPPED)


def need(*programs):
    """Skips the test where one of (program, Debian's package) is missing."""
    for program, package in programs:
        if shutil.which(program) is None:
            skip(f"needs {program} (Debian: {package}; scripts/setup --tests installs it)")


def enter(name, hosts):
    """Runs this script again as another machine: its name, its /etc/hosts, a network of its own with loopback only, and
    processes that end with it. Returns inside of it."""
    if INSIDE in os.environ:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        subprocess.run(["hostname", name], check=True)
        path = os.path.join(os.environ[INSIDE], "hosts")
        with open(path, "w") as file:
            file.write(hosts)
        subprocess.run(["mount", "--bind", path, "/etc/hosts"], check=True)
        return
    import tempfile
    unshare = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*unshare, "ip", "link", "set", "lo", "up"], capture_output=True).returncode != 0:
        skip("needs the right to make namespaces (root, not in a container that forbids it)")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        done = subprocess.run([*unshare, sys.executable, *sys.argv], env={**os.environ, INSIDE: folder})
    sys.exit(done.returncode)
