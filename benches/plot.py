"""Draws the curves of a routing benchmark: median TTFT over load, one picture a fleet and workload.

Usage: plot.py [routing.json]   writes routing-FLEET-WORKLOAD.svg beside it. Needs only python3.
Both axes are logarithmic; load is in units of the rate at which the bars are read.
"""

import json
import math
import sys
from pathlib import Path

WIDTH, HEIGHT, LEFT, BOTTOM, RIGHT, TOP = 720, 420, 70, 50, 190, 30
COLOURS = {
    "random": "#9a9a9a",
    "round_robin": "#b08968",
    "least_request": "#d08c00",
    "load_only": "#7a5cbf",
    "kinference": "#0b6fb8",
    "kinference_calibrated": "#0a8f4d",
    "kinference_fitted": "#5db87f",
    "oracle": "#c0392b",
}


def scale(values, low, high):
    """A function from a value to its place on a logarithmic axis."""
    first, last = math.log(min(values)), math.log(max(values))
    span = (last - first) or 1.0
    return lambda value: low + (math.log(value) - first) / span * (high - low)


def ticks(values):
    """Round numbers within the range: 1, 2, 5 of each decade."""
    low, high = min(values), max(values)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [m * 10**d for d in decades for m in (1, 2, 5) if low <= m * 10**d <= high]


def text(x, y, words, anchor="middle", colour="#222"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def axes(loads, medians, x, y, title):
    out = [text(LEFT, TOP - 10, title, "start")]
    for value in ticks(medians):
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>')
        out.append(text(LEFT - 6, y(value) + 4, f"{value:g}", "end"))
    for value in sorted(set(loads)):
        out.append(text(x(value), HEIGHT - BOTTOM + 18, f"{value:g}"))
    out.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "load (1: where the bars are read)"))
    out.append(text(LEFT, HEIGHT - 12, "median TTFT, ms", "end"))
    return out


def picture(title, rows):
    """One SVG."""
    loads = [row["load"] for row in rows]
    medians = [row["ttft_p50_ms"] for row in rows]
    x = scale(loads, LEFT, WIDTH - RIGHT)
    y = scale(medians, HEIGHT - BOTTOM, TOP)
    out = axes(loads, medians, x, y, title)
    for place, arm in enumerate(dict.fromkeys(row["arm"] for row in rows)):
        colour = COLOURS.get(arm, "#222")
        mine = sorted((row["load"], row["ttft_p50_ms"]) for row in rows if row["arm"] == arm)
        points = " ".join(f"{x(load):.1f},{y(median):.1f}" for load, median in mine)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out.append(text(WIDTH - RIGHT + 12, TOP + 18 * place, arm, "start", colour))
    body = "\n".join(out)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>\n{body}\n</svg>\n'
    )


def main():
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "target/bench/routing.json")
    rows = [row for row in json.loads(path.read_text()) if row["mode"] == "sim"]
    for fleet, workload in dict.fromkeys((row["fleet"], row["workload"]) for row in rows):
        mine = [row for row in rows if (row["fleet"], row["workload"]) == (fleet, workload)]
        if len({row["load"] for row in mine}) > 1:
            out = path.with_name(f"routing-{fleet}-{workload}.svg")
            out.write_text(picture(f"{fleet}, {workload}, simulated", mine))
            print(out)


if __name__ == "__main__":
    main()
