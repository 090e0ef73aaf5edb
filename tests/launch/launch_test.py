#!/usr/bin/env python3
"""`trainyard launch` as a user runs it: output, ends, signals, restarts, and that nothing is left behind.

Usage: python3 tests/launch/launch_test.py PROGRAM (build/trainyard).
"""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from launched import LOOPBACK, Launch, left_over, listening, time_to_end, wait_until

program = os.path.abspath(sys.argv.pop(1))
here = pathlib.Path(__file__).resolve().parent
RANKS = here / "ranks.py"
MPI_PROGRAM = r"""
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char** words) {
  int rank = 0, size = 0, complete = 0;
  double one = 1, sum = 0;
  MPI_Request request;
  MPI_Init(&count, &words);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  printf("rank %d of %d: sum %g\n", rank, size, sum);
  if (rank == 0) printf("job %s\n", getenv("OMPI_MCA_ess_base_jobid"));
  fflush(stdout);
  if (count > 1 && strcmp(words[1], "die") == 0) {
    if (rank == 1) raise(SIGKILL);
    MPI_Iallreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
    for (int i = 0; i < 100 && !complete; ++i) {
      MPI_Test(&request, &complete, MPI_STATUS_IGNORE);
      usleep(10000);
    }
    printf("rank %d has waited long enough\n", rank);
    fflush(stdout);
    _exit(complete ? 4 : 3);
  }
  MPI_Finalize();
  return 0;
}
"""


class LaunchTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.launches = []

    def tearDown(self):
        for launch in self.launches:
            wait_until(lambda launch=launch: not launch.all_processes(), time_to_end(), "all its processes have ended")
            for stream in (launch.process.stdout, launch.process.stderr):
                stream.close()
        self.assertEqual(left_over(self.launches), set())
        self.folder.cleanup()

    def launch(self, *arguments, environment=None):
        self.launches.append(Launch(program, "launch", *arguments, environment=environment))
        return self.launches[-1]

    def ranks(self, count, *arguments, flags=(), **kwargs):
        return self.launch("-n", count, f"--program={RANKS}", *flags, "--", *arguments, **kwargs)


class Output(LaunchTest):
    def test_lines_are_whole_and_prefixed_and_logged(self):
        lines = 2000
        launch = self.ranks(3, "write", lines, flags=[f"--log_dir={self.root / 'logs'}"])
        self.assertEqual(launch.end(), 0, launch.error)
        for stream, text in ((1, launch.output), (2, launch.error)):
            seen = {rank: [] for rank in range(3)}
            for line in text.splitlines():
                if stream == 1 and line.endswith("] without a newline"):
                    continue
                found = re.fullmatch(rf"\[(\d)\] (rank (\d) stream {stream} line (\d+) x* end)", line)
                self.assertTrue(found, f"torn: {line!r}")
                self.assertEqual(found.group(1), found.group(3))
                seen[int(found.group(1))].append(int(found.group(4)))
            for rank in range(3):
                self.assertEqual(seen[rank], list(range(lines)), f"rank {rank} stream {stream}")
        self.assertEqual(launch.output.count("without a newline\n"), 3)
        for rank in range(3):
            log = (self.root / "logs" / f"rank-{rank}.log").read_text().splitlines()
            self.assertEqual(log[0], "launch: start 1 with 3 ranks")
            self.assertEqual(len(log), 2 * lines + 2)
            self.assertTrue(all(f"rank {rank} stream" in line for line in log[1:] if line != "without a newline"))

    def test_a_log_goes_on_behind_what_it_has(self):
        for _ in range(2):
            self.assertEqual(self.ranks(1, "codes", 0, flags=[f"--log_dir={self.root}"]).end(), 0)
        self.assertEqual((self.root / "rank-0.log").read_text(), "launch: start 1 with 1 ranks\nrank 0 of 1\n" * 2)

    def test_a_reader_that_goes_away_ends_everything(self):
        launch = self.ranks(2, "write", 100000)
        os.read(launch.process.stdout.fileno(), 100)
        launch.process.stdout.close()
        launch.process.stderr.close()
        self.assertNotEqual(launch.process.wait(300), 0)

    def test_trainyard_itself_is_what_is_launched(self):
        launch = self.launch("-n", 2, "--", "models", "lenet")
        self.assertEqual(launch.end(), 0, launch.error)
        alone = subprocess.run([program, "models", "lenet"], capture_output=True, text=True).stdout
        for rank in range(2):
            own = [line[4:] for line in launch.output.splitlines() if line.startswith(f"[{rank}] ")]
            self.assertEqual("\n".join(own) + "\n", alone)


class Ends(LaunchTest):
    def test_the_worst_code_is_the_launchs(self):
        for codes, worst in (((0, 0), 0), ((0, 75), 75), ((75, 3), 3), ((1, 2), 2)):
            launch = self.ranks(2, "codes", *codes)
            self.assertEqual(launch.end(), worst, launch.error)
        self.assertIn("rank 1 on", launch.error)
        self.assertIn("ended with code 2", launch.error)

    def test_a_program_that_is_not_there(self):
        launch = self.launch("-n", 1, "--program=/nowhere/program", "--max_restarts=3")
        self.assertEqual(launch.end(), 127)
        self.assertIn("could not be started", launch.error)
        self.assertNotIn("starting again", launch.error)

    def test_without_mpirun(self):
        launch = self.ranks(1, "codes", 0, environment={"PATH": str(self.root)})
        self.assertEqual(launch.end(), 2)
        self.assertIn("openmpi-bin", launch.error)

    def test_ranks_that_do_not_start_are_not_waited_for(self):
        mpirun = self.root / "mpirun"
        mpirun.write_text("#!/bin/sh\nexec sleep 600\n")
        mpirun.chmod(0o755)
        launch = self.ranks(2, "codes", 0, 0, flags=["--start_timeout=0.5"],
                            environment={"PATH": f"{self.root}:{os.environ['PATH']}"})
        self.assertNotEqual(launch.end(60), 0)
        for part in ("ranks have not started within 0.5 s", "rank 0, 1", "raise --start_timeout"):
            self.assertIn(part, launch.error)

    def test_survivors_have_their_time_and_no_more(self):
        launch = self.ranks(3, "fail", flags=["--failure_timeout=1"])
        self.assertEqual(launch.end(), 3, launch.error)
        self.assertIn("the others did not end within 1 s", launch.error)

    def test_survivors_of_a_dead_peer_can_speak(self):
        if shutil.which("mpicc") is None:
            self.skipTest("needs mpicc (Debian: libopenmpi-dev)")
        source, binary = self.root / "mpi.c", self.root / "mpi"
        source.write_text(MPI_PROGRAM)
        subprocess.run(["mpicc", "-o", binary, source], check=True)
        launch = self.launch("-n", 3, f"--program={binary}")
        self.assertEqual(launch.end(), 0, launch.error)
        for rank in range(3):
            self.assertIn(f"[{rank}] rank {rank} of 3: sum 3\n", launch.output)
        launch = self.launch("-n", 3, f"--program={binary}", "--", "die")
        self.assertEqual(launch.end(), 137, launch.error)
        self.assertIn("rank 1 on", launch.error)
        self.assertIn("was ended by SIGKILL", launch.error)
        for rank in (0, 2):
            self.assertIn(f"[{rank}] rank {rank} has waited long enough", launch.output)
            self.assertRegex(launch.error, f"rank {rank} on .* ended with code 3")
        # What MPI shares by memory has the number of the job in its name, and the dead rank removed nothing.
        job = re.search(r"job (\d+)", launch.output).group(1)
        self.assertEqual([path.name for path in pathlib.Path("/dev/shm").iterdir() if f"{int(job):08x}" in path.name], [])


class Signals(LaunchTest):
    def stop(self, number, flags=()):
        launch = self.ranks(2, "wait", flags=flags)
        launch.read_until("ready", 2)
        launch.send(number)
        return launch

    def test_all_ranks_stop_and_save(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            launch = self.stop(number)
            self.assertEqual(launch.end(), 75, launch.error)
            self.assertEqual(sorted(launch.output.splitlines()),
                             sorted([f"[{rank}] {text}" for rank in range(2) for text in (f"got {number.name}", "saved")]))

    def test_a_second_signal_ends_at_once(self):
        launch = self.ranks(2, "deaf")
        launch.read_until("ready", 2)
        launch.send()
        time.sleep(0.5)
        launch.send()
        self.assertEqual(launch.end(), 128 + signal.SIGTERM)

    def test_a_rank_that_does_not_listen_is_ended(self):
        launch = self.ranks(2, "deaf", flags=["--stop_timeout=1"])
        launch.read_until("ready", 2)
        launch.send()
        self.assertEqual(launch.end(), 137, launch.error)
        self.assertIn("not all ranks have stopped within 1 s", launch.error)

    def test_a_stop_before_the_start(self):
        launch = self.ranks(2, "wait")
        launch.wait_for(1, "mpirun")
        launch.send()
        self.assertEqual(launch.end(), 75, launch.error)
        self.assertEqual(launch.output, "")

    def test_a_signal_of_the_user_is_passed_on(self):
        launch = self.ranks(2, "wait")
        launch.read_until("ready", 2)
        launch.send(signal.SIGUSR2)
        launch.read_until("got SIGUSR2", 2)
        os.kill(launch.find("mpirun")[0], signal.SIGUSR2)
        launch.read_until("got SIGUSR2", 2)
        # The way to ask all ranks of mpirun for a stop: it kills nobody.
        os.kill(launch.find("mpirun")[0], signal.SIGUSR1)
        self.assertEqual(launch.end(), 75, launch.error)
        self.assertEqual(launch.output.count("got SIGUSR1"), 2)


class Killed(LaunchTest):
    """Whatever ends by SIGKILL, all others end with it, also ranks that hear no SIGTERM; tearDown looks."""

    def kill(self, *words):
        launch = self.ranks(2, "deaf")
        launch.read_until("ready", 2)
        os.kill(launch.find(*words)[0] if words else launch.process.pid, signal.SIGKILL)
        return launch

    def test_launch(self):
        launch = self.kill()
        wait_until(lambda: not launch.all_processes(), time_to_end(), "no process is left")
        launch.end()

    def test_the_keeper(self):
        launch = self.kill(os.path.basename(program), "launch-keeper")
        self.assertNotIn(launch.end(), (0, 75), launch.error)
        self.assertIn("the keeper of mpirun was ended by SIGKILL", launch.error)

    def test_launch_and_keeper_together(self):
        """Nothing is left that could clean up: the next launch does, and leaves alone what lives."""
        abandoned = self.ranks(2, "deaf")
        abandoned.read_until("ready", 2)
        living = self.ranks(1, "wait")
        living.read_until("ready", 1)
        for process in (*abandoned.find(os.path.basename(program), "launch-keeper"), abandoned.process.pid):
            os.kill(process, signal.SIGKILL)
        wait_until(lambda: not abandoned.all_processes(), time_to_end(), "no process is left")
        abandoned.end()
        left, used = left_over([abandoned]), left_over([living])
        self.assertEqual(len(left), 2, left)
        after = self.ranks(1, "codes", 0)
        self.assertEqual(after.end(), 0, after.error)
        self.assertEqual(left_over([abandoned]), set())
        for folder in left:
            self.assertIn(f"removed {folder}, which a launch that was killed has left", after.error)
        self.assertEqual(left_over([living]), used)
        self.assertEqual(after.error.count("removed "), 2, after.error)
        living.send()
        self.assertEqual(living.end(), 75, living.error)

    def test_mpirun(self):
        launch = self.kill("mpirun")
        self.assertNotIn(launch.end(), (0, 75), launch.error)
        self.assertIn("mpirun ended with code 137 before its ranks had", launch.error)

    def test_an_agent(self):
        launch = self.kill(os.path.basename(program), "launch-rank")
        self.assertNotIn(launch.end(), (0, 75), launch.error)
        self.assertIn("was lost", launch.error)


class Ports(LaunchTest):
    def test_listen_on_loopback_only(self):
        launch = self.ranks(2, "wait")
        seen = set()
        until = time.monotonic() + 60
        while not launch.find("python3", str(RANKS)) and time.monotonic() < until:
            seen |= listening(launch.all_processes())
        launch.read_until("ready", 2)
        seen |= listening(launch.all_processes())
        launch.send()
        self.assertEqual(launch.end(), 75, launch.error)
        self.assertTrue(any(process == launch.process.pid for process, _ in seen), "launch listens for its agents")
        self.assertGreater(len({process for process, _ in seen}), 1, "mpirun listens, too")
        for process, address in seen:
            self.assertIn(address.split(":")[0], LOOPBACK, f"process {process}")

    def test_a_network_of_this_machine_alone_needs_no_warning(self):
        launch = self.ranks(1, "wait", flags=("--network=127.0.0.0/8",))
        launch.read_until("ready", 1)
        launch.send()
        self.assertEqual(launch.end(), 75, launch.error)
        self.assertNotIn("warning", launch.error)

    def test_mpirun_alone_would_listen_for_everybody(self):
        """What the test above looks for is there without launch's settings."""
        mpirun = Launch("mpirun", "--oversubscribe", "-n", 1, "sleep", 100, environment={
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_oob_tcp_if_include": "lo"})
        mpirun.wait_for(1, "sleep")
        addresses = {address.split(":")[0] for _, address in listening(mpirun.all_processes())}
        mpirun.send()
        mpirun.end()
        self.assertIn("00000000", addresses)

    def test_strangers_are_refused(self):
        launch = self.ranks(2, "wait")
        port = int(wait_until(lambda: [address.split(":")[1] for _, address in listening([launch.process.pid])], 30,
                              "launch listens")[0], 16)
        number = lambda value: value.to_bytes(8, "little")
        text = lambda value: number(len(value)) + value
        frame = lambda kind, body: b"TYRD" + bytes([kind, 0, 0, 0]) + len(body).to_bytes(4, "little") + body
        hello = number(1) + text(b"a guess") + number(2) + number(0) + text(b"stranger")
        friends = []
        for message in (b"GET / HTTP/1.1\r\n\r\n", frame(1, hello), frame(5, number(0) + number(0) + text(b"")),
                        b"TYRD\1\0\0\0\xff\xff\xff\x7f", frame(1, hello[:-1])):
            friends.append(socket.create_connection(("127.0.0.1", port)))
            friends[-1].sendall(message)
        launch.read_until("ready", 2)
        for stranger in friends:
            stranger.settimeout(10)
            try:
                self.assertEqual(stranger.recv(1), b"")
            except ConnectionResetError:
                pass
            stranger.close()
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        launch.send()
        self.assertEqual(launch.end(), 75, launch.error)
        self.assertEqual(launch.error.count("warning: refused a connection"), 5, launch.error)
        self.assertIn("it does not know this launch's token", launch.error)
        self.assertIn("a message is too long: expected at most 1024 bytes", launch.error)


class Restarts(LaunchTest):
    def test_all_ranks_start_again(self):
        launch = self.ranks(3, "fail_once", self.root, 1, flags=["--max_restarts=2", f"--log_dir={self.root}"])
        self.assertEqual(launch.end(), 0, launch.error)
        self.assertEqual([launch.output.count(f"[{rank}] rank {rank} of 3") for rank in range(3)], [2, 2, 2])
        self.assertIn("launch: rank 1 on", launch.error)
        self.assertIn("starting again with 3 ranks, restart 1 of 2", launch.error)
        self.assertIn("launch: start 2 with 3 ranks", (self.root / "rank-2.log").read_text())

    def test_fewer_ranks_go_on(self):
        launch = self.ranks(3, "fail_once", self.root, 0, flags=["--max_restarts=1", "--min_ranks=2"])
        self.assertEqual(launch.end(), 0, launch.error)
        self.assertEqual([launch.output.count(f"[{rank}] rank {rank} of 2") for rank in range(3)], [1, 1, 0])

    def test_restarts_come_to_an_end(self):
        launch = self.ranks(2, "codes", 0, 5, flags=["--max_restarts=2"])
        self.assertEqual(launch.end(), 5)
        self.assertEqual(launch.error.count("starting again"), 2)
        launch = self.ranks(2, "codes", 0, 5, flags=["--max_restarts=9", "--min_ranks=1"])
        self.assertEqual(launch.end(), 0, "rank 1, which fails, is no more")
        launch = self.ranks(2, "codes", 5, 5, flags=["--max_restarts=9", "--min_ranks=1"])
        self.assertEqual(launch.end(), 5)
        self.assertIn("fewer than 1 ranks are left", launch.error)

    def test_what_another_start_would_not_help(self):
        for codes in ((0, 2), (0, 75), (65, 0), (1, 2), (65, 134)):
            launch = self.ranks(2, "codes", *codes, flags=["--max_restarts=2"])
            self.assertEqual(launch.end(), max(codes))
            self.assertNotIn("starting again", launch.error)
            if 75 not in codes:
                self.assertIn("it would fail in the same way again, so there is no restart", launch.error)

    def test_missing_data_are_not_looked_for_again(self):
        launch = self.launch("-n", 2, "--max_restarts=2", "--", "train", "--device=cpu", "--model=resnet20", "--batch_size=4",
                             "--variable_update=horovod", "--num_batches=2", f"--data_dir={self.root / 'nowhere'}")
        self.assertEqual(launch.end(), 65, launch.error)
        self.assertIn("data directory does not exist", launch.error)
        self.assertNotIn("starting again", launch.error)

    def test_each_restart_waits_longer(self):
        began = time.monotonic()
        launch = self.ranks(1, "codes", 5, flags=["--max_restarts=2"])
        self.assertEqual(launch.end(), 5)
        self.assertGreater(time.monotonic() - began, 3)
        self.assertIn("starting again with 1 ranks, restart 1 of 2, in 1 s", launch.error)
        self.assertIn("starting again with 1 ranks, restart 2 of 2, in 2 s", launch.error)

    def test_a_stop_ends_the_wait(self):
        launch = self.ranks(1, "codes", 5, flags=["--max_restarts=9"])
        seen = b""
        while b"restart 4 of 9, in 8 s" not in seen:
            piece = os.read(launch.process.stderr.fileno(), 1 << 16)
            self.assertTrue(piece, seen)
            seen += piece
        asked = time.monotonic()
        launch.send()
        self.assertEqual(launch.end(), 75, launch.error)
        self.assertLess(time.monotonic() - asked, 5)
        self.assertIn("asked to stop before the restart", launch.error)


if __name__ == "__main__":
    unittest.main()
