"""The Markdown of a comparison of exchanges."""

import statistics

import exchange_sides as sides
from page import BUSY_LOAD, number, table
from rows import KEEP_MEMORY, OURS

MARKERS = ("<!-- made by benchmarks/peers/exchange: begin -->", "<!-- made by benchmarks/peers/exchange: end -->")
SIZES = {65536: "64 KiB", 2**20: "1 MiB", 2**24: "16 MiB", 100 * 2**20: "100 MiB"}
UPDATE = "update"  # the row's name
# What is wanted of two ranks.
AGAINST_PEERS = {65536: 1.5, 100 * 2**20: 1.5}
MOST_OF_COPY = {100 * 2**20: 1.25}
MOST_SECONDS = {65536: 10e-6}
AGAINST_ONE_PROCESS, AGAINST_TWO_RANKS = 1.0, 0.85
MOST_COPIES_OF_UPDATE = 0.6  # more than the optimizer alone
MOST_WAITING = {"resnet50": 2}  # percent of the time of two ranks


class Results:
    """runs: [{"round", "row", "side", and "error" or what a run gave}] (exchange)"""

    def __init__(self, head, runs):
        self.head, self.runs = head, runs

    def of(self, row, side):
        return [run for run in self.runs if run["row"] == row and run["side"] == side and "error" not in run]

    def seconds(self, row, side, size):
        """the median of the rounds, or None"""
        values = [run["seconds"][str(size)] for run in self.of(row, side) if str(size) in run["seconds"]]
        return statistics.median(values) if values else None

    def update(self, operation):
        values = [run["update_seconds"][operation] for run in self.of(UPDATE, OURS) if operation in run["update_seconds"]]
        return statistics.median(values) if values else None

    def training(self, model, side, key="images_per_sec"):
        values = [run[key] for run in self.of(model, side) if key in run]
        return statistics.median(values) if values else None

    def ranks(self):
        return sorted({int(run["row"].split()[0]) for run in self.runs if run["row"].endswith(" ranks")})

    def best_peer(self, row, size):
        """(seconds, name), or None"""
        return min(((seconds, peer) for peer in sides.ALL_REDUCE_PEERS if (seconds := self.seconds(row, peer, size)) is not None), default=None)

    def failures(self):
        """{side: error} of the sides that failed, each once"""
        return {run["side"]: run["error"] for run in self.runs if "error" in run}

    def rounds(self, row):
        return len({run["round"] for run in self.runs if run["row"] == row})


def ratio(above, below):
    return above / below if above is not None and below else None


def time_text(seconds):
    if seconds is None:
        return "–"
    return f"{1e6 * seconds:,.1f} us" if seconds < 1e-3 else f"{1e3 * seconds:,.2f} ms"


def marked(text, missed):
    return text + (" (missed)" if missed else "")


def at_least(value, wanted):
    """the cell of a ratio; wanted: None where nothing is"""
    if wanted is None or value is None:
        return number(value, 2)
    return marked(f"{value:.2f}, wanted {wanted:g}", value < wanted)


def all_reduce_table(results, ranks):
    row, lines = f"{ranks} ranks", []
    for size, name in SIZES.items():
        ours, copy, best = results.seconds(row, OURS, size), results.seconds(row, sides.COPY, size), results.best_peer(row, size)
        if ours is None and best is None:
            continue
        two = ranks == 2

        def cell(peer):
            text = time_text(results.seconds(row, peer, size))
            return f"**{text}**" if best is not None and peer == best[1] else text

        of_copy, most = ratio(ours, copy), MOST_OF_COPY.get(size) if two else None
        lines.append([name, marked(time_text(ours), two and ours is not None and ours > MOST_SECONDS.get(size, ours)),
                      *map(cell, sides.ALL_REDUCE_PEERS), at_least(ratio(best[0] if best else None, ours), AGAINST_PEERS.get(size) if two else None),
                      time_text(copy),
                      number(of_copy, 2) if most is None or of_copy is None else marked(f"{of_copy:.2f}, at most {most:g}", of_copy > most)])
    return table(["tensor", OURS, *sides.ALL_REDUCE_PEERS, "best peer's time by ours", "a copy", "our time by the copy's"], lines)


def update_table(results):
    names = ["copy", "optimizer", "reduce, then update", "reduce and update", "checked in between"]
    copy, optimizer, *_ = times = [results.update(name) for name in names]

    def copies(seconds):
        return (seconds - optimizer) / copy

    if copy is None or optimizer is None or times[3] is None:
        return []
    fused = copies(times[3])
    return table([*names, "the fused one's copies more than the optimizer"],
                 [[*map(time_text, times), marked(f"{fused:.2f}, at most {MOST_COPIES_OF_UPDATE:g}", fused > MOST_COPIES_OF_UPDATE)]])


def training_table(results):
    lines = []
    for training in sides.TRAININGS:
        speeds = [results.training(training.model, side) for side in sides.TRAINING_SIDES]
        ours, ddp, one, four = speeds
        if ours is None:
            continue
        waiting, most = results.training(training.model, OURS, "waiting_percent"), MOST_WAITING.get(training.model)
        lines.append([f"{training.model}, {training.batch} a rank", *map(number, speeds), at_least(ratio(ours, ddp), training.against_ddp),
                      at_least(ratio(ours, one), AGAINST_ONE_PROCESS), at_least(ratio(four, ours), AGAINST_TWO_RANKS),
                      "–" if waiting is None else marked(f"{waiting:g} %", most is not None and waiting >= most),
                      str(results.rounds(training.model))])
    return table(["model, batch", f"{OURS}, 2 ranks, images/s", "PyTorch DDP, 2 ranks", f"{OURS}, one process of 2 threads", f"{OURS}, 4 ranks",
                  "2 ranks by DDP", "by one process", "4 ranks by 2", "waiting of 2 ranks", "rounds"], lines)


def text(head, runs):
    """The part of the page between its markers."""
    results, machine = Results(head, runs), head["machine"]
    lines = [f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}; {head['date']}, {head['commit']}, "
             f"load {head['load']:.1f} before it began; " + ", ".join(f"{name} {version}" for name, version in head["versions"].items())
             + ". Medians of whole runs in turns, one thread a rank.", ""]
    if head["load"] > BUSY_LOAD:
        lines += [f"**The machine was not idle**: load average {head['load']:.1f} before it began.", ""]
    for ranks in results.ranks():
        lines += [f"All-reduce of fp32 by {ranks} ranks of one machine, sum in place, {results.rounds(f'{ranks} ranks')} rounds; the best peer is bold:", "",
                  *all_reduce_table(results, ranks)]
        if ranks > machine["cores"]:
            lines += [f"{', '.join(sides.SPINNING)} spin where ranks outnumber cores, and are not measured there.", ""]
    updates = update_table(results)
    if updates:
        lines += ["Reduction of ResNet-50's gradients and update of its parameters with momentum by 2 ranks, "
                  "`--optimizer=tf_momentum` of `trainyard bench allreduce`:", "", *updates]
    trainings = training_table(results)
    if len(trainings) > 3:
        lines += ["Training on synthetic images, fp32, momentum:", "", *trainings]
    lines += [f"- {side} failed: `{error}`" for side, error in results.failures().items()]
    if lines[-1]:
        lines.append("")
    lines += ["Times of peers are the lower of two: the median of single all-reduces, each after a barrier and of the slowest rank, and the mean of many "
              "in a row. Ours are the former. A copy is of as many bytes, by one thread a rank at the same time. gloo has the version of PyTorch; DDP's "
              "memory is kept (" + " ".join(f"`{name}={value}`" for name, value in KEEP_MEMORY.items()) + ")."]
    return "\n".join(lines)
