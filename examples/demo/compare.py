"""Sends three workloads once through a random route and once through Kinference, and prints what came of it.

Works on anything that is already up: run.py starts it all on this machine, compose.yaml in containers.
All times are the engines' own: wall time times the speedup at which they run.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from services import die_with_parent, wait_for

# Loads at which random routing is in trouble and the fleet as a whole is not: at 1.5 requests/s of 8,256 tokens the
# engines could serve all from their caches, if only each prefix stayed on one of them.
WORKLOADS = {
    "control": ["--rate", "1.1", "--sessions", "130"],
    "shared_prefix": ["--rate", "1.5", "--sessions", "240", "--prefixes", "40"],
    "multi_turn": ["--rate", "0.5", "--sessions", "40", "--first-tokens", "4000", "--turn-tokens", "600"],
}
OUTPUT_TOKENS = "32"
ROUTES = ("random", "kinference")
LEGEND = """
control        prompts with nothing in common: only their load tells engines apart
shared_prefix  prompts that each begin with one of a few long system prompts
multi_turn     conversations, whose every turn repeats what was said before
TTFT           time to first token, in the engines' own time: they ran {speedup} times as fast as life
cached         share of the prompts' tokens that the engine had in its cache"""


def post(url, body=None):
    """POSTs JSON and reads the answer to its end."""
    data = json.dumps(body).encode() if body is not None else b""
    request = urllib.request.Request(url, data=data, headers={"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        answer.read()


def forget(engines, model):
    """Empties the engines' caches. An engine says so to Kinference with its next step: so it is given one to make."""
    for engine in engines:
        post(f"{engine}/reset_prefix_cache")
        post(f"{engine}/v1/completions", {"model": model, "prompt": "hello", "max_tokens": 1})


def measure(args, workload, route, url, dir):
    """One run of the load generator; its summary."""
    summary = Path(dir) / f"{workload}-{route}.json"
    command = [args.load, "--url", url, "--model", args.model, "--tokenizer", args.tokenizer]
    command += ["--workload", workload, "--label", route, "--speedup", str(args.speedup), "--summary", str(summary)]
    command += ["--output-tokens", OUTPUT_TOKENS, *WORKLOADS[workload]]
    parent = os.getpid()
    ends_with_us = lambda: die_with_parent(signal.SIGKILL, parent)
    done = subprocess.run(command, stdout=subprocess.DEVNULL, preexec_fn=ends_with_us)
    if not summary.exists():
        sys.exit(f"the load generator failed (exit {done.returncode})")
    return json.loads(summary.read_text())


def table(results):
    """The comparison as text."""
    head = f"{'workload':<14} {'route':<11} {'requests':>8} {'errors':>7} {'TTFT p50':>10} {'TTFT p95':>10} {'cached':>8}"
    lines = ["", head, "-" * len(head)]
    for workload, routes in results.items():
        for route, run in routes.items():
            p50, p95 = f"{run['ttft_p50_ms']:,.0f} ms", f"{run['ttft_p95_ms']:,.0f} ms"
            line = f"{workload:<14} {route:<11} {run['requests']:>8} {run['errors']:>7} {p50:>10} {p95:>10}"
            gain = ""
            if route == "kinference" and run["ttft_p50_ms"] > 0:
                gain = f"   median {routes['random']['ttft_p50_ms'] / run['ttft_p50_ms']:.1f} times lower"
            lines.append(f"{line} {run['cached_share']:>8.0%}{gain}")
    return "\n".join(lines)


def compare(args):
    """All runs; True if every request was answered."""
    kept_in = os.environ.get("DEMO_JSON")
    if kept_in:
        # Now rather than after two minutes.
        try:
            Path(kept_in).touch()
        except OSError as error:
            sys.exit(f"DEMO_JSON: {error}")
    for url in args.wait_for:
        said = wait_for(url, seconds=60)
        if said is not None:
            sys.exit(f"{url} is not ready: {said}")
    urls = {"random": args.random, "kinference": args.kinference}
    results = {}
    with tempfile.TemporaryDirectory(prefix="kinference-compare-") as dir:
        for workload in WORKLOADS:
            results[workload] = {}
            for route in ROUTES:
                forget(args.engine, args.model)
                run = measure(args, workload, route, urls[route], dir)
                kept = ("ttft_p50_ms", "ttft_p95_ms", "cached_share", "requests", "errors")
                results[workload][route] = {key: run[key] for key in kept}
    print(table(results), LEGEND.format(speedup=args.speedup), sep="\n", flush=True)
    if kept_in:
        Path(kept_in).write_text(json.dumps(results, indent=2) + "\n")
    return all(run["errors"] == 0 for routes in results.values() for run in routes.values())


def arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random", required=True, help="URL of the random route")
    parser.add_argument("--kinference", required=True, help="URL of the route through Kinference")
    parser.add_argument("--engine", action="append", required=True, help="URL of an engine; once for each")
    parser.add_argument("--load", required=True, help="the load generator")
    parser.add_argument("--tokenizer", required=True, help="the model's tokenizer.json")
    parser.add_argument("--wait-for", action="append", default=[], help="URL that has to answer 200 first")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--speedup", type=int, required=True, help="of the engines")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(0 if compare(arguments()) else 1)
