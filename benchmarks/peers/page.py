"""The Markdown of the results, and its place in the page.

The page's tables are also where results of other processors are kept: a line is replaced by the one with the same first cells, and
the others stay.
"""

import statistics

from conditions import architecture
from rows import AUTOTUNED, COMPILED, DALI, KEEP_MEMORY, LEVELS, ONE_THREAD, OURS, PYTORCH, ROWS, TENSORFLOW, UNPREPARED
from running import read

BEGIN, END = "<!-- made by make bench: begin -->", "<!-- made by make bench: end -->"
BUSY_LOAD = 0.5
WANTED_MEAN = 1.5
TRAINING_PEERS, DATA_PEERS = [PYTORCH, COMPILED, AUTOTUNED, TENSORFLOW], [TENSORFLOW, DALI, PYTORCH]
# {title: cells that name a line}
KEYS = {"Training": 3, "Data": 2}


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

    def conditions(self):
        return conditions(self.rounds(), self.head)


def conditions(rounds, head):
    """The last cells of a line."""
    idle = "yes" if head["load"] <= BUSY_LOAD else f"no, load {head['load']:.1f}"
    return [str(rounds), f"{head['date']}, {head['commit']}", idle]


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


def quotient(above, below):
    return above / below if above is not None and below else None


def table(header, lines):
    return ["| " + " | ".join(cells) + " |" for cells in [header, ["---"] * len(header), *lines]] + [""]


def speeds(result, peers):
    """Ours, the peers', the ratio and what is wanted."""
    best, ours = result.best_peer(), result.median(OURS)

    def cell(peer):
        speed = result.median(peer)
        if speed is None:
            return "failed" if peer in result.failures() else "–"
        return f"**{number(speed)}**" if peer == best[1] else number(speed)

    return [number(ours) if ours is not None else "failed", *map(cell, peers), number(result.ratio(), 2),
            f"{result.row.floor:.2f}" + (" (missed)" if result.missed() else "")]


def training_line(result):
    row, peers_memory = result.row, result.median(PYTORCH, "peak_rss_mib")
    memory = result.median(OURS, "peak_rss_mib")
    return [f"{row.ours}, {row.batch}", architecture(result.head["machine"]), row.level, *speeds(result, TRAINING_PEERS),
            number(quotient(result.median(OURS), result.median(ONE_THREAD)), 2), number(memory, 0), number(peers_memory, 0),
            number(quotient(memory, peers_memory), 2), number(result.median(OURS, "first_step_done_s"), 1),
            number(result.median(UNPREPARED, "first_step_done_s"), 1), number(result.median(PYTORCH, "first_step_done_s"), 1),
            ", ".join(version for name, version in result.head["versions"].items() if name in ("PyTorch", "TensorFlow") and version != "not installed"), *result.conditions()]


def data_line(result):
    return [f"{result.row.ours}, {result.row.batch}", architecture(result.head["machine"]), *speeds(result, DATA_PEERS),
            number(result.median(OURS, "peak_rss_mib"), 0), number(result.median(OURS, "first_step_done_s"), 1), *result.conditions()]


def lines_of(page, markers=(BEGIN, END), keys=None):
    """{title: {cells that name a line: its cells}} of the tables between the page's markers; keys: as KEYS"""
    keys = keys or KEYS
    kept, title = {name: {} for name in keys}, None
    for line in between(page, markers)[1].splitlines():
        if line.startswith("### "):
            title = line[4:]
        if title in keys and line.startswith("| ") and not line.startswith(("| ---", "| model", "| case")):
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            kept[title][tuple(cells[:keys[title]])] = cells
    return kept


def geometric_means(lines):
    """Sentences about the nine networks of each processor and level that has them all."""
    nine = [f"{row.ours}, {row.batch}" for row in ROWS.values() if row.group == "training" and row.level == "fp32"]
    ratio = 3 + 1 + len(TRAINING_PEERS)
    said = []
    for processor, level in dict.fromkeys((cells[1], cells[2]) for cells in lines.values()):
        ratios = [float(cells[ratio]) for cells in lines.values() if cells[0] in nine and (cells[1], cells[2]) == (processor, level) and cells[ratio] != "–"]
        if ratios:
            said.append(f"{processor}, {level}: {statistics.geometric_mean(ratios):.2f} over {len(ratios)} of the nine, the least {min(ratios):.2f}")
    return said


def order(key):
    """By network as in rows.py, then processor, then level; others last."""
    networks = list(dict.fromkeys(f"{row.ours}, {row.batch}" for row in ROWS.values()))
    levels = list(LEVELS)
    return (networks.index(key[0]) if key[0] in networks else len(networks), key[1], levels.index(key[2]) if len(key) > 2 and key[2] in levels else 0)


def text(results, versions, kept):
    """The part of the page between its markers; results: not empty. `kept` are lines_of() the page, and get the new ones."""
    for result in results:
        is_data = result.row.group == "data"
        cells = data_line(result) if is_data else training_line(result)
        title = "Data" if is_data else "Training"
        kept[title][tuple(cells[:KEYS[title]])] = cells
    machine = results[0].head["machine"]
    lines = ["## Against PyTorch, TensorFlow and DALI", "",
             "Images a second, medians of whole runs in turns, synthetic images, after two warm-up steps; the best peer is bold. Peers keep their memory: "
             + " ".join(f"`{name}={value}`" for name, value in KEEP_MEMORY.items())
             + ". A level limits all programs alike: avx2 and avx512 are fp32 without the higher instructions, bf16 has all of the processor's. First steps "
             "count from the start of the process: with kernel choices of an earlier run, with none, PyTorch's. Last measured: "
             f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}; "
             + ", ".join(f"{name} {version}" for name, version in versions.items() if version != "not installed") + ".", ""]
    headers = {
        "Training": ["model, batch", "processor", "level", OURS, *TRAINING_PEERS, "ratio to the best", "wanted", "two threads by one", "peak memory, MiB",
                     "PyTorch's", "ratio", "first step, s", "without choices", "PyTorch's", "PyTorch, TensorFlow", "rounds", "date, commit", "idle"],
        "Data": ["case, batch", "processor", OURS, *DATA_PEERS, "ratio to the best", "wanted", "peak memory, MiB", "first batch, s", "rounds",
                 "date, commit", "idle"]}
    for title, header in headers.items():
        if kept[title]:
            lines += [f"### {title}", "", *table(header, [kept[title][key] for key in sorted(kept[title], key=order)])]
        if title == "Training":
            means = geometric_means(kept[title])
            lines += [f"Geometric means of the ratios, wanted {WANTED_MEAN}: " + "; ".join(means) + ".", ""] if means else []
    for result in results:
        lines += [f"- {result.row.name}: {side} failed: `{error}`" for side, error in result.failures().items()]
    if lines[-1]:
        lines.append("")
    lines.append("```")
    for result in results:
        lines += list(dict.fromkeys(result.head["commands"].values()))
    return "\n".join([*lines, "```"])


def between(page, markers=(BEGIN, END)):
    """(what is in front of the markers, between them, behind them) of the file `page`"""
    before, begin, rest = page.read_text().partition(markers[0])
    made, end, after = rest.partition(markers[1])
    if not begin or not end:
        raise SystemExit(f"{page} lacks the lines {markers[0]} and {markers[1]}; put them where the table belongs")
    return before, made, after


def put_into(page, made, markers=(BEGIN, END)):
    """Replaces what the file `page` has between its markers."""
    before, _, after = between(page, markers)
    page.write_text(f"{before}{markers[0]}\n{made}\n{markers[1]}{after}")
