"""The demo: three vllm-sim engines, Kinference and Envoy on this machine, compared with random routing.

`make demo` builds what it starts. DEMO_EXIT=1: end after the table. DEMO_JSON=FILE: write the table there as JSON.
Exit status: 0 if every request was answered.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import compare
from services import Services, die_with_parent, exit_on_signals, port

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
MODEL = "demo"
# kinference.toml is written for this speedup.
SPEEDUP = 10
# A cache of 12,500 blocks of 16 tokens holds a third of the shared prefixes (15,000 blocks in all) with ease, all of
# them never.
ENGINE = ["--preset", "documented", "--num-blocks", "12500", "--block-size", "16", "--max-num-seqs", "64"]


def start_engines(services, models):
    """Three engines; the addresses that each got."""
    engines = []
    for i in range(3):
        command = [TARGET / "vllm-sim", "--listen", "127.0.0.1:0", "--kv-events", "tcp://127.0.0.1:0"]
        command += ["--replay", "tcp://127.0.0.1:0", "--model", MODEL, "--model-dir", models / MODEL]
        command += ["--speedup", SPEEDUP, "--seed", i, "--exit-with-stdin", *ENGINE]
        engines.append(services.announced(f"engine-{i}", command))
    return engines


def replace(text, old, new):
    """Replaces what must be there exactly once."""
    if text.count(old) != 1:
        sys.exit(f"expected {old!r} once, found it {text.count(old)} times")
    return text.replace(old, new)


def address(url):
    """`host:port` of `tcp://host:port` or `http://host:port` or of itself."""
    return url.split("://")[-1]


def start_kinference(services, dir, engines, more=""):
    """Kinference with the demo's configuration and what is to be added to it; the ports of its two listeners."""
    grpc, admin = port(9002), port(9003)
    config = (HERE / "kinference.toml").read_text()
    config = replace(config, '"127.0.0.1:9002"', f'"127.0.0.1:{grpc}"')
    config = replace(config, '"0.0.0.0:9003"', f'"127.0.0.1:{admin}"')
    workers = (HERE / "workers.toml").read_text()
    for i, engine in enumerate(engines):
        http = address(engine["http"])
        workers = replace(workers, f'"http://127.0.0.1:{8000 + i}"', f'"http://{http}"')
        workers = replace(workers, f'"http://127.0.0.1:{8000 + i}/metrics"', f'"http://{http}/metrics"')
        workers = replace(workers, f'"tcp://127.0.0.1:{5557 + 10 * i}"', f'"tcp://{address(engine["kv_events"])}"')
        workers = replace(workers, f'"tcp://127.0.0.1:{5558 + 10 * i}"', f'"tcp://{address(engine["replay"])}"')
    (dir / "kinference.toml").write_text(config + more)
    (dir / "workers.toml").write_text(workers)
    services.start("kinference", [TARGET / "kinference", "--config", dir / "kinference.toml"])
    services.wait_until_ready("kinference", f"http://127.0.0.1:{admin}/readyz")
    return grpc, admin


def start_envoy(services, dir, source, ports, engines):
    """An Envoy with a configuration of the repository, its ports replaced. `ports`: {as written: as used}; `engines`:
    those that it lists, if it does."""
    text = source.read_text().replace("address: 0.0.0.0", "address: 127.0.0.1")
    for i, engine in enumerate(engines):
        ports = {**ports, 8000 + i: int(address(engine["http"]).rsplit(":", 1)[1])}
    for old in ports:  # in two steps: a new port may be another's old one
        text = replace(text, f"port_value: {old} ", f"port_value: @{old} ")
    for old, new in ports.items():
        text = replace(text, f"port_value: @{old} ", f"port_value: {new} ")
    name = f"envoy-{source.stem}"
    (dir / f"{name}.yaml").write_text(text)
    envoy = subprocess.check_output([sys.executable, ROOT / ".ci" / "tools.py", "envoy"], text=True).strip()
    command = [envoy, "-c", dir / f"{name}.yaml", "--disable-hot-restart", "--concurrency", 1, "--log-level", "warning"]
    services.start(name, command)
    return name


def start(services, dir):
    """Everything; the URLs by name."""
    shutil.copytree(ROOT / "tests" / "fixtures" / "tokenizer", dir / "models" / MODEL)
    engines = start_engines(services, dir / "models")
    grpc, admin = start_kinference(services, dir, engines)
    listener, other, envoy_admin, other_admin = port(10000), port(10001), port(9901), port(9902)
    picked = start_envoy(
        services, dir, ROOT / "envoy" / "duplex.yaml", {10000: listener, 9901: envoy_admin, 9002: grpc}, []
    )
    plain = start_envoy(services, dir, HERE / "random.yaml", {10001: other, 9902: other_admin}, engines)
    services.wait_until_ready(picked, f"http://127.0.0.1:{envoy_admin}/ready")
    services.wait_until_ready(plain, f"http://127.0.0.1:{other_admin}/ready")
    urls = {"kinference": listener, "random": other, "admin": admin, "envoy": envoy_admin}
    urls = {name: f"http://127.0.0.1:{number}" for name, number in urls.items()}
    return {**urls, "grpc": f"127.0.0.1:{grpc}", "engines": [f"http://{address(engine['http'])}" for engine in engines]}


def invite(urls):
    """What to try while it is up."""
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "stream": True})
    print(
        f"""
Still up, until Ctrl-C:
  inference through Kinference  {urls["kinference"]}
  inference at random           {urls["random"]}
  the dashboard                 {urls["admin"]}/
  metrics                       {urls["admin"]}/metrics
  the fleet                     {urls["admin"]}/api/fleet
  Envoy                         {urls["envoy"]}
  the gRPC API (docs/grpc.md)   {urls["grpc"]}

  curl -N {urls["kinference"]}/v1/chat/completions -H 'content-type: application/json' -d '{body}'
""",
        flush=True,
    )


def main():
    if "MAKELEVEL" in os.environ:
        die_with_parent(signal.SIGTERM, os.getppid())
    exit_on_signals()
    with tempfile.TemporaryDirectory(prefix="kinference-demo-") as temporary:
        dir = Path(temporary)
        services = Services(dir)
        try:
            print("starting three engines, Kinference and Envoy", file=sys.stderr, flush=True)
            urls = start(services, dir)
            engines = [part for url in urls["engines"] for part in ("--engine", url)]
            args = ["--random", urls["random"], "--kinference", urls["kinference"], *engines, "--model", MODEL]
            args += ["--load", str(TARGET / "examples" / "load"), "--speedup", str(SPEEDUP)]
            args += ["--tokenizer", str(dir / "models" / MODEL / "tokenizer.json")]
            answered = compare.compare(compare.arguments(args))
            services.check()
            if not os.environ.get("DEMO_EXIT"):
                invite(urls)
                while True:
                    time.sleep(1)
                    services.check()
            return 0 if answered else 1
        finally:
            services.stop()


if __name__ == "__main__":
    sys.exit(main())
