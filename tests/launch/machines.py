"""A few machines that are network namespaces of this one, on a switch whose cables have a bandwidth, and `trainyard launch` over them.

As root only, and where the system allows it: call namespaces.enter() first, which makes the first machine. The cables' queues are token
buckets (tc-tbf(8)), one in each direction.
"""
import os
import pathlib
import stat
import subprocess
import tempfile

NETWORK = "10.77.0.0/24"


def address(machine):
    return f"10.77.0.{machine + 1}"


def hosts(count):
    """/etc/hosts of such machines, for enter()."""
    return "127.0.0.1 localhost\n" + "".join(f"{address(m)} machine{m}\n" for m in range(count))


class Machines:
    """`count` machines with a cable each, of `rate` in tc's words ("100mbit") in each direction. Use it in a `with` statement."""

    def __init__(self, count, rate):
        self.count, self.rate, self.others = count, rate, []

    def __enter__(self):
        self._own = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._own.name)
        try:
            self._run("ip", "link", "add", "switch", "type", "bridge")
            self._run("ip", "link", "set", "switch", "up")
            for machine in range(self.count):
                self._add(machine)
        except BaseException:
            self.__exit__()
            raise
        shell = self.folder / "remote_shell"  # in the place of ssh: HOST COMMAND...
        cases = "".join(f"{address(m + 1)}) pid={process.pid};;\n" for m, process in enumerate(self.others))
        shell.write_text(f'#!/bin/sh\ncase "$1" in\n{cases}esac\nshift\nexec nsenter -t "$pid" --net --uts sh -c "$*"\n')
        shell.chmod(shell.stat().st_mode | stat.S_IXUSR)
        return self

    def __exit__(self, *_):
        for process in self.others:
            process.kill()
            process.wait()
            process.stdout.close()
        for machine in range(self.count):
            subprocess.run(["ip", "link", "del", f"port{machine}"], capture_output=True)
        subprocess.run(["ip", "link", "del", "switch"], capture_output=True)
        self._own.cleanup()

    def sent_bytes(self):
        """What the first machine has sent so far, as the kernel counts it: with headers."""
        shown = subprocess.run(["ip", "-s", "link", "show", "cable0"], capture_output=True, text=True, check=True).stdout
        return int(shown.split("TX:")[1].split("\n")[1].split()[0])

    def launch(self, program, ranks, arguments, **options):
        """Starts a process a machine on the first `ranks` machines. `options` are those of subprocess.Popen."""
        where = ",".join(f"{address(m)}:1" for m in range(ranks))
        environment = {**os.environ, "OMPI_MCA_plm_rsh_agent": str(self.folder / "remote_shell"), "OMP_NUM_THREADS": "1",
                       "XDG_CACHE_HOME": str(self.folder)}
        return subprocess.Popen([program, "launch", "-n", str(ranks), f"--hosts={where}", f"--network={NETWORK}", "--", *arguments],
                                env=environment, text=True, **options)

    def _add(self, machine):
        cable, port = f"cable{machine}", f"port{machine}"
        self._run("ip", "link", "add", cable, "type", "veth", "peer", "name", port)
        self._run("ip", "link", "set", port, "master", "switch", "up")
        inside = []
        if machine > 0:
            other = subprocess.Popen(["unshare", "--net", "--uts", "sh", "-c", f"hostname machine{machine}; echo; exec sleep 100000"],
                                     stdout=subprocess.PIPE)
            self.others.append(other)
            other.stdout.readline()
            self._run("ip", "link", "set", cable, "netns", str(other.pid))
            inside = ["nsenter", "-t", str(other.pid), "--net", "--uts"]
            self._run(*inside, "ip", "link", "set", "lo", "up")
        self._run(*inside, "ip", "addr", "add", f"{address(machine)}/24", "dev", cable)
        self._run(*inside, "ip", "link", "set", cable, "up")
        for end, where in ((cable, inside), (port, [])):
            self._run(*where, "tc", "qdisc", "add", "dev", end, "root", "tbf", "rate", self.rate, "burst", "64kb", "latency", "200ms")

    @staticmethod
    def _run(*words):
        subprocess.run(words, check=True)
