#!/usr/bin/env python3
"""Kills, stops or stalls one of several processes that train together, and looks at what the others do: each must end by itself,
not with 0, within the deadline + 10 s, and all must name the same rank; a delay below the deadline must pass.

usage: tests/processes/failures.py PROGRAM [--runs=100] [--seed=N] [--only=PHASE,...] [--numbers=N,...] [--report=FILE.md] [--deadline=2]

What a trial does is a function of the seed and its number; at which moment of a phase it does it is up to the machine. Phases are
read from the name of the thread that serves a process's group ("at all-reduce").
"""
import ctypes
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

from series import Fault, add_deadline, make_parser, run_series

DEADLINE = 2.0  # seconds, of --rank_deadline and --rank_start_deadline, unless --deadline says another
GRACE = 5.0  # deadlines, that an end may take more
PHASES = ["start", "broadcast", "all-reduce", "save", "evaluation", "exit"]
KINDS = ["kill", "stop", "stall", "delay"]

# Runs the program with its output in a file, and notes its process and its code.
WRAPPER = ('"$@" >"$FOLDER/output.$OMPI_COMM_WORLD_RANK" 2>&1 & echo $! >"$FOLDER/pid.$OMPI_COMM_WORLD_RANK"; wait $!; '
           'echo $? >"$FOLDER/code.$OMPI_COMM_WORLD_RANK"')

PTRACE_CONT, PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 7, 17, 0x4206, 0x4207
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def threads(pid):
    """Names of the threads by number; empty when the process has gone."""
    found = {}
    try:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            found[int(task.name)] = (task / "comm").read_text().rstrip("\n")
    except OSError:
        pass
    return found


def phase_of(pid):
    for name in threads(pid).values():
        if name.startswith("at "):
            return name[3:]
    return ""


def shared_descriptors(pid):
    """Descriptors of the ranks' shared memory that are open. It is mapped, and its descriptor closed, before the first exchange."""
    found = []
    try:
        for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            target = os.readlink(link)
            if "memfd:trainyard" in target:
                found.append(target)
    except OSError:
        pass
    return found


def verdict(output):
    """The rank that a process names, and what that rank did, by its last error. Where the process itself is stands in front of it."""
    found = re.findall(r"rank (\d+) (?:has died|does not answer|does not go on|has not come within [0-9.]+ s)(?:: (.*?))?(?:: got|;)", re.sub(r"rank \d+ of \d+: ", "", output))
    found = [(rank, place.split(": ")[-1]) for rank, place in found]
    # Rank 0 may die between the address that it gave and the connection to it: then no operation can be named.
    found += [(rank, "") for rank in re.findall(r"rank (\d+) cannot be reached: ", output)]
    found += [(rank, operation) for operation, rank in re.findall(r"have not come in [0-9.]+ s: (\w+): got nothing from rank (\d+);", output)]
    return found[-1] if found else None


def stall(pid):
    """Holds all threads but the one that says that the process lives."""
    for thread, name in threads(pid).items():
        if not name.startswith("at ") and libc.ptrace(PTRACE_SEIZE, thread, None, None) == 0:
            libc.ptrace(PTRACE_INTERRUPT, thread, None, None)


class Trial:
    def __init__(self, program, deadline, folder, draw, phase):
        self.program, self.deadline, self.folder, self.phase = program, deadline, folder, phase
        self.ranks = draw.choice([2, 3])
        self.victim = draw.randrange(self.ranks)
        self.kind = draw.choice(KINDS)
        self.wait = draw.uniform(0, 0.3)
        if phase == "save":
            self.victim = 0  # the others do not save

    def describe(self):
        return f"{self.kind} rank {self.victim} of {self.ranks} in {self.phase}"

    def path(self, what, rank):
        return self.folder / f"{what}.{rank}"

    def read(self, what, rank):
        try:
            return self.path(what, rank).read_text()
        except OSError:
            return ""

    def start(self):
        self.folder.mkdir(parents=True)
        environment = {**os.environ, "FOLDER": str(self.folder), "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                       "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(self.folder / "cache")}
        steps = 3 if self.phase == "exit" else 100000
        arguments = [self.program, "train", "--device=cpu", "--model=resnet20", "--data_name=cifar10", "--synthetic", "--batch_size=8",
                     f"--num_batches={steps}", "--variable_update=horovod", f"--rank_deadline={self.deadline}",
                     f"--rank_start_deadline={3 * self.deadline}", f"--train_dir={self.folder / 'run'}"]
        if self.phase == "save":
            arguments += ["--save_model_steps=1"]
        if self.phase == "evaluation":
            arguments += ["--eval_during_training_every_n_steps=2", "--num_eval_batches=20"]
        with open(self.folder / "mpirun", "wb") as output:
            self.launcher = subprocess.Popen(
                ["mpirun", "--enable-recovery", "--oversubscribe", "--bind-to", "none", "-n", str(self.ranks), "bash", "-c", WRAPPER, "rank",
                 *map(str, arguments)], env=environment, stdout=output, stderr=subprocess.STDOUT, process_group=0)

    def await_phase(self):
        end = time.monotonic() + 60
        pid = 0
        while time.monotonic() < end:
            text = self.read("pid", self.victim)
            pid = int(text) if text.endswith("\n") else 0
            # What stalls must have begun to say that it lives.
            anywhere = self.phase == "start" and self.kind != "stall"
            if pid > 0 and (anywhere or phase_of(pid).startswith(self.phase[:12])):
                time.sleep(self.wait if self.phase == "start" else 0)
                return pid
            if self.path("code", self.victim).exists():
                break
            time.sleep(0.0005)
        raise Fault(f"rank {self.victim} was never seen in {self.phase}, but in '{phase_of(pid)}': {self.read('output', self.victim)[-500:]}")

    def run(self):
        self.start()
        try:
            pid = self.await_phase()
            struck = time.monotonic()
            if self.phase in ("all-reduce", "save", "evaluation") and shared_descriptors(pid):
                raise Fault(f"the victim holds {shared_descriptors(pid)}")
            if self.kind == "kill":
                os.kill(pid, signal.SIGKILL)
            elif self.kind == "stall":
                stall(pid)
            else:
                os.kill(pid, signal.SIGSTOP)
            if self.kind == "delay":
                time.sleep(self.deadline / 2)
                os.kill(pid, signal.SIGCONT)
                return self.expect_nothing()
            self.expect_ends(struck)
        finally:
            self.clean()

    def expect_nothing(self):
        time.sleep(1.5 * self.deadline)
        for rank in range(self.ranks):
            code = self.read("code", rank).strip()
            if code not in ("", "0"):
                raise Fault(f"rank {rank} ended with {code} after a delay: {self.read('output', rank)[-800:]}")

    def expect_ends(self, struck):
        survivors = [rank for rank in range(self.ranks) if rank != self.victim]
        limit = struck + ((3 if self.phase in ("start", "broadcast") else 1) + GRACE) * self.deadline
        while time.monotonic() < limit and not all(self.read("code", rank).endswith("\n") for rank in survivors):
            time.sleep(0.01)
        seconds = time.monotonic() - struck
        if self.phase == "exit" and all(self.read("code", rank).strip() == "0" for rank in survivors):
            return  # all had left by then
        named = set()
        for rank in survivors:
            code = self.read("code", rank).strip()
            if code == "":
                raise Fault(f"rank {rank} goes on after {seconds:.1f} s: {self.read('output', rank)[-800:]}")
            if code == "0":
                raise Fault(f"rank {rank} ended with 0")
            named.add(verdict(self.read("output", rank)))
        operations = {one[1] for one in named if one is not None and one[1]}
        if len(operations) > 1 or None in named or any(one[0] != str(self.victim) for one in named):
            raise Fault(f"the others name {named}: {self.read('output', survivors[0])[-800:]}")
        self.seconds = seconds

    def clean(self):
        for rank in range(self.ranks):
            text = self.read("pid", rank)
            if text.endswith("\n") and not self.path("code", rank).exists():
                try:
                    os.kill(int(text), signal.SIGKILL)
                except OSError:
                    pass
        try:
            self.launcher.wait(timeout=3)
        except subprocess.TimeoutExpired:
            os.killpg(self.launcher.pid, signal.SIGKILL)
            self.launcher.wait()


def main():
    parser = make_parser(__doc__, PHASES)
    add_deadline(parser, DEADLINE)
    arguments = parser.parse_args()
    if shutil.which("mpirun") is None:
        print("skipped: needs mpirun (apt-get install openmpi-bin)")
        return 77
    program = arguments.program.resolve()
    return run_series(arguments, "failures-", lambda *drawn: Trial(program, arguments.deadline, *drawn), lambda trial: (trial.phase, trial.kind),
                      ("phase", "what"), f"deadline {arguments.deadline:g} s")


if __name__ == "__main__":
    sys.exit(main())
