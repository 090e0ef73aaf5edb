"""The Markdown of the results, and its place in the page."""

import statistics

from rows import KEEP_MEMORY, OURS, PYTORCH, ROWS
from running import read

BEGIN, END = "<!-- made by make bench: begin -->", "<!-- made by make bench: end -->"
FIRST_STEP_AFTER_S = 2  # beside one step's time: what starting may take
BUSY_LOAD = 0.5


class RowResult:
    def __init__(self, row, head, results):
        self.row, self.head, self.results = row, head, results

    def median(self, side, key="images_per_sec"):
        values = [result[key] for (_, name), result in self.results.items() if name == side and key in result]
        return statistics.median(values) if values else None

    def best_peer(self):
        """(images a second, its name); None where no peer gave a result"""
        return max(((speed, peer) for peer in self.row.peers() if (speed := self.median(peer)) is not None), default=None)

    def ratio(self):
        ours, best = self.median(OURS), self.best_peer()
        return ours / best[0] if ours is not None and best is not None else None

    def missed(self):
        ratio = self.ratio()
        return ratio is None or ratio < self.row.floor

    def failures(self):
        """{side: error} of sides that failed in any round"""
        return {side: result["error"] for (_, side), result in self.results.items() if "error" in result}

    def rounds(self):
        return max(turn for turn, _ in self.results)


def collect(folder, machine, versions):
    """Results of all rows that were measured on this machine with these versions (of peers that were there then)."""
    found = []
    for row in ROWS.values():
        head, results = read(folder / f"{row.name}.jsonl")
        if head is not None and results and head["machine"] == machine and head["versions"].items() <= versions.items():
            found.append(RowResult(row, head, results))
    return found


def number(value, digits=None):
    if value is None:
        return "–"
    return f"{value:,.{digits if digits is not None else (2 if value < 20 else 1 if value < 100 else 0)}f}"


def table(header, lines):
    return ["| " + " | ".join(cells) + " |" for cells in [header, ["---"] * len(header), *lines]] + [""]


def title(row):
    return f"{row.ours}, {row.batch}, {row.dtype}"


def speed_table(results):
    peers = list(dict.fromkeys(peer for result in results for peer in result.row.peers()))
    lines = []
    for result in results:
        best, ratio = result.best_peer(), result.ratio()

        def cell(peer):
            if peer not in result.row.peers():
                return "–"
            speed = result.median(peer)
            if speed is None:
                return "failed" if peer in result.failures() else "–"
            return f"**{number(speed)}**" if peer == best[1] else number(speed)

        ours = result.median(OURS)
        lines.append([title(result.row), number(ours) if ours is not None else "failed", *map(cell, peers), number(ratio, 2),
                      f"{result.row.floor:.2f}" + (" (missed)" if result.missed() else "")])
    return table(["model, batch, dtype", f"{OURS}, images/s", *peers, "ratio to the best", "floor"], lines)


def start_table(results):
    lines = []
    for result in results:
        ours, step = OURS, result.median(OURS)
        limit = FIRST_STEP_AFTER_S + result.row.batch / step if step is not None else None
        lines.append([title(result.row)]
                     + [number(result.median(side, "peak_rss_mib"), 0) for side in (ours, PYTORCH)]
                     + [number(result.median(ours, "first_step_done_s"), 1), number(limit, 1),
                        number(result.median(PYTORCH, "first_step_done_s"), 1), str(result.rounds()),
                        f"{result.head['date']}, {result.head['commit']}"])
    return table(["model, batch, dtype", f"peak memory, MiB: {OURS}", "PyTorch", f"first step done after s: {OURS}", "at most", "PyTorch",
                  "rounds", "measured, commit"], lines)


def text(results, versions):
    """The part of the page between its markers; results: not empty."""
    machine = results[0].head["machine"]
    lines = ["## Against PyTorch, TensorFlow and DALI", "",
             f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}; "
             + ", ".join(f"{name} {version}" for name, version in versions.items())
             + ". Medians of whole runs in turns, synthetic images, after two warm-up steps; the best peer is bold.", ""]
    load = max(result.head["load"] for result in results)
    if load > BUSY_LOAD:
        lines += [f"**The machine was not idle**: load average {load:.1f} before it began.", ""]
    for group in dict.fromkeys(result.row.group for result in results):
        chosen = [result for result in results if result.row.group == group]
        lines += [f"### {group.capitalize()}", "", *speed_table(chosen), *start_table(chosen)]
    for result in results:
        lines += [f"- {title(result.row)}: {side} failed: `{error}`" for side, error in result.failures().items()]
    if lines[-1]:
        lines.append("")
    lines += ["\"Kept memory\" is " + " ".join(f"`{name}={value}`" for name, value in KEEP_MEMORY.items())
              + ". First steps count from the start of the process, ours with kernel choices of an earlier run.", "", "```"]
    for result in results:
        lines += list(dict.fromkeys(result.head["commands"].values()))
    return "\n".join([*lines, "```"])


def put_into(page, made, markers=(BEGIN, END)):
    """Replaces what stands between the markers of the file `page`."""
    whole = page.read_text()
    before, begin, rest = whole.partition(markers[0])
    _, end, after = rest.partition(markers[1])
    if not begin or not end:
        raise SystemExit(f"{page} lacks the lines {markers[0]} and {markers[1]}; put them where the table belongs")
    page.write_text(f"{before}{begin}\n{made}\n{end}{after}")
