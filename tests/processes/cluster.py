"""Processes with parameter servers or a controller, on the loopback address, for the tests of them."""
import os
import pathlib
import random
import signal
import socket
import struct
import subprocess
import time
import zlib


def free_ports(count):
    """Ports that nothing uses now, all different. The system takes none of them for connections, as it does those from 32768 on."""
    held = []
    while len(held) < count:
        each = socket.socket()
        try:
            each.bind(("127.0.0.1", random.randrange(12000, 32000)))
            held.append(each)
        except OSError:
            each.close()
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def png(value, side=32):
    """An image of one grey."""
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    row = b"\0" + bytes([value]) * (3 * side)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(row * side)) + chunk(b"IEND", b""))


def write_black_and_white(root, train=64, validation=16):
    """tf_cnn_benchmarks' test images: half of them black, of class 0, half white, of class 1."""
    for subset, count in (("train", train), ("val", validation)):
        for name, value in (("black", 0), ("white", 255)):
            folder = pathlib.Path(root) / subset / name
            folder.mkdir(parents=True)
            for number in range(count // 2):
                (folder / f"{number:03d}.png").write_bytes(png(value))


class Process:
    """One process, whose output goes into a file."""

    def __init__(self, name, words, folder, environment=None):
        self.name, self.path = name, pathlib.Path(folder) / f"{name.replace(' ', '-')}.log"
        with open(self.path, "wb") as output:
            self.process = subprocess.Popen([str(word) for word in words], stdout=output, stderr=subprocess.STDOUT,
                                            env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})})

    @property
    def pid(self):
        return self.process.pid

    @property
    def output(self):
        return self.path.read_text(errors="replace")

    @property
    def code(self):
        return self.process.poll()

    def kill(self, signal_number=signal.SIGKILL):
        # Popen takes a stop of a traced process for its end, and would not kill it.
        try:
            os.kill(self.process.pid, signal_number)
        except ProcessLookupError:
            pass


class Cluster:
    """Starts the processes of a cluster; `flags` are all processes' own, `more` those of one by its name ("worker 1")."""

    def __init__(self, program, folder, flags, ps=1, workers=2, controller=False, more=None, wait_for=()):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        ports = free_ports(ps + workers + 1)
        addresses = [f"127.0.0.1:{port}" for port in ports]
        self.ps_hosts, self.worker_hosts = addresses[:ps], addresses[ps:ps + workers]
        self.program, self.flags, self.more = program, list(flags), more or {}
        self.hosts = [f"--worker_hosts={','.join(self.worker_hosts)}"]
        if ps:
            self.hosts.append(f"--ps_hosts={','.join(self.ps_hosts)}")
        if controller:
            self.hosts.append(f"--controller_host={addresses[-1]}")
        self.processes = {}
        names = [("ps", i) for i in range(ps)] + ([("controller", 0)] if controller else []) + [("worker", i) for i in range(workers)]
        for job, task in names:
            name = job if job == "controller" else f"{job} {task}"
            if name not in wait_for:
                self.start(name, job, task)

    def start(self, name, job, task):
        words = [self.program, *self.flags, *self.hosts, f"--job_name={job}", f"--task_index={task}", *self.more.get(name, [])]
        self.processes[name] = Process(name, words, self.folder)

    def __getitem__(self, name):
        return self.processes[name]

    def workers(self):
        return [process for name, process in self.processes.items() if name.startswith("worker")]

    def wait(self, seconds=120):
        """The codes of all processes by their names. Kills those that have not ended by then: their code is None."""
        end = time.monotonic() + seconds
        codes = {}
        for name, process in self.processes.items():
            try:
                codes[name] = process.process.wait(max(0.01, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                codes[name] = None
        self.kill()
        return codes

    def kill(self):
        for process in self.processes.values():
            process.kill()
            process.process.wait()

    def outputs(self):
        return "\n".join(f"--- {name}\n{process.output}" for name, process in self.processes.items())
