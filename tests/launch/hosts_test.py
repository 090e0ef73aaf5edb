#!/usr/bin/env python3
"""`trainyard launch` over two machines: two network and UTS namespaces, a cable between them, and Open MPI's own daemon
on the second one.

Usage: python3 tests/launch/hosts_test.py PROGRAM (build/trainyard). Skipped by name where namespaces are not permitted.
"""
import os
import pathlib
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

from launched import Launch, listening, time_to_end, wait_until
from namespaces import enter, need

program = os.path.abspath(sys.argv[1])
need(("mpirun", "openmpi-bin"), ("ip", "iproute2"), ("unshare", "util-linux"), ("nsenter", "util-linux"), ("hostname", "hostname"))
FIRST, SECOND, NETWORK = "10.77.0.1", "10.77.0.2", "10.77.0.0/24"
enter("first", f"127.0.0.1 localhost\n{FIRST} first\n{SECOND} second\n")
sys.argv.pop(1)

here = pathlib.Path(__file__).resolve().parent
RANKS = here / "ranks.py"
WHERE = "import os, socket; print(os.environ['OMPI_COMM_WORLD_RANK'], socket.gethostname(), flush=True)"


def ip(*words, of=None):
    inside = ["nsenter", "-t", str(of), "--net", "--uts"] if of else []
    subprocess.run([*inside, "ip", *words], check=True)


class Hosts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """The second machine, which a process holds, and a cable."""
        cls.second = subprocess.Popen(["unshare", "--net", "--uts", "sh", "-c", "hostname second; echo; exec sleep 10000"],
                                      stdout=subprocess.PIPE)
        cls.second.stdout.readline()
        process = str(cls.second.pid)
        ip("link", "add", "cable0", "type", "veth", "peer", "name", "cable1")
        ip("link", "set", "cable1", "netns", process)
        ip("addr", "add", f"{FIRST}/24", "dev", "cable0")
        ip("link", "set", "cable0", "up")
        for words in (("link", "set", "lo", "up"), ("addr", "add", f"{SECOND}/24", "dev", "cable1"), ("link", "set", "cable1", "up")):
            ip(*words, of=process)
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        cls.shell = cls.root / "remote_shell"  # in the place of ssh: HOST COMMAND...
        cls.shell.write_text(f'#!/bin/sh\nshift\nexec nsenter -t {process} --net --uts sh -c "$*"\n')
        cls.shell.chmod(cls.shell.stat().st_mode | stat.S_IXUSR)

    @classmethod
    def tearDownClass(cls):
        cls.second.kill()
        cls.second.wait()
        cls.second.stdout.close()
        cls.folder.cleanup()

    def launch(self, *arguments, hosts=f"--hosts={FIRST}:1,{SECOND}:1"):
        launch = Launch(program, "launch", "-n", 2, hosts, f"--network={NETWORK}", *arguments,
                        environment={"OMPI_MCA_plm_rsh_agent": str(self.shell), "OMP_NUM_THREADS": "1",
                                     "XDG_CACHE_HOME": str(self.root / "cache")})
        self.addCleanup(launch.process.stdout.close)
        self.addCleanup(launch.process.stderr.close)
        self.addCleanup(lambda: wait_until(lambda: not launch.all_processes(), time_to_end(), "all its processes have ended"))
        return launch

    def test_each_host_has_its_ranks(self):
        file = self.root / "hostfile"
        file.write_text(f"{FIRST} slots=1\n{SECOND} slots=1\n")
        for hosts in (f"--hosts={FIRST}:1,{SECOND}:1", f"--hostfile={file}"):
            launch = self.launch(f"--program={sys.executable}", "--", "-c", WHERE, hosts=hosts)
            self.assertEqual(launch.end(), 0, launch.error)
            self.assertEqual(sorted(launch.output.splitlines()), ["[0] 0 first", "[1] 1 second"])
            self.assertIn(f"warning: launch and mpirun listen on {FIRST}", launch.error)

    def test_the_address_that_was_told_is_the_one_that_launch_and_mpirun_listen_on(self):
        launch = self.launch(f"--program={RANKS}", "--", "wait")
        launch.read_until("ready", 2)
        own = {launch.process.pid, *launch.find("mpirun")}
        addresses = {address.split(":")[0] for process, address in listening(own)}
        launch.send()
        self.assertEqual(launch.end(), 75, launch.error)
        self.assertEqual(addresses - {"0100007F", "00000000000000000000000001000000"}, {"01004D0A"})

    def test_a_stop_reaches_the_other_host(self):
        launch = self.launch(f"--program={RANKS}", "--", "wait")
        launch.read_until("ready", 2)
        launch.send()
        self.assertEqual(launch.end(), 75, launch.error)
        self.assertEqual(launch.output.count("saved"), 2)

    def test_nothing_lives_on_where_launch_was_killed(self):
        launch = self.launch(f"--program={RANKS}", "--", "deaf")
        launch.read_until("ready", 2)
        os.kill(launch.process.pid, signal.SIGKILL)
        wait_until(lambda: not launch.all_processes(), time_to_end(), "no process is left")
        launch.end()

    def test_a_host_that_fails_is_left_out(self):
        script = WHERE + "; raise SystemExit(3 if socket.gethostname() == 'first' else 0)"
        launch = self.launch("--max_restarts=1", "--min_ranks=1", f"--program={sys.executable}", "--", "-c", script,
                             hosts="--hosts=first:1,second:1")
        self.assertEqual(launch.end(), 0, launch.error)
        self.assertIn("[0] 0 second", launch.output)

    def test_a_training_over_both(self):
        train = ["train", "--device=cpu", "--model=resnet20", "--data_name=cifar10", "--synthetic", "--batch_size=4", "--num_batches=6",
                 "--variable_update=horovod", "--num_warmup_batches=0", "--display_every=1", "--deterministic",
                 "--rank_deadline=60"]
        launch = self.launch("--", *train, f"--train_dir={self.root / 'two'}")
        self.assertEqual(launch.end(), 0, launch.error)
        self.assertIn("model.ckpt-6", os.listdir(self.root / "two"))
        self.assertIn("exchange messages, not shared memory: a process is on another machine", launch.output + launch.error)


if __name__ == "__main__":
    unittest.main()
