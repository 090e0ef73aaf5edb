"""Charts over the number of workers, as SVG."""
import math
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

COLOURS = ["#1f5fbf", "#d9650b", "#2b8a3e", "#862e9c", "#c92a2a", "#0b7285", "#5c4a1f", "#e64980", "#495057", "#868e96"]
WIDTH, HEIGHT, LEFT, TOP, GAP, BELOW = 300, 220, 48, 64, 60, 34
ROW = 20  # of the legend


@dataclass
class Line:
    name: str
    points: list  # (workers, value)


@dataclass
class Chart:
    title: str
    lines: list
    marks: list = field(default_factory=list)  # (workers, value, name of the line, or None) that were measured
    most: float = 0  # the end of the axis; 0: the largest value

    def svg(self, left):
        counts = [x for line in self.lines for x, _ in line.points]
        most = self.most or max(point[1] for points in [*(line.points for line in self.lines), self.marks] for point in points)
        low, high = math.log2(min(counts)), math.log2(max(counts))

        def place(x, y):
            return left + (math.log2(x) - low) / (high - low) * WIDTH, TOP + HEIGHT - y / most * HEIGHT

        out = [f'<text x="{left}" y="{TOP - 12}" class="panel">{escape(self.title)}</text>']
        for i in range(5):
            y = TOP + HEIGHT - i / 4 * HEIGHT
            out.append(f'<path d="M{left} {y:.1f}h{WIDTH}" class="grid"/><text x="{left - 6}" y="{y + 4:.1f}" class="tick" '
                       f'text-anchor="end">{i / 4 * most:.3g}</text>')
        for count in sorted(set(counts)):
            x, _ = place(count, 0)
            out.append(f'<text x="{x:.1f}" y="{TOP + HEIGHT + 16}" class="tick" text-anchor="middle">{count}</text>')
        for line, colour in zip(self.lines, COLOURS):
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in line.points))
            out.append(f'<polyline points="{points}" stroke="{colour}" class="line"/>')
        colours = {line.name: colour for line, colour in zip(self.lines, COLOURS)}
        for workers, value, name in self.marks:
            x, y = place(workers, value)
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" stroke="{colours.get(name, "#111")}" class="mark"/>')
        return out


def drawing(title, charts):
    """Charts side by side, which have the same lines, and one legend."""
    names = [line.name for line in charts[0].lines]
    columns = 5
    width = LEFT + len(charts) * (WIDTH + GAP)
    height = TOP + HEIGHT + BELOW + ROW * math.ceil(len(names) / columns) + 8
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
           "<style>text{font-family:sans-serif;fill:#333}.title{font-size:17px;font-weight:bold}.panel{font-size:14px}"
           ".tick{font-size:11px;fill:#666}.name{font-size:13px;font-weight:bold}.grid{stroke:#e4e4e4;fill:none}"
           ".line{fill:none;stroke-width:2;stroke-linejoin:round}.mark{fill:none;stroke-width:2}</style>",
           '<rect width="100%" height="100%" fill="white"/>', f'<text x="{LEFT}" y="26" class="title">{escape(title)}</text>']
    for i, chart in enumerate(charts):
        out += chart.svg(LEFT + i * (WIDTH + GAP))
    for i, (name, colour) in enumerate(zip(names, COLOURS)):
        x, y = LEFT + i % columns * (width - LEFT) // columns, TOP + HEIGHT + BELOW + 14 + ROW * (i // columns)
        out.append(f'<text x="{x}" y="{y}" class="name" style="fill:{colour}">{escape(name)}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"
