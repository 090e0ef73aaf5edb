"""Launches for the tests of `trainyard launch`: what they print, their processes, and what they leave behind."""
import os
import pathlib
import re
import signal
import subprocess
import time
import uuid


def processes():
    """{number: environment} of the processes whose environment this one may read; one that has ended has none."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found[int(entry.name)] = (entry / "environ").read_bytes()
            except OSError:
                pass
    return found


def status_of(process):
    """The fields of /proc/N/status; {} when it has gone."""
    try:
        text = pathlib.Path(f"/proc/{process}/status").read_text()
    except OSError:
        return {}
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


def words_of(process):
    try:
        return pathlib.Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def wait_until(condition, seconds, what):
    """The condition's value, as soon as there is one."""
    until = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > until:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)


def listening(processes_of_interest):
    """{(process, address)} at which these processes listen for TCP; an address has its bytes as hexadecimal digits."""
    sockets = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in pathlib.Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                sockets[fields[9]] = fields[1]
    found = set()
    for process in processes_of_interest:
        try:
            links = [os.readlink(f"/proc/{process}/fd/{each}") for each in os.listdir(f"/proc/{process}/fd")]
        except OSError:
            continue
        for link in links:
            inode = re.fullmatch(r"socket:\[(\d+)\]", link)
            if inode and inode.group(1) in sockets:
                found.add((process, sockets[inode.group(1)]))
    return found


def time_to_end():
    """Seconds within which nothing of a launch that was killed may live on: five, but where others keep the machine busy."""
    return 5 if os.getloadavg()[0] < 2 * os.cpu_count() else 30


LOOPBACK = ("0100007F", "00000000000000000000000001000000")  # 127.0.0.1 and ::1, as /proc/net/tcp writes them


class Launch:
    """A launch that runs; all its processes carry a mark in their environment."""

    def __init__(self, program, *arguments, environment=None, **kwargs):
        self.mark = f"TRAINYARD_TEST_MARK={uuid.uuid4().hex}"
        name, value = self.mark.split("=")
        self.process = subprocess.Popen([str(program), *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        stdin=subprocess.DEVNULL, env={**os.environ, name: value, **(environment or {})}, **kwargs)
        self.output = self.error = ""

    def all_processes(self):
        """Its processes that live, itself among them."""
        mark = self.mark.encode()
        return [process for process, environment in processes().items() if mark in environment.split(b"\0")]

    def find(self, name, first=None):
        """Its processes of a program of this name; with `first`, those with that as their first argument."""
        found = []
        for process in self.all_processes():
            words = words_of(process)
            if words and os.path.basename(words[0]) == name and first in (None, *words[1:2]):
                found.append(process)
        return found

    def wait_for(self, count, *words, seconds=60):
        """The processes that find() gives once there are so many."""
        return wait_until(lambda: len(found := self.find(*words)) == count and found, seconds, f"{count} x {words}")

    def read_until(self, text, count):
        """Reads standard output until the text has come so often; end() gives what comes after that."""
        seen = b""
        while seen.count(text.encode()) < count:
            piece = os.read(self.process.stdout.fileno(), 1 << 16)
            if not piece:
                raise AssertionError(f"ended before {count} x {text!r}: {seen}\n{self.process.stderr.read().decode()}")
            seen += piece

    def send(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def end(self, seconds=400):
        """Waits for its end; returns its code as shells count."""
        try:
            output, error = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            for process in self.all_processes():
                os.kill(process, signal.SIGKILL)
            output, error = self.process.communicate()
            raise AssertionError(f"no end within {seconds} s:\n{output.decode()}\n{error.decode()}")
        self.output, self.error = output.decode(), error.decode()
        code = self.process.returncode
        return code if code >= 0 else 128 - code


def left_over(launches):
    """What these launches have left in the folders that they use, and zombies below this process."""
    own = {f"trainyard-launch-{launch.process.pid}-" for launch in launches}
    names = {str(path) for folder in ("/dev/shm", os.environ.get("TMPDIR", "/tmp")) if os.path.isdir(folder)
             for path in pathlib.Path(folder).iterdir() if any(path.name.startswith(name) for name in own)}
    zombies = {f"zombie {process}" for process in processes()
               if (status := status_of(process)).get("State", "").startswith("Z") and status.get("PPid") == str(os.getpid())}
    return names | zombies
