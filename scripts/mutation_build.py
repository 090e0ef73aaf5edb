"""The build folder's commands and the test programs, for scripts/mutate and scripts/mutate_room."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import resource
import shlex
import shutil
import signal
import subprocess
import threading
import time

SUITE = re.compile(r"^\s*(?:TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P)\(\s*(\w+),", re.M)
# The last one ends processes by their numbers: a mistake may end others of the machine.
NOT_MUTATED = re.compile(r"(_test|_bench|_fuzz)\.cpp$|/testing/|/launch/process\.cpp$")
# A warning is no test. The library's checks of bounds stand for the builds with sanitizers, which run the same tests.
CHEAP = ["-w", "-D_GLIBCXX_ASSERTIONS"]
SESSION_PRIORITY = pathlib.Path("/proc/self/autogroup")  # "/autogroup-25 nice 0"; Linux shares processors between sessions
# Of sources that the build compiles together, which have no kernels. The second contracts to FMA, as the build does.
SHARED_OPTIMIZE = ["-O1", "-fexpensive-optimizations"]
MEMORY = 24 << 30  # bytes of addresses: a mistake may ask for all that there is


class Problem(Exception):
    pass


class CompilerTimeout(Exception):
    """A compilation took longer than it may: whether the text compiles is not known."""


def command_output(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise Problem(f"{shlex.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


@dataclasses.dataclass
class TestRun:
    failed: str | None  # the test that failed, "crash" where none was running
    seconds: float
    how: str = ""


class Programs:
    """Runs test programs in processes of their own, which end with this one."""

    def __init__(self, root):
        self.root = root
        self.lock = threading.Lock()
        self.running = set()
        self.stopped = False
        priority = SESSION_PRIORITY.read_text().split() if SESSION_PRIORITY.exists() else []
        # Only lowered: to raise it takes rights that the user may not have.
        self.session_nice = priority[-1] if len(priority) == 3 and int(priority[-1]) > 0 else None

    def stop(self):
        with self.lock:
            self.stopped = True
            for process in self.running:
                kill_group(process)

    def limit(self):
        """In the process: its memory, and the priority that this session has, which a new session would lose."""
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        if self.session_nice is not None:
            with contextlib.suppress(OSError):  # the kernel takes few changes a second
                SESSION_PRIORITY.write_text(self.session_nice)

    def run(self, command, timeout, log, environment=None):
        """(exit code or None after the timeout, seconds)"""
        with open(log, "w") as output:
            with self.lock:
                if self.stopped:
                    raise KeyboardInterrupt
                process = subprocess.Popen(command, cwd=self.root, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                           start_new_session=True, env=environment,
                                           preexec_fn=self.limit)
                self.running.add(process)
            start = time.monotonic()
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                kill_group(process)
                process.wait()
                with self.lock:
                    self.running.discard(process)
        if self.stopped:  # it was ended by stop(): its code says nothing about what it did
            raise KeyboardInterrupt
        return code, time.monotonic() - start

    def run_tests(self, program, test_filter, timeout, folder, fail_fast=True, **variables):
        log, scratch = folder / "tests.log", folder / "tmp"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True, exist_ok=True)  # a child of the run before may still write into it
        environment = {**os.environ, "TMPDIR": str(scratch), "OMP_WAIT_POLICY": "passive", **variables}
        command = [str(program), f"--gtest_filter={test_filter}", *(["--gtest_fail_fast"] if fail_fast else [])]
        code, seconds = self.run(command, timeout, log, environment)
        text = log.read_text(errors="replace")
        shutil.rmtree(scratch, ignore_errors=True)
        if code == 0:
            return TestRun(None, seconds)
        failed = re.search(r"^\[  FAILED  \] (\S+\.[^\s,]+)", text, re.M)
        suite = re.search(r"^\[  FAILED  \] (\S+): SetUpTestSuite or TearDownTestSuite", text, re.M)
        begun = re.findall(r"^\[ RUN      \] (\S+)", text, re.M)
        name = begun[-1] if begun else "crash"
        if code == 1 and (failed or suite):
            name = failed.group(1) if failed else f"{suite.group(1)}.*"
        return TestRun(name, seconds, "hangs" if code is None else "fails" if code == 1 else f"ends with {code}")


def kill_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Build:
    """What the build folder knows: how sources are compiled, together with which, and how test programs are linked."""

    def __init__(self, root, folder):
        self.root, self.folder = root, folder
        commands = folder / "compile_commands.json"
        if not commands.exists():
            raise Problem(f"{commands} is missing: configure first, cmake --preset release")
        self.commands = {}  # source -> [(object, command, sources of its chunk)]
        for entry in json.loads(commands.read_text()):
            words = shlex.split(entry["command"])
            if "-o" not in words:
                continue
            target, file = words[words.index("-o") + 1], entry["file"]
            chunk = [file]
            if "/Unity/" in file:
                chunk = re.findall(r'^#include "([^"]+)"', pathlib.Path(file).read_text(), re.M)
            for source in chunk:
                self.commands.setdefault(os.path.realpath(source), []).append((target, words, chunk))
        self.links = {}

    def make(self, *targets):
        command_output("ninja", "-C", str(self.folder), *targets)

    def link(self, target):
        """The words of the command that links a target, as objects relative to the build folder."""
        if target not in self.links:
            command = command_output("ninja", "-C", str(self.folder), "-t", "commands", target).strip().splitlines()[-1]
            command = re.sub(r"^: && | && :$", "", command)
            words = [word if not word.endswith(".o") else os.path.normpath(word) for word in shlex.split(command)]
            self.links[target] = words
        return list(self.links[target])


def with_options(words, options):
    """A build's command with options of the compiler behind its own."""
    output = words.index("-o")
    return [*words[:output], *options, *words[output:]]


def compile_words(words, source, target, folder, header=None):
    """The build's command for another source: without its warnings, with another precompiled header than the build's, or none."""
    words = list(words)
    while words and not re.search(r"(c\+\+|g\+\+|clang\+\+|gcc|cc)(-\d+)?$", words[0]):  # ccache and what times it
        words.pop(0)
    kept, skip = [], False
    for word in words[:words.index("-o")]:
        if skip or word in ("-Winvalid-pch", "-fpch-preprocess", "-Werror"):
            skip = False
        elif word == "-include":
            skip = True
        else:
            kept.append(word)
    kept[1:1] = ["-include", str(header)] if header else []
    return [*kept, *CHEAP, f"-ffile-prefix-map={folder}=.", "-c", str(source), "-o", str(target)]


def precompile(words, header, run):
    """What the build has in front of its combined sources, into header.gch, with SHARED_OPTIMIZE. False where it has nothing.

    words: the build's command for such a source. run: of a command; raises where it fails
    """
    if "-include" not in words:
        return False
    shutil.copy(words[words.index("-include") + 1], header)
    command = compile_words(with_options(words, SHARED_OPTIMIZE), header, f"{header}.gch", header.parent)
    command[command.index("-c"):command.index("-c")] = ["-x", "c++-header"]
    run(command)
    return True


def suites_about(root, room, file):
    """(suites of the tests in a source's folder that are called as it is, suites of those that include its header or lie there)"""
    path = root / file
    header = f'"{file.removesuffix(".cpp")}.h"'
    own, near = set(), set()
    for test in sorted((root / "trainyard" / room).rglob("*_test.cpp")):
        text = test.read_text()
        in_folder = test.parent == path.parent
        if in_folder and (test.stem == f"{path.stem}_test" or test.stem.startswith(f"{path.stem}_")):
            own.update(SUITE.findall(text))
        elif in_folder or header in text:
            near.update(SUITE.findall(text))
    return own, near - own


def processor_seconds():
    """Of all processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def interrupt(*_):
    raise KeyboardInterrupt
