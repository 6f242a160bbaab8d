"""The routers that are compared: how each is started before a fresh fleet, and where its requests go."""

import json
import os
import sys
import urllib.request

import peers
import run as demo
from services import port

from . import ROOT, fleet, kinference

PLAIN = {"random": "RANDOM", "round_robin": "ROUND_ROBIN", "least_request": "LEAST_REQUEST"}
OURS = {"kinference": None, "kinference_calibrated": "on"}
# Peers that forward, started alike: package to module. Their cache-aware policy is also their default one.
FORWARDING = {
    "vllm-router": "vllm_router.launch_router",
    "sglang-router": "sglang_router.launch_router",
    "smg": "smg.launch_router",
}
# Their defaults for how often engines are asked for their load, in seconds of the engines' time.
POLLING = {"smg": ("--load-monitor-interval", 10)}
SELECTING = "ai-dynamo-runtime"
ARMS = [*PLAIN, *OURS, *peers.PEERS]


class Unavailable(Exception):
    """This router can't be had or started here; says why."""


def envoy(services, dir, source, ports, engines):
    """A ready Envoy; its URL. `ports`: those of the file, the listener's first, then the admin's."""
    listener, admin = port(0), port(0)
    taken = dict(zip(ports[:2], (listener, admin)))
    name = demo.start_envoy(services, dir, source, {**taken, **dict(ports[2:])}, engines)
    services.wait_until_ready(name, f"http://127.0.0.1:{admin}/ready")
    return f"http://127.0.0.1:{listener}"


def plain(services, dir, engines, policy):
    """Envoy alone."""
    text = (demo.HERE / "random.yaml").read_text()
    source = dir / f"plain-{policy.lower()}.in.yaml"
    source.write_text(demo.replace(text, "lb_policy: RANDOM", f"lb_policy: {policy}"))
    return envoy(services, dir, source, [10001, 9902], engines)


def ours(services, dir, engines, binary, speedup, calibration):
    """Kinference beside Envoy."""
    grpc, admin = port(0), port(0)
    page = (ROOT / "docs" / "configuration.md").read_text()
    if calibration and "| `calibration` |" not in page:
        raise Unavailable("this Kinference has no calibration of its predictor")
    (dir / "kinference.toml").write_text(kinference.config(page, speedup, grpc, admin, calibration))
    (dir / "workers.toml").write_text(kinference.workers(engines))
    services.start("kinference", [binary, "--config", dir / "kinference.toml"])
    services.wait_until_ready("kinference", f"http://127.0.0.1:{admin}/readyz")
    return envoy(services, dir, ROOT / "envoy" / "duplex.yaml", [10000, 9901, (9002, grpc)], [])


def start_peer(services, name, module, arguments):
    """A peer's process, from its own folder of packages."""
    why = peers.missing(name)
    if why:
        raise Unavailable(why)
    env = {**os.environ, "PYTHONPATH": str(peers.folder(name))}
    services.start(name, [sys.executable, "-m", module, *arguments], env=env)


def forwarding(services, engines, name, speedup):
    """A peer that forwards, with its cache-aware policy and its own defaults for the rest, in the engines' time."""
    listener = port(0)
    urls = [f"http://{fleet.address(engine['http'])}" for engine in engines]
    arguments = ["--host", "127.0.0.1", "--port", listener, "--prometheus-port", port(0), "--policy", "cache_aware"]
    if name in POLLING:
        flag, seconds = POLLING[name]
        arguments += [flag, max(1, round(seconds / speedup))]
    start_peer(services, name, FORWARDING[name], [*arguments, "--worker-urls", *urls])
    services.wait_until_ready(name, f"http://127.0.0.1:{listener}/readiness", seconds=60)
    return f"http://127.0.0.1:{listener}"


def selecting(services, engines):
    """Dynamo's selection service, fed with the same KV events; the client sends where it says."""
    listener = port(0)
    url = f"http://127.0.0.1:{listener}"
    start_peer(services, SELECTING, "dynamo.select_service", ["--port", listener])
    services.wait_until_ready(SELECTING, f"{url}/health", seconds=60)
    for i, engine in enumerate(engines):
        worker = {
            "worker_id": i,
            "model_name": fleet.MODEL,
            "endpoint": f"http://{fleet.address(engine['http'])}",
            "kv_events_endpoint": engine["kv_events"],
            "replay_endpoint": engine["replay"],
            "block_size": fleet.BLOCK,
            "max_num_batched_tokens": fleet.BATCHED_TOKENS,
            "total_kv_blocks": fleet.blocks(engine),
        }
        body = json.dumps(worker).encode()
        request = urllib.request.Request(f"{url}/workers", data=body, headers={"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            answer.read()
    services.wait_until_ready(SELECTING, f"{url}/ready")
    return url


def start(arm, services, dir, engines, binary, speedup):
    """Starts a router; its URL and the client's arguments for it."""
    if arm in PLAIN:
        return plain(services, dir, engines, PLAIN[arm]), []
    if arm in OURS:
        return ours(services, dir, engines, binary, speedup, OURS[arm]), []
    try:
        if arm in FORWARDING:
            return forwarding(services, engines, arm, speedup), []
        return selecting(services, engines), ["--select"]
    except SystemExit as failed:
        if not isinstance(failed.code, str):  # a signal, not a router that did not start
            raise
        raise Unavailable(failed.code.splitlines()[-1].strip()) from None
