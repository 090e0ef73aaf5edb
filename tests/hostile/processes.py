"""Hostile cases of whole processes: the program is given what a machine or a stranger may give it, under limits of memory,
descriptors and file sizes. Interrupted runs and damaged folders are tests/torture's.
"""
import collections
import contextlib
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import zlib

SECONDS = 120  # of a process, on a machine that others use, too
REFUSED = (1, 2)  # exit codes of errors that the program reports
# A sanitizer's finding ends the program with one of them, too.
FINDING = re.compile(r"(Address|Leak|Thread|UndefinedBehavior)Sanitizer|: runtime error: ")


class Fault(Exception):
    pass


def check(holds, message):
    if not holds:
        raise Fault(message)


class Case:
    def __init__(self, build, draw, folder):
        self.program, self.draw, self.folder = build / "trainyard", draw, folder

    def run(self, *arguments, **how):
        """The exit code and all that was said."""
        try:
            done = subprocess.run([self.program, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  stdin=how.pop("stdin", subprocess.DEVNULL), timeout=SECONDS, cwd=self.folder, **how)
        except subprocess.TimeoutExpired as error:
            raise Fault(f"{arguments}: hung") from error
        said = done.stdout.decode(errors="replace")
        check(not FINDING.search(said), f"{arguments}: {said[:4000]}")
        return done.returncode, said

    def refused(self, *arguments, says="", **how):
        code, said = self.run(*arguments, **how)
        check(code in REFUSED, f"{arguments} ended with {code}, not with an error: {said[-400:]}")
        check(said.strip() != "" and "terminate called" not in said, f"{arguments} says nothing of use: {said[-400:]}")
        check(says in said, f"{arguments} does not say '{says}': {said[-400:]}")
        return said

    def train(self, source="--synthetic"):
        return ["train", "--model=trivial", "--batch_size=2", "--num_batches=2", "--device=cpu", "--num_intra_threads=1",
                f"--train_dir={self.folder / 'run'}", source]


def write_png(path, width=8, height=8):
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    rows = (b"\0" + bytes(3 * width)) * height
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
                     + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def not_a_file(case):
    """A directory, a pipe, a socket, a dangling link or a circle of links where a file or folder is expected."""
    place = case.folder / "place"
    kind = case.draw.choice(["directory", "pipe", "socket", "dangling", "circle", "missing", "empty"])
    with contextlib.ExitStack() as stack:
        if kind == "directory":
            place.mkdir()
        elif kind == "pipe":
            os.mkfifo(place)
        elif kind == "socket":
            listening = stack.enter_context(socket.socket(socket.AF_UNIX))
            os.chdir(case.folder)  # a socket's path is short
            listening.bind("place")
        elif kind == "dangling":
            place.symlink_to("nowhere")
        elif kind == "circle":
            place.symlink_to("place")
        elif kind == "empty":
            place.touch()
        what = case.draw.choice(["weights", "config", "image", "data"])
        if what == "weights":
            write_png(case.folder / "image.png")
            case.refused("predict", f"--weights={place}", "--model=lenet", case.folder / "image.png")
        elif what == "config":
            if kind == "empty":  # no flags
                return f"{kind} as {what}"
            case.refused("train", f"--config={place}")
        elif what == "image":
            code, said = case.run(*case.train())
            check(code == 0, f"the training for it ended with {code}: {said[-400:]}")
            case.refused("predict", f"--train_dir={case.folder / 'run'}", place, says="place")
        else:
            case.refused(*case.train(f"--data_dir={place}"))
    return f"{kind} as {what}"


def few_descriptors(case):
    """Too few descriptors for a run: an error that is reported, or a run that needs no more."""
    most = case.draw.randint(3, 40)
    code, said = case.run(*case.train(), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)))
    # Below a dozen the loader itself may have none for a library.
    check(code == 0 or (code in REFUSED and said.strip()) or (code == 127 and "shared" in said),
          f"with {most} descriptors: {code}: {said[-400:]}")
    return "few descriptors, " + ("enough" if code == 0 else "reported")


def small_files(case):
    """No file may grow beyond a size: the run says why it ends."""
    most = case.draw.randint(0, 20000)

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    code, said = case.run(*case.train(), preexec_fn=limit)
    check(code == 0 or (code in REFUSED and said.strip()), f"with files of {most} bytes: {code}: {said[-400:]}")
    return "small files, " + ("enough" if code == 0 else "reported")


def closed_pipe(case):
    """What reads the output has gone."""
    read, write = os.pipe()
    os.close(read)
    command = case.draw.choice([["help"], ["models"], ["train", "--help"], case.train()])
    child = subprocess.Popen([case.program, *command], stdout=write, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    os.close(write)
    try:
        said = child.communicate(timeout=SECONDS)[1].decode(errors="replace")
    except subprocess.TimeoutExpired as error:
        child.kill()
        raise Fault(f"{command}: hung with its output closed") from error
    check(child.returncode in (0, *REFUSED, -signal.SIGPIPE, 128 + signal.SIGPIPE) and not FINDING.search(said),
          f"{command} with its output closed: {child.returncode}: {said[-400:]}")
    return "closed pipe"


def environment(case):
    """Variables of the environment that are noise."""
    noise = "".join(chr(case.draw.randrange(1, 256)) for _ in range(case.draw.randint(0, 60)))
    name = case.draw.choice(["TRAINYARD_MAX_CPU_ISA", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "RANK", "WORLD_SIZE",
                             "KMP_AFFINITY", "TMPDIR", "HOME", "XDG_CACHE_HOME", "LANG", "TERM", "COLUMNS"])
    code, said = case.run(*case.train(), env={**os.environ, name: noise})
    check(code == 0 or (code in REFUSED and said.strip()), f"{name}={noise!r}: {code}: {said[-400:]}")
    return "environment, " + ("taken" if code == 0 else "reported")


def arguments(case):
    """Flags that are noise, or of commands that do not exist."""
    command = case.draw.choice(["train", "eval", "predict", "models", "data", "bench", "export", "quantize", "tune", "report",
                                "doctor", "".join(case.draw.choices("abcdefgh-=", k=6))])
    letters = "abcdefghijklmnopqrstuvwxyz_-=.,:/%{}\\\"' 0123456789\t\n\u00fc\u20ac"
    noise = ["".join(case.draw.choices(letters, k=case.draw.randint(0, 40))) for _ in range(case.draw.randint(1, 4))]
    noise.append("--no_such_flag_" + "".join(case.draw.choices("abc", k=8)))
    case.refused(command, *noise)
    return "arguments"


def damaged_image(case):
    """A folder with an image that is damaged: training says which, or leaves it out where that is asked for."""
    data = case.folder / "data"
    for subset in ("train", "val"):
        for name in ("a", "b"):
            for i in range(2):
                write_png(data / subset / name / f"{i}.png")
    bad = data / "train" / "a" / "1.png"
    content = bytearray(bad.read_bytes())
    how = case.draw.choice(["cut", "bit", "noise", "empty"])
    if how == "cut":
        content = content[:case.draw.randrange(8, len(content) - 12)]
    elif how == "bit":
        content[case.draw.randrange(8, len(content) - 12)] ^= 1 << case.draw.randrange(8)
    elif how == "noise":
        content = bytearray(case.draw.randbytes(len(content)))
    else:
        content = bytearray()
    bad.write_bytes(content)
    said = case.refused("data", "verify", data)
    check("1.png" in said, f"an image that is {how}: not named: {said[-400:]}")
    return f"damaged image, {how}"


KINDS = (not_a_file, few_descriptors, small_files, closed_pipe, environment, arguments, damaged_image)


def run(build, seed, number):
    """Runs one case. Returns the lines of faults, and what was drawn."""
    draw = random.Random(f"{seed} {number}")
    kind = KINDS[number % len(KINDS)]
    here = os.getcwd()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hostile-"))
    try:
        return [], collections.Counter([kind(Case(build, draw, folder))])
    except Fault as fault:
        return [f"case processes {number}: {kind.__name__}: {fault}"], collections.Counter()
    finally:
        os.chdir(here)
        shutil.rmtree(folder, ignore_errors=True)
