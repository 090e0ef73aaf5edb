"""Runs the sides of a row in turns and keeps every result in the row's file as it comes.

The file has JSON lines. The first says what was measured: {"row", "commit", "machine", "versions", "commands", "date",
"load"}; each of the others is one run: {"round", "side", "images_per_sec", "peak_rss_mib", "first_step_done_s"}, or
{"round", "side", "error"}.
"""

import json
import os
import re
import subprocess
import tempfile
import threading
import time

from rows import ONE_THREAD, OURS, UNPREPARED

FIRST_STEP = re.compile(r"1\timages/sec:")
FIRST_BATCH = re.compile(r"first batch after ([0-9.]+) s")
TOTAL = re.compile(r"total images/sec: *([0-9.]+)")
LONGEST_RUN_S = 1800
# A run measures kernels for some seconds and says this where it leaves the rest to the next.
MEASURES_MORE = "are measured by the next run"
MOST_MEASURING_RUNS = 6
# What has to be the same for a file to be continued.
CONDITIONS = ("commit", "machine", "versions", "commands")


class Failed(Exception):
    """A run that gave no result; the text is the line of what it said that tells why."""


def stop(process):
    """Ends it; what starts processes of its own, as mpirun does, can end those before."""
    process.terminate()
    time.sleep(5)
    if process.returncode is None:
        process.kill()


def reason(lines):
    """the last line with an error's name, as mpirun writes a frame of its own after it; without one, the last with words"""
    said = [line.strip() for line in lines if re.search("[a-z]", line, re.IGNORECASE)]
    return next((line for line in reversed(said) if re.search("error|invalid", line, re.IGNORECASE)), said[-1] if said else "said nothing")


def run(command, environment=None, watch_for=None, errors_too=False, longest_s=LONGEST_RUN_S):
    """(standard output, peak resident MiB, seconds from the start to the first line that matches `watch_for` or None);
    with `errors_too`, standard error is in the output"""
    seen, lines = None, []
    with tempfile.TemporaryFile("w+") as errors:
        start = time.monotonic()
        try:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT if errors_too else errors, text=True,
                                       env={**os.environ, **(environment or {})})
        except OSError as error:
            raise Failed(str(error)) from error
        timer = threading.Timer(longest_s, stop, [process])
        timer.start()
        try:
            for line in process.stdout:
                if watch_for and seen is None and watch_for.match(line):
                    seen = time.monotonic() - start
                lines.append(line)
            _, status, usage = os.wait4(process.pid, 0)  # the only one that tells the memory of one child
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            timer.cancel()
            if process.returncode is None:  # interrupted
                process.kill()
            process.stdout.close()
        if process.returncode != 0:
            errors.seek(0)
            raise Failed(f"{reason([*lines, *errors])} (exit status {process.returncode})")
    return "".join(lines), usage.ru_maxrss / 1024, seen


def run_peer(command, environment, longest_s=LONGEST_RUN_S):
    for line in reversed(run(command, environment, longest_s=longest_s)[0].splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    raise Failed("printed no result")


def first_step_of(row, program, environment):
    return run(row.our_command(program, first_step_only=True), environment, watch_for=FIRST_STEP)[2]


def measure_kernels(command, environment):
    """Runs the command until all kernels that it chooses are measured and kept."""
    for _ in range(MOST_MEASURING_RUNS):
        if MEASURES_MORE not in run(command, environment, errors_too=True)[0]:
            return


def run_ours(row, program):
    environment = row.our_environment()
    output, memory, _ = run(row.our_command(program), environment)
    total = TOTAL.findall(output)
    first_batch = FIRST_BATCH.search(output)  # of bench data, which says it itself
    first_step = float(first_batch[1]) if first_batch else first_step_of(row, program, environment)
    if not total or first_step is None:
        raise Failed("printed no images/sec")
    return {"images_per_sec": float(total[-1]), "peak_rss_mib": memory, "first_step_done_s": first_step}


def run_one_thread(row, program):
    environment = row.our_environment()
    measure_kernels(row.our_command(program, first_step_only=True, threads=1), environment)
    total = TOTAL.findall(run(row.our_command(program, threads=1), environment)[0])
    if not total:
        raise Failed("printed no images/sec")
    return {"images_per_sec": float(total[-1])}


def run_unprepared(row, program):
    with tempfile.TemporaryDirectory() as cache:
        first_step = first_step_of(row, program, {**row.our_environment(), "XDG_CACHE_HOME": cache})
    if first_step is None:
        raise Failed("made no step")
    return {"images_per_sec": row.batch / first_step, "first_step_done_s": first_step}


def read(path):
    """(first line, {(round, side): last result}) of a row's file; (None, {}) where there is none"""
    if not path.exists():
        return None, {}
    lines = []
    for text in path.read_text().splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:  # the line during which an earlier run was interrupted
            break
    return (lines[0], {(line["round"], line["side"]): line for line in lines[1:]}) if lines else (None, {})


def measure_row(row, path, head, rounds, sides, once=()):
    """sides: {name: function that measures it once}. Runs what `path` lacks; a side that failed is tried again. Those of `once`
    are measured in the first round alone."""
    old, results = read(path)
    if old is None or any(old[name] != head[name] for name in CONDITIONS):
        if old is not None:
            print(f"{row.name}: {path} was measured under other conditions; starting over", flush=True)
        path.write_text(json.dumps(head) + "\n")
        results = {}
    else:  # whole lines only
        path.write_text("".join(json.dumps(line) + "\n" for line in [old, *results.values()]))
    for turn in range(1, rounds + 1):
        names = [name for name in sides if turn == 1 or name not in once]
        # Each round begins with another side, so that none always follows the same one.
        first = (turn - 1) % len(names)
        for name in names[first:] + names[:first]:
            if "images_per_sec" in results.get((turn, name), {}):
                continue
            try:
                result = sides[name]()
                print(f"{row.name}, round {turn}: {name} {result['images_per_sec']:.2f} images/s", flush=True)
            except Failed as failure:
                result = {"error": str(failure)}
                print(f"{row.name}, round {turn}: {name} failed: {failure}", flush=True)
            with open(path, "a") as file:
                file.write(json.dumps({"round": turn, "side": name, **result}) + "\n")


def our_sides(row, program):
    """{name: function that measures it once}. Kernel choices are measured once a machine and kept: the runs that make them do not count."""
    ready = []

    def side():
        if not ready:
            measure_kernels(row.our_command(program, first_step_only=True), row.our_environment())
            ready.append(True)
        return run_ours(row, program)

    own = {ONE_THREAD: run_one_thread, UNPREPARED: run_unprepared}
    return {OURS: side, **{name: lambda name=name: own[name](row, program) for name in row.own_sides()}}
