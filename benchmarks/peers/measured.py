"""What every peer's script measures and prints, so that all of them mean the same."""

import json
import os
import resource
import time

WARM_UP_STEPS = 2


def seconds_since_start():
    """Of this process, the interpreter's own start included; to 10 ms."""
    with open("/proc/self/stat") as stat:
        # The name, in parentheses, may hold spaces; the start, in ticks since boot, is field 22 of the whole line.
        started = int(stat.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def measure(batch, steps, step):
    """Calls step(), which does one whole step and reads its result, WARM_UP_STEPS times and then `steps` times, and
    prints one JSON line: {"images_per_sec": over all timed steps, "peak_rss_mib", "first_step_done_s": since the start}"""
    step()
    first_step_done = seconds_since_start()
    for _ in range(WARM_UP_STEPS - 1):
        step()
    start = time.monotonic()
    for _ in range(steps):
        step()
    seconds = time.monotonic() - start
    print(json.dumps({"images_per_sec": batch * steps / seconds,
                      "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                      "first_step_done_s": first_step_done}), flush=True)
