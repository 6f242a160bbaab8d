"""What the decision log costs a server: CPU time of a request through Envoy with a line for each decision, as a share of that without.

Needs the release build that `make demo` makes. Two servers over the demo's engines, one with the log and one without, each
behind an Envoy of its own, are asked in turn; prints the median share of throughput that is left, with the least and the most.
"""

import http.client
import json
import os
import shutil
import statistics
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples" / "demo"))

import run  # noqa: E402
from services import Services, exit_on_signals, port  # noqa: E402

PAIRS = 9  # the first one warms up
REQUESTS = 2000
AT_ONCE = 8
TICKS = os.sysconf("SC_CLK_TCK")


def cpu(process):
    """Seconds of CPU time of a process so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def start(services, dir, engines, more):
    """A server with its Envoy: the process and the port."""
    dir.mkdir()
    os.symlink(dir.parent / "models", dir / "models")
    own = Services(dir)
    grpc, _ = run.start_kinference(own, dir, engines, more)
    listener, admin = port(10000), port(9901)
    ports = {10000: listener, 9901: admin, 9002: grpc}
    envoy = run.start_envoy(own, dir, run.ROOT / "envoy" / "duplex.yaml", ports, [])
    own.wait_until_ready(envoy, f"http://127.0.0.1:{admin}/ready")
    services.running.update({f"{dir.name}-{name}": process for name, process in own.running.items()})
    return own.running["kinference"], listener


def ask(listener, worker):
    """A share of the requests, over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", listener)
    for n in range(REQUESTS // AT_ONCE):
        messages = [{"role": "user", "content": f"Request {worker}-{n}: " + "what is a cache? " * 40}]
        body = json.dumps({"model": run.MODEL, "messages": messages, "max_tokens": 1})
        connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            sys.exit(f"{answer.status}: {text.decode(errors='replace')}")
    connection.close()


def measure(server):
    """CPU microseconds of a request."""
    process, listener = server
    before = cpu(process)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda worker: ask(listener, worker), range(AT_ONCE)))
    return (cpu(process) - before) / REQUESTS * 1e6


def main():
    exit_on_signals()
    with tempfile.TemporaryDirectory(prefix="kinference-bench-") as temporary:
        dir = Path(temporary)
        services = Services(dir)
        try:
            shutil.copytree(run.ROOT / "tests" / "fixtures" / "tokenizer", dir / "models" / run.MODEL)
            engines = run.start_engines(services, dir / "models")
            log = f'\n[decision_log]\noutput = "file"\nfile = "{dir}/decisions.jsonl"\n'
            servers = [start(services, dir / "without", engines, ""), start(services, dir / "with", engines, log)]
            shares, costs = [], []
            for pair in range(PAIRS):
                # Who is first changes, for what drifts.
                order = (0, 1) if pair % 2 == 0 else (1, 0)
                took = {which: measure(servers[which]) for which in order}
                if pair > 0:
                    shares.append(took[0] / took[1] * 100)
                    costs.append(took[0])
            lines = sum(1 for _ in open(dir / "decisions.jsonl"))
        finally:
            services.stop()
    print(
        f"3 candidates, {statistics.median(costs):.0f} us of the server's CPU a request: a line for each leaves "
        f"{statistics.median(shares):.1f}% ({min(shares):.1f}% to {max(shares):.1f}%) of the throughput; "
        f"{PAIRS * REQUESTS - lines} lines lost"
    )


if __name__ == "__main__":
    main()
