#!/usr/bin/env python3
"""Kills, stops or stalls one process of a cluster (a worker, a parameter server, the controller) and looks at what the others do:
each must end by itself, not with 0, and name that process; a delay below the deadline must pass.

usage: tests/processes/cluster_failures.py PROGRAM [--runs=100] [--seed=N] [--only=PHASE,...] [--numbers=N,...] [--report=FILE.md] [--deadline=3]

What a trial does is a function of the seed and its number; at which moment of a phase it does it is up to the machine.
"""
import os
import re
import signal
import subprocess
import sys
import time

from cluster import Cluster, free_ports
from failures import PTRACE_INTERRUPT, PTRACE_SEIZE, libc, threads
from series import Fault, add_deadline, make_parser, run_series

DEADLINE = 3.0  # seconds, of --rank_deadline, unless --deadline says another
GRACE = 4.0  # deadlines, that an end may take more
PHASES = ["start", "step", "save", "exit"]
KINDS = ["kill", "stop", "stall", "delay"]
LAYOUTS = {  # flags, servers, workers, controller
    "synchronous": ([], 1, 2, False),
    "two servers": ([], 2, 2, False),
    "replicated": (["--variable_update=distributed_replicated"], 1, 3, False),
    "own pace": (["--nocross_replica_sync"], 1, 2, False),
    "controller": (["--variable_update=distributed_all_reduce", "--all_reduce_spec=xring"], 0, 2, True),
}
HOW = r"(?:has died|does not answer|does not go on|waits as all others do|has ended|has left|has closed its connection|was asked|cannot be reached)"
NAMED = [(re.compile(rf"\b(?:rank|worker) (\d+)(?: at \S+)? {HOW}"), "worker {}"),
         (re.compile(rf"\bparameter server (\d+)(?: at \S+)? {HOW}"), "ps {}"),
         (re.compile(rf"\b(?:the )?controller(?: \S+)? {HOW}"), "controller"),
         (re.compile(r"process (\d+) has not come"), "worker {}"),  # of those that exchange gradients
         (re.compile(r"nothing from the controller"), "controller"),
         (re.compile(r"in vain for parameter server (\d+)"), "ps {}")]


MISSING = re.compile(r"nothing from (?:rank|worker) (\d+(?:, \d+)*)")


def blames(output, victim):
    """Whether the last process that an output blames is this one, or one of those that have never come."""
    found = []
    for pattern, name in NAMED:
        found += [(match.end(), {name.format(*match.groups())}) for match in pattern.finditer(output)]
    found += [(match.end(), {f"worker {number}" for number in match.group(1).split(", ")}) for match in MISSING.finditer(output)]
    return bool(found) and victim in max(found, key=lambda each: each[0])[1]


def hold(pid, is_server):
    """Holds the threads that do a process's work, but not those that say that it lives. Returns those that are held."""
    held = []
    for thread, name in threads(pid).items():
        works = name == "server update" if is_server else thread == pid or name.startswith("replica")
        if works and libc.ptrace(PTRACE_SEIZE, thread, None, None) == 0:
            libc.ptrace(PTRACE_INTERRUPT, thread, None, None)
            held.append(thread)
    return held


def reap(pid, held):
    """Takes the ends of a killed process's threads: who holds a thread must, or the process does not end."""
    all_kinds = 0x40000000  # __WALL
    for thread in held:
        try:
            while thread != pid and os.WIFSTOPPED(os.waitpid(thread, all_kinds)[1]):
                pass
        except ChildProcessError:
            pass


class Trial:
    def __init__(self, program, deadline, folder, draw, phase):
        self.program, self.deadline, self.folder, self.phase = program, deadline, folder, phase
        self.layout = draw.choice(list(LAYOUTS))
        flags, servers, workers, controller = LAYOUTS[self.layout]
        names = [f"ps {i}" for i in range(servers)] + ["controller"] * controller + [f"worker {i}" for i in range(workers)]
        self.victim = draw.choice(names)
        self.kind = draw.choice(KINDS)
        self.wait = draw.uniform(0, 0.4)
        self.flags, self.held = flags, []
        # Alone, a process that has not met the others yet keeps nothing waiting but itself.
        if phase == "start" and self.kind == "stall":
            self.kind = "stop"
        if phase == "save" and controller:
            self.victim = "worker 0"  # which saves

    def describe(self):
        return f"{self.kind} {self.victim} of '{self.layout}' in {self.phase}"

    def start(self):
        _, servers, workers, controller = LAYOUTS[self.layout]
        steps = 20 if self.phase == "exit" else 1000000
        flags = ["--device=cpu", "--model=resnet20", "--data_name=cifar10", "--batch_size=4", f"--num_batches={steps}", "--num_warmup_batches=0",
                 "--display_every=1", f"--rank_deadline={self.deadline}", f"--rank_start_deadline={3 * self.deadline}",
                 f"--train_dir={self.folder / 'run'}", "--log_level=info", *self.flags]
        if self.phase == "save":
            flags.append("--save_model_steps=1")
        self.cluster = Cluster(self.program, self.folder, flags, servers, workers, controller)

    def chief(self):
        return self.cluster.processes.get("controller") or self.cluster["worker 0"]

    def await_phase(self):
        end = time.monotonic() + 60
        if self.phase == "start":
            time.sleep(self.wait)
            return
        while time.monotonic() < end:
            trains = "images/sec: " in self.chief().output
            there = {"step": trains,
                     "save": trains and "at save" in threads(self.cluster["worker 0"].pid).values(),
                     "exit": "total images/sec" in self.chief().output or "\n15\timages/sec" in self.chief().output}[self.phase]
            if there:
                time.sleep(self.wait / 20 if self.phase == "step" else 0)
                return
            if all(process.code is not None for process in self.cluster.processes.values()):
                break
            time.sleep(0.001)
        raise Fault(f"never seen in {self.phase}: {self.cluster.outputs()[-2500:]}")

    def run(self):
        self.start()
        try:
            self.await_phase()
            victim = self.cluster[self.victim]
            if self.phase == "exit" and victim.code is not None:
                return
            struck = time.monotonic()
            if self.kind == "kill":
                victim.kill()
            elif self.kind == "stall":
                self.held = hold(victim.pid, self.victim.startswith("ps"))
            else:
                victim.kill(signal.SIGSTOP)
            if self.kind == "delay":
                time.sleep(self.deadline / 2)
                victim.kill(signal.SIGCONT)
                return self.expect_nothing()
            self.expect_ends(struck)
        finally:
            self.cluster[self.victim].kill()
            reap(self.cluster[self.victim].pid, self.held)
            self.cluster.kill()

    def expect_nothing(self):
        time.sleep(1.5 * self.deadline)
        for name, process in self.cluster.processes.items():
            if process.code not in (None, 0):
                raise Fault(f"{name} ended with {process.code} after a delay: {process.output[-1500:]}")

    def expect_ends(self, struck):
        survivors = {name: process for name, process in self.cluster.processes.items() if name != self.victim}
        # The controller waits twice as long, so that workers name who does not go on.
        times = {"start": 4}.get(self.phase, 3)
        limit = struck + (times + GRACE) * self.deadline
        while time.monotonic() < limit and any(process.code is None for process in survivors.values()):
            time.sleep(0.01)
        self.seconds = time.monotonic() - struck
        if self.phase == "exit" and all(process.code == 0 for process in survivors.values()):
            return  # all had left by then
        for name, process in survivors.items():
            if process.code is None:
                raise Fault(f"{name} goes on after {self.seconds:.1f} s: {process.output[-1500:]}")
            if process.code == 0 and self.phase != "exit":
                raise Fault(f"{name} ended with 0: {process.output[-1500:]}")
            if process.code != 0 and not blames(process.output, self.victim):
                raise Fault(f"{name} does not name it: {process.output[-1500:]}")


def main():
    parser = make_parser(__doc__, PHASES)
    add_deadline(parser, DEADLINE)
    arguments = parser.parse_args()
    program = arguments.program.resolve()
    port = free_ports(1)[0]
    probe = subprocess.run([program, "--job_name=ps", f"--ps_hosts=127.0.0.1:{port}", "--worker_hosts=127.0.0.1:1",
                            "--rank_start_deadline=0.5"], capture_output=True, text=True, timeout=60, check=False)
    if "gRPC" in probe.stderr:
        print("skipped: needs a build with gRPC (libgrpc++-dev, protobuf-compiler-grpc)")
        return 77
    return run_series(arguments, "cluster-failures-", lambda *drawn: Trial(program, arguments.deadline, *drawn),
                      lambda trial: (trial.phase, trial.victim.split()[0], trial.kind), ("phase", "process", "what"),
                      f"deadline {arguments.deadline:g} s")


if __name__ == "__main__":
    sys.exit(main())
