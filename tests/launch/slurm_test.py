#!/usr/bin/env python3
"""Trainings under Slurm: `srun --mpi=pmix`, the example deploy/train.sbatch, and `trainyard launch` in an allocation. The
test starts Slurm's daemons itself, on a machine made of namespaces.

Usage: python3 tests/launch/slurm_test.py PROGRAM (build/trainyard). Skipped by name where daemons or namespaces are missing.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from launched import wait_until
from namespaces import enter, need, skip

program = os.path.abspath(sys.argv[1])
need(("munged", "munge"), ("slurmctld", "slurmctld"), ("slurmd", "slurmd"), ("srun", "slurm-client"), ("mpirun", "openmpi-bin"),
     ("ip", "iproute2"), ("unshare", "util-linux"), ("hostname", "hostname"))
ADDRESS = "10.77.0.1"
enter("node", f"127.0.0.1 localhost\n{ADDRESS} node\n")
sys.argv.pop(1)

sources = pathlib.Path(__file__).resolve().parents[2]
TRAIN = ["--device=cpu", "--model=resnet20", "--data_name=cifar10", "--synthetic", "--batch_size=4", "--num_warmup_batches=0", "--display_every=1",
         "--variable_update=horovod", "--rank_deadline=60"]
CONFIGURATION = """\
ClusterName=test
SlurmctldHost=node
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=node CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Slurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = root = pathlib.Path(cls.folder.name)
        root.chmod(0o755)
        # Without an address that is not loopback's, names are not resolved.
        subprocess.run(["ip", "addr", "add", f"{ADDRESS}/24", "dev", "lo"], check=True)
        (root / "key").write_bytes(os.urandom(1024))
        (root / "key").chmod(0o400)
        for name in ("state", "spool"):
            (root / name).mkdir()
        (root / "slurm.conf").write_text(CONFIGURATION.format(folder=root))
        os.environ.update(SLURM_CONF=str(root / "slurm.conf"), OMP_NUM_THREADS="1", XDG_CACHE_HOME=str(root / "cache"))
        cls.daemons, cls.log = [], open(root / "daemons.log", "wb")
        munge = ["munged", "--force", "--foreground", *(f"--{name}-file={root / name}" for name in ("key", "pid", "log", "seed")),
                 f"--socket={root / 'munge.socket'}"]
        for daemon in (munge, ["slurmctld", "-D"], ["slurmd", "-D"]):
            cls.daemons.append(subprocess.Popen(daemon, stdout=cls.log, stderr=cls.log))
            if daemon is munge:
                wait_until((root / "munge.socket").exists, 10, "munged listens")
        wait_until(lambda: "idle" in cls.slurm("sinfo", "--noheader", "--format=%T").stdout, 30, "the node is idle")
        if "pmix" not in cls.slurm("srun", "--mpi=list").stderr + cls.slurm("srun", "--mpi=list").stdout:
            skip("needs Slurm's pmix plugin (Debian: slurm-wlm-basic-plugins)")

    @classmethod
    def tearDownClass(cls):
        for daemon in reversed(cls.daemons):
            daemon.terminate()
        for daemon in cls.daemons:
            daemon.wait(30)
        cls.log.close()
        cls.folder.cleanup()

    @staticmethod
    def slurm(*words, **kwargs):
        return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300, **kwargs)

    def steps(self, folder):
        return sorted(path.name for path in folder.glob("model.ckpt-*"))

    def test_srun_starts_the_processes_of_a_training(self):
        folder = self.root / "srun"
        done = self.slurm("srun", "--mpi=pmix", "-n", 2, program, "train", *TRAIN, "--num_batches=4", f"--train_dir={folder}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("model.ckpt-4", self.steps(folder))
        self.assertEqual(len(re.findall(r"^4\t", done.stdout, re.M)), 1, done.stdout)

    def test_copies_that_would_train_alone_are_refused(self):
        alone = [program, "train", "--synthetic", "--device=cpu", "--model=resnet20", "--data_name=cifar10", "--batch_size=4", "--num_batches=2"]

        def shapes(name):
            return [program, "data", "make-shapes", "--train_count=4", "--validation_count=4", f"--output={self.root / name}"]

        for words in (alone, shapes("shapes")):
            done = self.slurm("srun", "-n", 2, *words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("2 processes were started, and each would", done.stderr)
        self.assertFalse((self.root / "shapes").exists())
        # One process in an allocation of two, and jobs of their own.
        self.assertEqual(self.slurm("salloc", "-n", 2, *shapes("salloc")).returncode, 0)
        self.assertEqual(self.slurm("salloc", "-n", 2, "srun", "-n", 1, *shapes("srun1")).returncode, 0)
        self.assertEqual(self.slurm("srun", "-n", 2, "env", "TRAINYARD_SEPARATE_PROCESSES=1", program, "models", "lenet").returncode, 0)
        script = self.root / "alone.sh"
        script.write_text("#!/bin/sh\nexec " + " ".join(shapes("sbatch")) + "\n")
        job = self.job(script)
        self.assertEqual(self.wait_for(job), ("COMPLETED", "0"), self.output(job))

    def job(self, *words, **environment):
        """Submits the example, waits for its end; returns the state that Slurm gives it, its code, and its output."""
        done = self.slurm("sbatch", "--parsable", "--ntasks=2", f"--output={self.root}/job-%j.log", *words, cwd=self.root,
                          env={**os.environ, "TRAINYARD": program, **environment})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def wait_for(self, job):
        def ended():
            shown = self.slurm("scontrol", "show", "job", job).stdout
            state = re.search(r"JobState=(\w+)", shown).group(1)
            return state not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING") and (state, re.search(r"ExitCode=(\d+):", shown).group(1))
        return wait_until(ended, 240, f"job {job} has ended")

    def output(self, job):
        log = self.root / f"job-{job}.log"
        return log.read_text() if log.exists() else ""

    def test_the_example_trains_and_goes_on(self):
        folder = self.root / "batch"
        example = sources / "deploy" / "train.sbatch"
        job = self.job(example, *TRAIN, "--num_batches=4", TRAIN_DIR=str(folder))
        self.assertEqual(self.wait_for(job), ("COMPLETED", "0"), self.output(job))
        self.assertIn("model.ckpt-4", self.steps(folder))
        job = self.job(example, *TRAIN, "--num_batches=100000", TRAIN_DIR=str(folder))
        wait_until(lambda: re.search(r"^1\d\t", self.output(job), re.M), 120, "it goes on")
        self.slurm("scancel", "--signal=TERM", job)
        state, code = self.wait_for(job)
        self.assertEqual((state, code), ("FAILED", "75"), self.output(job))
        last = max(int(name.split("-")[1]) for name in self.steps(folder))
        self.assertGreater(last, 9, "what was trained is saved")

    def test_launch_in_an_allocation_stays_on_its_host(self):
        folder = self.root / "launch"
        done = self.slurm("salloc", "-n", 2, program, "launch", "-n", 2, "--", "train", *TRAIN, "--num_batches=4",
                          f"--train_dir={folder}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("model.ckpt-4", self.steps(folder))


if __name__ == "__main__":
    unittest.main()
