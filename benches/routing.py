"""The routing benchmark in real time: the same requests, over sockets, through each router before three vllm-sim engines.

Every run has a fresh fleet and a fresh router, and repeats are interleaved. Needs the release build that `make bench-routing`
makes. Results go into target/bench/routing.json (mode "real") and target/bench/routing-real.md. All times are the engines'.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import ROOT, arms, fleet, results  # first: it makes the others importable

import peers
from services import Services, die_with_parent, exit_on_signals

TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
# Turns of a conversation, and the lengths in tokens: those of the simulation. One engine's cache holds 28 of the 40 prefixes, the fleet's all.
WORKLOADS = {
    "control": (1, {"prompt-tokens": 4096, "prompt-tokens-max": 16384, "output-tokens": 128}),
    "shared_prefix": (1, {"prefixes": 40, "prefix-tokens": 8000, "suffix-tokens": 256, "output-tokens": 128}),
    "multi_turn": (6, {"turns": 6, "first-tokens": 1600, "turn-tokens": 512, "think-ms": 8000, "output-tokens": 128}),
}
# Random routing's median TTFT in the published benchmark: loads are compared where it is the same.
PUBLISHED_MS = {"control": 6900, "shared_prefix": 6900, "multi_turn": 1700}
SEED = 1


def play(args, dir, workload, arm, seed):
    """One run; its figures."""
    dir.mkdir(parents=True)
    shutil.copytree(ROOT / "tests" / "fixtures" / "tokenizer", dir / "models" / fleet.MODEL)
    services = Services(dir)
    try:
        engines = fleet.start(services, args.bin / "vllm-sim", dir / "models", args.speedup, seed)
        url, more = arms.start(arm, services, dir, engines, args.bin / "kinference", args.speedup)
        records = dir / "records.jsonl"
        turns, shape = WORKLOADS[workload]
        command = [args.client, "--url", url, "--model", fleet.MODEL, "--workload", workload]
        command += ["--tokenizer", dir / "models" / fleet.MODEL / "tokenizer.json", "--rate", args.rates[workload]]
        command += ["--sessions", args.requests // turns, "--seed", seed, "--speedup", args.speedup, "--out", records]
        command += [part for key, value in shape.items() for part in (f"--{key}", value)] + more
        parent = os.getpid()
        started = time.monotonic()
        done = subprocess.run([str(part) for part in command], preexec_fn=lambda: die_with_parent(signal.SIGKILL, parent))
        if done.returncode != 0:
            sys.exit(f"the client failed (exit {done.returncode})")
        services.check()
        lag, took = fleet.lag(engines), time.monotonic() - started
        kept = [json.loads(line) for line in records.read_text().splitlines()]
        figures = results.summary(kept, args.objective_ms)
        figures.update(results.path(figures, fleet.mean_ttft_ms(engines), args.speedup))
        return {**figures, "lag_s": lag, "wall_s": took, "late": lag > fleet.LAG_SHARE * took}
    finally:
        services.stop()


def order(names, repeat):
    """The arms of a repeat: each begins with another, so that none always runs first."""
    turn = repeat % len(names)
    return [*names[turn:], *names[:turn]]


def identity(args, workload, arm):
    """What a row is about."""
    named = {"fleet": fleet.FLEET, "workload": workload, "arm": arm, "mode": "real", "rate_rps": args.rates[workload]}
    how = {"speedup": args.speedup, "requests": args.requests, "shape": WORKLOADS[workload][1], "objective_ms": args.objective_ms, "seed": SEED}
    return {**named, **how, "peer": arm in peers.PEERS}


def measure(args, dir):
    """All runs; the rows."""
    runs = {(workload, arm): [] for workload in args.workload for arm in args.arm}
    missing = {}
    for repeat in range(args.repeats):
        for workload in args.workload:
            for arm in order(args.arm, repeat):
                if arm in missing:
                    continue
                try:
                    run = play(args, dir / f"{workload}-{arm}-{repeat}", workload, arm, SEED + repeat)
                except arms.Unavailable as why:
                    missing[arm] = str(why)
                    print(f"{arm}: {why}", file=sys.stderr)
                    continue
                runs[workload, arm].append(run)
                print(f"{repeat + 1}/{args.repeats} {workload:<14} {arm:<22} {brief(run)}", file=sys.stderr, flush=True)
    rows = []
    for (workload, arm), made in runs.items():
        about = identity(args, workload, arm)
        rows.append(results.absent(about, missing[arm]) if arm in missing else results.row(about, made))
    return rows


def brief(run):
    """A run on one line."""
    late = f", engines {run['lag_s']:.1f} s behind: not used" if run["late"] else ""
    return (
        f"TTFT p50 {run['ttft_p50_ms']:>7,.0f} mean {run['ttft_mean_ms']:>7,.0f} p95 {run['ttft_p95_ms']:>7,.0f} ms  path {run['path_ms']:.0f} ms"
        f"  cached {run['cached_share']:.0%}  errors {run['errors'] or 0}  {run['wall_s']:.0f} s{late}"
    )


def rates(given, wanted, out):
    """{workload: conversations per second}: as given, else where the simulation's random arm is nearest to the published median."""
    found = dict(pair.split("=", 1) for pair in given)
    rows = json.loads(out.read_text()) if out.exists() else []
    for workload in wanted:
        about = {"mode": "sim", "fleet": fleet.FLEET, "arm": "random", "workload": workload}
        fitting = [row for row in rows if about.items() <= row.items()]
        if workload not in found and fitting:
            nearest = min(fitting, key=lambda row: abs(row["ttft_p50_ms"] - PUBLISHED_MS[workload]))
            found[workload] = nearest["rate_rps"]
    unknown = [workload for workload in wanted if workload not in found]
    if unknown:
        sys.exit(f"no rate for {', '.join(unknown)}: give --rate WORKLOAD=CONVERSATIONS_PER_SECOND, or simulate first")
    return {workload: float(found[workload]) for workload in wanted}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workload", action="append", choices=WORKLOADS)
    parser.add_argument("--arm", action="append", choices=arms.ARMS)
    parser.add_argument("--no-peers", action="store_true", help="of all arms only those that need nothing installed")
    parser.add_argument("--rate", action="append", default=[], metavar="WORKLOAD=RATE", help="conversations a second of engine time")
    parser.add_argument("--requests", type=int, default=180, help="of a run")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--speedup", type=int, default=3, help="how much faster than life the engines run")
    parser.add_argument("--objective-ms", type=float, default=2000.0, help="of TTFT, for goodput at this rate")
    parser.add_argument("--keep", type=Path, help="a folder in which every run's records, logs and configuration stay")
    parser.add_argument("--bin", type=Path, default=TARGET / "release", help="where kinference and vllm-sim are")
    parser.add_argument("--client", type=Path, default=TARGET / "release" / "examples" / "bench-client")
    parser.add_argument("--out", type=Path, default=TARGET / "bench" / "routing.json")
    args = parser.parse_args()
    args.workload = args.workload or list(WORKLOADS)
    args.arm = args.arm or [arm for arm in arms.ARMS if not (args.no_peers and arm in peers.PEERS)]
    args.rates = rates(args.rate, args.workload, args.out)
    return args


def main():
    args = arguments()
    exit_on_signals()
    with tempfile.TemporaryDirectory(prefix="kinference-bench-") as temporary:
        rows = measure(args, args.keep or Path(temporary))
    results.merge(args.out, rows)
    text = "\n\n".join(part for part in (results.table(rows), results.comparison(rows)) if part)
    (args.out.parent / "routing-real.md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
