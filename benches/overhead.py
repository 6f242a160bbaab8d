"""What a decision costs: Envoy alone, with an ext_proc that does nothing, with Kinference on load alone and in full.

`make bench-overhead` builds what it starts. Writes target/bench/overhead.json and .md. The same bodies go through each arm
in turn, closed loop over a fixed number of connections to an origin that answers at once; medians over the repeats.
CPU is user and system time of the processor and of its Envoy. Options: see --help.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from overhead_arms import DOCUMENTS, Arm, Bench, run

sys.path.insert(0, str(run.HERE))
from services import exit_on_signals  # noqa: E402

OUT = run.TARGET.parent / "bench"
TICKS = os.sysconf("SC_CLK_TCK")
SIZES, CONNECTIONS = [2, 16, 128], [1, 16, 64]
EVENTS = 500
DUPLEX, BUFFERED = "duplex-static.yaml", "buffered-fail-open.yaml"

# name: (configuration of Envoy, options of the arm)
ARMS = {
    "envoy": (DUPLEX, {}),
    "noop": (DUPLEX, {"kind": "noop"}),
    "load_only": (DUPLEX, {"kind": "load_only"}),
    "full": (DUPLEX, {"kind": "full"}),
}
WAYS = {
    "noop": ARMS["noop"],
    "noop_unix": (DUPLEX, {"kind": "noop", "unix": True}),
    "noop_buffered": (BUFFERED, {"kind": "noop"}),
    "full": ARMS["full"],
    "full_buffered": (BUFFERED, {"kind": "full"}),
}
# A filter that lets the processor change what is sent to it: Envoy does so only where no body mode is full duplex.
ALLOWED = "failure_mode_allow: true\n"
OVERRIDE = {ALLOWED: ALLOWED + "                      allow_mode_override: true\n"}


def watching(how):
    """An arm that watches that much of responses."""
    return (BUFFERED, {"kind": "full", "more": f'ext_proc.observe = "{how}"', "edits": OVERRIDE})


STREAMS = {
    "envoy": ARMS["envoy"],
    "noop": WAYS["noop_buffered"],
    **{f"observe_{how}": watching(how) for how in ("full", "sampled", "headers")},
}


def cpu(process):
    """Seconds of CPU time of a process so far."""
    if process is None:
        return 0.0
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def measure(arm, options):
    """One run through an arm."""
    before = cpu(arm.processor), cpu(arm.proxy)
    saw = arm.load(**options)
    # The processor hears of the last ends a moment after the client does.
    time.sleep(0.05)
    per_1000 = 1e6 / saw["requests"]
    return {
        "p50_ms": saw["p50_ms"],
        "p99_ms": saw["p99_ms"],
        "rps": saw["requests"] / saw["seconds"],
        "cpu_ms_per_1000": (cpu(arm.processor) - before[0]) * per_1000,
        "envoy_cpu_ms_per_1000": (cpu(arm.proxy) - before[1]) * per_1000,
    }


def rounds(arms, cell, repeats):
    """Every arm in turn, so many times; one row for each arm."""
    runs = {arm.name: [] for arm in arms}
    for repeat in range(repeats):
        # Who is first changes, for what drifts.
        for arm in arms[repeat % len(arms) :] + arms[: repeat % len(arms)]:
            runs[arm.name].append(measure(arm, cell))
    rows = []
    for name, seen in runs.items():
        row = {"arm": name, "body_kb": cell["body_kb"], "connections": cell["connections"]}
        if cell.get("documents") == 0:
            row["prompts"] = "unlike"
        if "events" in cell:
            row["events"] = cell["events"]
        row |= {key: round(statistics.median(one[key] for one in seen), 3) for key in seen[0]}
        row["spread"] = {key: [round(f(one[key] for one in seen), 3) for f in (min, max)] for key in seen[0]}
        print(json.dumps({key: value for key, value in row.items() if key != "spread"}), file=sys.stderr, flush=True)
        rows.append(row)
    return rows


def table(rows):
    """The rows as markdown: what each arm adds to Envoy alone, and its share of what the one that does nothing does."""
    head = "| Arm | Body, KB | Connections | p50, ms | p99, ms | p50 over Envoy alone | Requests/s | of no-op | CPU, ms per 1,000 | of no-op | Envoy's |"
    lines = [head, "|---" + "|---:" * 10 + "|"]
    key = lambda row: tuple(row.get(name) for name in ("body_kb", "connections", "prompts", "events"))  # noqa: E731
    named = {(row["arm"], key(row)): row for row in rows}
    for row in rows:
        plain, noop = named.get(("envoy", key(row))), named.get(("noop", key(row)))
        of = lambda what: f"{row[what] / noop[what]:.2f}" if noop and noop[what] and row[what] else ""  # noqa: E731
        name = row["arm"] + (", prompts unlike" if row.get("prompts") else "")
        name += f", {row['events']} events" if row.get("events") else ""
        cells = [name, row["body_kb"], row["connections"], f"{row['p50_ms']:.2f}", f"{row['p99_ms']:.2f}"]
        cells += [f"{row['p50_ms'] - plain['p50_ms']:.2f}" if plain else "", f"{row['rps']:.0f}", of("rps")]
        cells += [f"{row['cpu_ms_per_1000']:.0f}", of("cpu_ms_per_1000"), f"{row['envoy_cpu_ms_per_1000']:.0f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def arguments():
    """What is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="16 KB and 16 connections alone, shorter runs")
    parser.add_argument("--ways", action="store_true", help="a Unix socket and BUFFERED, instead of the four arms")
    parser.add_argument("--streams", action="store_true", help="answers of 500 events, by what of them is watched")
    parser.add_argument("--seconds", type=float, help="of one run")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--arms", help="only these, with commas between")
    parser.add_argument("--cells", help="KBxCONNECTIONS, with commas between, instead of all")
    return parser.parse_args()


def cells_of(args):
    """What is to be measured."""
    seconds = args.seconds or (2 if args.quick else 3)
    if args.streams:
        seconds = args.seconds or (4 if args.quick else 8)
        return [{"body_kb": 2, "connections": 16, "seconds": seconds, "events": EVENTS}]
    pairs = [(kb, n) for kb in SIZES for n in CONNECTIONS]
    if args.quick or args.ways:
        pairs = [(16, 16)] if args.quick else [(2, 1), (16, 16)]
    if args.cells:
        pairs = [tuple(map(int, pair.split("x"))) for pair in args.cells.split(",")]
    return [{"body_kb": kb, "connections": n, "seconds": seconds, "documents": DOCUMENTS} for kb, n in pairs]


def main():
    args = arguments()
    exit_on_signals()
    chosen = STREAMS if args.streams else WAYS if args.ways else ARMS
    if args.arms:
        chosen = {name: (STREAMS | WAYS | ARMS)[name] for name in args.arms.split(",")}
    name = "overhead_streams" if args.streams else "overhead_ways" if args.ways else "overhead"
    with tempfile.TemporaryDirectory(prefix="kinference-bench-") as temporary:
        bench = Bench(Path(temporary))
        try:
            bench.fill(SIZES)
            arms = [Arm(bench, arm, source, **options) for arm, (source, options) in chosen.items()]
            for arm in arms:
                arm.load(body_kb=16, connections=4, seconds=1)  # warms up
            rows = []
            for cell in cells_of(args):
                rows += rounds(arms, cell, args.repeats)
            for arm in arms:
                arm.check()
            if chosen is ARMS:
                # The worst case: no two prompts begin alike, so that every token is new.
                unlike = {"body_kb": 16, "connections": 16, "seconds": args.seconds or 2, "documents": 0}
                rows += rounds([arm for arm in arms if arm.name in ("noop", "full")], unlike, args.repeats)
        finally:
            bench.stop()
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n")
    (OUT / f"{name}.md").write_text(table(rows))
    print(table(rows), end="")


if __name__ == "__main__":
    main()
