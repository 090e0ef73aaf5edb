"""What the comparison of exchanges runs: each side's build, command and result.

A program that times all-reduces of a peer takes BYTES:TIMES and prints {"seconds": {BYTES: [SINGLE, TOGETHER]}}. SINGLE is
the median of single ones, each after a barrier and of the slowest rank; TOGETHER is the mean of many, one after the other.
The lower one counts, to the advantage of the peers; ours is SINGLE.
"""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import running
from rows import KEEP_MEMORY, OURS, ROWS

HERE = pathlib.Path(__file__).parent
GLOO, DEBIAN_OPEN_MPI, OPEN_MPI, MPICH, ONECCL, DEEPSPEED = "gloo", "Open MPI of Debian", "Open MPI", "MPICH", "oneCCL", "DeepSpeed"
ALL_REDUCE_PEERS = [GLOO, DEBIAN_OPEN_MPI, OPEN_MPI, MPICH, ONECCL, DEEPSPEED]
SPINNING = [MPICH, ONECCL, DEEPSPEED]  # not measured where ranks outnumber cores: an all-reduce takes them seconds
COPY = "copy"  # measured by ours, in turns with its all-reduce
TWO_RANKS, DDP, ONE_PROCESS, FOUR_RANKS = OURS, "PyTorch DDP", "one process", "4 ranks"

TIMES = {65536: 200, 2**20: 100, 2**24: 20, 100 * 2**20: 10}  # bytes -> how often a run measures them at most
LONGEST_S = 120
WAITING = re.compile(r"waiting for others ([0-9.]+) % and moving numbers ([0-9.]+) % of the time of")

# How a peer's Python environment is called beyond that of gloo and DeepSpeed, and its package there.
ENVIRONMENTS = {OPEN_MPI: "-openmpi", MPICH: "-mpich", ONECCL: "-oneccl"}
PACKAGES = {GLOO: "torch", DEEPSPEED: "deepspeed", OPEN_MPI: "openmpi", MPICH: "mpich", ONECCL: "oneccl"}
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@dataclasses.dataclass(frozen=True)
class Setup:
    program: str               # ours
    environments: pathlib.Path  # the folder of the first Python environment; the others' names begin with it
    build: pathlib.Path        # where what is compiled lies

    def environment(self, peer):
        return pathlib.Path(f"{self.environments}{ENVIRONMENTS.get(peer, '')}").absolute()

    def variables(self, peer):
        """what is set for a peer's processes beside the usual"""
        set_ = {**AS_ROOT, "OMP_NUM_THREADS": "1"}
        if peer == DEBIAN_OPEN_MPI:
            return set_
        folder = self.environment(peer)
        set_["PATH"] = f"{folder}/bin:{os.environ['PATH']}"
        if peer == ONECCL:
            set_.update(LD_LIBRARY_PATH=f"{folder}/lib", CCL_LOG_LEVEL="error")
        if peer in (GLOO, DEEPSPEED):
            set_["TORCH_EXTENSIONS_DIR"] = str(self.build.absolute() / "torch_extensions")
        return set_


def build(setup, peer):
    """Compiles what times this peer. Throws running.Failed where it is not installed or does not compile."""
    setup.build.mkdir(parents=True, exist_ok=True)
    variables, folder = setup.variables(peer), setup.environment(peer)
    if peer != DEBIAN_OPEN_MPI and not folder.is_dir():
        raise running.Failed(f"{folder.name} is not there; run scripts/setup --peers-exchange")
    if peer == DEEPSPEED:
        running.run([folder / "bin/python", HERE / "all_reduce_torch.py", "build"], variables)
    elif peer == ONECCL:
        running.run(["g++", "-O2", "-std=c++17", f"-I{folder}/include", "-o", binary(setup, peer), HERE / "all_reduce_oneccl.cpp", f"-L{folder}/lib",
                     "-lccl", f"-Wl,-rpath,{folder}/lib"], variables)
    elif peer != GLOO:
        compiler = shutil.which("mpicc", path=variables.get("PATH"))
        if compiler is None:
            raise running.Failed("there is no mpicc")
        running.run([compiler, "-O2", "-o", binary(setup, peer), HERE / "all_reduce_mpi.c"], variables)


def binary(setup, peer):
    return str(setup.build.absolute() / f"all_reduce_{peer.lower().replace(' ', '_')}")


def starter(peer, variables, ranks):
    command = [shutil.which("mpiexec", path=variables.get("PATH")) or "mpiexec", "-n", str(ranks)]
    return command + (["--oversubscribe"] if peer in (DEBIAN_OPEN_MPI, OPEN_MPI, OURS) else [])


def times_of(sizes, share):
    return [f"{size}:{max(2, int(TIMES[size] * share))}" for size in sizes]


def all_reduce_of_peer(setup, peer, ranks, sizes, share):
    """{bytes: seconds}"""
    variables = setup.variables(peer)
    with tempfile.TemporaryDirectory() as scratch:
        if peer in (GLOO, DEEPSPEED):
            command = [setup.environment(peer) / "bin/python", HERE / "all_reduce_torch.py", peer.lower(), str(ranks)]
        else:
            command = [*starter(peer, variables, ranks), binary(setup, peer)] + ([f"{scratch}/address"] if peer == ONECCL else [])
        output, _, _ = running.run([*command, *times_of(sizes, share)], variables, longest_s=LONGEST_S)
    return peer_seconds(output)


def peer_seconds(output):
    for line in output.splitlines():
        if line.startswith('{"seconds"'):
            return {int(size): min(both) for size, both in json.loads(line)["seconds"].items()}
    raise running.Failed("printed no times")


def bench_all_reduce(setup, ranks, times, arguments):
    """the report of `trainyard bench allreduce`"""
    with tempfile.TemporaryDirectory() as scratch:
        command = [*starter(OURS, AS_ROOT, ranks), setup.program, "bench", "allreduce", *arguments, f"--num_batches={times}", "--num_warmup_batches=1",
                   "--iters_per_step=1", f"--display_every={times}", f"--json={scratch}/times.json"]
        running.run(command, {**AS_ROOT, "OMP_NUM_THREADS": "1"}, longest_s=LONGEST_S)
        return json.loads(pathlib.Path(scratch, "times.json").read_text())


def our_all_reduce(setup, ranks, sizes, share):
    """{"all-reduce" and "copy": {bytes: seconds}}"""
    times = max(2, int(max(TIMES[size] for size in sizes) * share))
    return seconds_of(bench_all_reduce(setup, ranks, times, [f"--sizes={','.join(map(str, sizes))}"]))


def seconds_of(report):
    found = {}
    for timing in report["timings"]:
        found.setdefault(timing["operation"], {})[timing["bytes"]] = timing["median_seconds"]
    if not {"all-reduce", "copy"} <= found.keys():
        raise running.Failed("bench allreduce reported no times")
    return found


def our_update(setup, share):
    """{operation: seconds} of ResNet-50's parameters and momentum by 2 ranks (trainyard/cli/bench_update.h)"""
    report = bench_all_reduce(setup, 2, max(2, int(30 * share)), [f"--model={ROWS['resnet50'].ours}", "--optimizer=tf_momentum", "--sizes="])
    if not {"copy", "optimizer", "reduce and update"} <= {timing["operation"] for timing in report["updates"]}:
        raise running.Failed("bench allreduce reported no times of updates")
    return {timing["operation"]: timing["median_seconds"] for timing in report["updates"]}


@dataclasses.dataclass(frozen=True)
class Training:
    """A row of trainings; `batch` is a rank's, `steps` are timed ones of a run."""

    model: str
    batch: int
    steps: int
    against_ddp: float  # wanted: of DDP's speed

    def our_options(self, batch, threads, share):
        row = ROWS[self.model]
        command = dataclasses.replace(row, batch=batch, steps=max(2, int(self.steps * share))).our_command("")[1:]
        return command + [f"--num_intra_threads={threads}"]


TRAININGS = [Training("resnet50", 16, 6, 1.5), Training("resnet20", 64, 150, 2.1)]
TRAINING_SIDES = [TWO_RANKS, DDP, ONE_PROCESS, FOUR_RANKS]


def train(setup, training, side, share):
    """{"images_per_sec"} of all ranks together; of ours over ranks also {"waiting_percent", "moving_percent"} of their time"""
    if side == DDP:
        command = [setup.environment(GLOO) / "bin/python", HERE / "train_ddp.py", training.model, str(training.batch), "2",
                   str(max(2, int(training.steps * share)))]
        return running.run_peer(command, {**setup.variables(GLOO), **KEEP_MEMORY}, longest_s=LONGEST_S)
    ranks = {TWO_RANKS: 2, ONE_PROCESS: 1, FOUR_RANKS: 4}[side]
    if side == ONE_PROCESS:
        command, variables = [setup.program, *training.our_options(2 * training.batch, 2, share)], {"OMP_NUM_THREADS": "2"}
    else:
        variables = {**AS_ROOT, "OMP_NUM_THREADS": "1"}
        command = [*starter(OURS, variables, ranks), setup.program, *training.our_options(training.batch, 1, share), "--variable_update=horovod"]
    output, _, _ = running.run(command, variables, errors_too=True, longest_s=LONGEST_S)
    return our_training(output)


def our_training(output):
    total, waiting = running.TOTAL.findall(output), WAITING.search(output)
    if not total:
        raise running.Failed("printed no images/sec")
    result = {"images_per_sec": float(total[-1])}
    return {**result, "waiting_percent": float(waiting[1]), "moving_percent": float(waiting[2])} if waiting else result


def debian_open_mpi_version():
    try:
        done = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "not installed"
    return done.stdout.splitlines()[0].rpartition(" ")[2]
