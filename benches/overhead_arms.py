"""The processes behind `overhead.py`: an origin that answers at once, engines whose events fill the index, and the arms, each
an Envoy of its own with what it asks.

All Envoys read the shipped configurations, with their addresses replaced; the arm `envoy` has the filter cut out.
"""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples" / "demo"))

import run  # noqa: E402
from services import Services, port  # noqa: E402

NOOP = run.TARGET / "examples" / "noop"
MODEL = "bench"
# Documents that bodies share: the index holds them, the tokenizer's prefix cache too.
DOCUMENTS = 16
# As fast as nothing, with room for every document of every size in each engine.
ENGINE = ["--speedup", "1000", "--max-model-len", "200000", "--num-blocks", "60000", "--block-size", "16"]

KINFERENCE = """
listen = "{listen}"
admin_listen = "127.0.0.1:{admin}"
{more}
[[profile]]
name = "bench"
tokenize.mode = "local"
[[workerset]]
name = "bench"
profile = "bench"
kv_block_size = 16
[workerset.discovery]
mode = "static"
workers_file = "workers.toml"
[tokenize]
local.mount_dir = "models"
"""

WORKER = """
[[workers]]
worker_id_str = "engine-{i}"
worker_id_num = {number}
model_name = "{model}"
http_url = "http://{origin}"
metrics_url = "{http}/metrics"
zmq_endpoint = "{kv_events}"
replay_endpoint = "{replay}"
"""


def load(to, **options):
    """Runs a load; what it saw."""
    command = [NOOP, "load", "--to", to, "--model", MODEL]
    for name, value in options.items():
        command += ["--" + name.replace("_", "-"), str(value)]
    out = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, check=True, text=True).stdout
    return json.loads(out)


class Arm:
    """An Envoy, and the processor that it asks, if any."""

    def __init__(self, bench, name, source, **options):
        self.name, self.dir = name, bench.dir / name
        self.dir.mkdir()
        self.services = Services(self.dir)
        bench.all.append(self.services)
        kind = options.get("kind")
        self.processor, self.basis, address = None, None, "127.0.0.1:9"
        if kind == "noop":
            address = self._noop(options.get("unix"))
        elif kind:
            address = self._kinference(bench, kind, options.get("more", ""))
        text = (run.ROOT / "envoy" / source).read_text()
        if not kind:
            before, rest = text.split("                  - name: envoy.filters.http.ext_proc\n")
            after = rest[rest.index("                  - name: envoy.filters.http.router\n") :]
            text = before + after
        for old, new in options.get("edits", {}).items():
            text = run.replace(text, old, new)
        for i, origin in enumerate(bench.origins):
            text = run.replace(text, f"port_value: {8000 + i} ", f"port_value: {origin.split(':')[1]} ")
        text = run.replace(text, "{ socket_address: { address: 127.0.0.1, port_value: 9002 } }", where(address))
        self.listener, admin = port(0), port(0)
        text = run.replace(text, "port_value: 9901 ", f"port_value: {admin} ")
        text = run.replace(text, "port_value: 10000 ", f"port_value: {self.listener} ")
        path = self.dir / "envoy.yaml"
        path.write_text(text.replace("address: 0.0.0.0", "address: 127.0.0.1"))
        command = [bench.envoy, "-c", path, "--disable-hot-restart", "--concurrency", 1, "--log-level", "warning"]
        self.proxy = self.services.start("envoy", command)
        self.services.wait_until_ready("envoy", f"http://127.0.0.1:{admin}/ready")

    def _noop(self, unix):
        more = ["--unix", self.dir / "noop.sock"] if unix else []
        listen = self.services.announced("noop", [NOOP, "processor", *more])["listen"]
        self.processor = self.services.running["noop"]
        return listen

    def _kinference(self, bench, kind, more):
        models = self.dir / "models" / MODEL
        if kind == "full":
            shutil.copytree(run.ROOT / "tests" / "fixtures" / "tokenizer", models)
        else:  # no tokenizer is found: picks are made on load alone
            models.parent.mkdir()
        workers = [
            WORKER.format(i=i, number=i + 1, model=MODEL, origin=origin, **engine)
            for i, (origin, engine) in enumerate(zip(bench.origins, bench.engines))
        ]
        (self.dir / "workers.toml").write_text("".join(workers))
        grpc, admin = port(0), port(0)
        listen = f"127.0.0.1:{grpc}"
        text = KINFERENCE.format(listen=listen, admin=admin, more=more)
        (self.dir / "kinference.toml").write_text(text)
        server = os.environ.get("KINFERENCE", run.TARGET / "kinference")
        self.processor = self.services.start("kinference", [server, "--config", self.dir / "kinference.toml"])
        self.admin = f"http://127.0.0.1:{admin}"
        self.services.wait_until_ready("kinference", f"{self.admin}/readyz")
        self.basis = "prompt" if kind == "full" else "load"
        return listen

    def check(self):
        """Ends the program if decisions were made on anything else than the arm is about."""
        if self.basis is None:
            return
        with urllib.request.urlopen(f"{self.admin}/metrics", timeout=5) as answer:
            lines = [line for line in answer.read().decode().splitlines() if "decisions_total{basis=" in line]
        made = {basis: sum(float(line.split()[-1]) for line in lines if f'"{basis}"' in line) for basis in ("prompt", "load")}
        share = made[self.basis] / max(1, sum(made.values()))
        if share < 0.99:
            sys.exit(f"{self.name}: only {share:.1%} of the decisions were made on {self.basis}: {made}")

    def load(self, **options):
        """Runs a load through it."""
        return load(f"127.0.0.1:{self.listener}", **options)


def where(address):
    """An address as Envoy writes it."""
    if address.startswith("/"):
        return f"{{ pipe: {{ path: {address} }} }}"
    host, number = address.rsplit(":", 1)
    return f"{{ socket_address: {{ address: {host}, port_value: {number} }} }}"


class Bench:
    """What all arms share."""

    def __init__(self, dir):
        self.dir, self.all = dir, []
        self.services = Services(dir)
        self.all.append(self.services)
        tools = [sys.executable, run.ROOT / ".ci" / "tools.py", "envoy"]
        self.envoy = subprocess.check_output(tools, text=True).strip()
        self.origins = self.services.announced("origin", [NOOP, "origin", "--model", MODEL])["listen"]
        models = dir / "models" / MODEL
        shutil.copytree(run.ROOT / "tests" / "fixtures" / "tokenizer", models)
        self.engines = []
        for i in range(3):
            command = [run.TARGET / "vllm-sim", "--listen", "127.0.0.1:0", "--kv-events", "tcp://127.0.0.1:0"]
            command += ["--replay", "tcp://127.0.0.1:0", "--model", MODEL, "--model-dir", models, *ENGINE]
            engine = self.services.announced(f"engine-{i}", [*command, "--exit-with-stdin"])
            self.engines.append({**engine, "http": "http://" + run.address(engine["http"])})

    def fill(self, sizes):
        """Has each engine compute a third of the documents: the index then holds them."""
        for i, engine in enumerate(self.engines):
            for kb in sizes:
                most = len(range(i, DOCUMENTS, 3))
                load(run.address(engine["http"]), body_kb=kb, connections=1, seconds=60, first=i, step=3, most=most)

    def stop(self):
        """Ends everything."""
        for services in reversed(self.all):
            services.stop()
