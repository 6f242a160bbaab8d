"""Three vllm-sim engines as in the published setting (an L40S each, a 27B model in FP8), and what they say of their pace."""

import urllib.request

FLEET = "3xL40S"
ENGINES = 3
PRESET = "l40s-27b-fp8"
MODEL = "bench"
BLOCK = 16
BATCHED_TOKENS = 2048
# Engines that were late by more than this share of a run had too little of the machine: the run is not used.
LAG_SHARE = 0.02


def address(url):
    """`host:port` of `tcp://host:port` or `http://host:port` or of itself."""
    return url.split("://")[-1]


def start(services, binary, models, speedup, seed):
    """Fresh engines; the addresses that each got. Engines never share a block hash, whatever the seed."""
    engines = []
    for i in range(ENGINES):
        command = [binary, "--model", MODEL, "--model-dir", models / MODEL, "--preset", PRESET, "--speedup", speedup]
        command += ["--kv-events", "tcp://127.0.0.1:0", "--replay", "tcp://127.0.0.1:0", "--block-size", BLOCK]
        command += ["--max-num-batched-tokens", BATCHED_TOKENS, "--seed", seed * ENGINES + i, "--exit-with-stdin"]
        engines.append(services.announced(f"engine-{i}", command))
    return engines


def metrics(engine):
    """An engine's /metrics."""
    with urllib.request.urlopen(f"http://{address(engine['http'])}/metrics", timeout=10) as answer:
        return answer.read().decode()


def series(engine, name):
    """The sum of a series."""
    lines = metrics(engine).splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


def blocks(engine):
    """Blocks in an engine's cache, as it tells itself."""
    return int(metrics(engine).partition('num_gpu_blocks="')[2].partition('"')[0])


def lag(engines):
    """Wall seconds that the slowest engine was behind and never made up for."""
    return max(series(engine, "vllm_sim_behind_seconds_total") for engine in engines)


def mean_ttft_ms(engines):
    """Mean wall time from an engine's queue to a first token, of all that they served."""
    of = lambda part: sum(series(engine, f"vllm:time_to_first_token_seconds_{part}") for engine in engines)
    return 1000 * of("sum") / max(of("count"), 1)
