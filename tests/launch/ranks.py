#!/usr/bin/env python3
"""A rank for the tests of `trainyard launch`, which needs no MPI: ranks.py WHAT [ARGUMENT...]."""
import os
import pathlib
import signal
import sys
import time

rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
size = int(os.environ["OMPI_COMM_WORLD_SIZE"])


def say(text):
    os.write(1, f"{text}\n".encode())  # a signal's handler may call it within another call, which print() does not bear


def write():
    """Many lines to both streams, each in pieces."""
    for number in range(int(sys.argv[2])):
        for stream in (1, 2):
            line = f"rank {rank} stream {stream} line {number} " + "x" * (number % 300) + " end\n"
            cut = number % len(line)
            os.write(stream, line[:cut].encode())
            os.write(stream, line[cut:].encode())
    os.write(1, b"without a newline")


def codes():
    """Ends with the code of its rank: codes 0 3 75."""
    say(f"rank {rank} of {size}")
    sys.exit(int(sys.argv[2 + rank]))


def wait():
    """Until a signal: says which, and ends with 75, but for SIGUSR2."""
    def stop(number, frame):
        say(f"got {signal.Signals(number).name}")
        if number != signal.SIGUSR2:
            time.sleep(1.5)  # longer than mpirun waits
            say("saved")
            sys.exit(75)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, stop)
    say("ready")
    while True:
        time.sleep(0.05)


def deaf():
    """Until SIGKILL, with a child that would live on."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
    else:
        say("ready")
    while True:
        time.sleep(1)


def fail_once():
    """The rank that is named fails at the first start; the folder remembers."""
    done = pathlib.Path(sys.argv[2]) / "failed"
    say(f"rank {rank} of {size}")
    if rank == int(sys.argv[3]) and not done.exists():
        done.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    while not done.exists():
        time.sleep(0.05)


def fail():
    """Rank 1 fails; the others wait for ever."""
    if rank == 1:
        sys.exit(3)
    time.sleep(1000)


{"write": write, "codes": codes, "wait": wait, "deaf": deaf, "fail_once": fail_once, "fail": fail}[sys.argv[1]]()
