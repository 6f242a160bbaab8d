"""Kinference behind Envoy, with its documented defaults for engines that run faster than life.

Every coefficient in engine time is its default divided by the speedup. Defaults are read from docs/configuration.md.
"""

import re

from . import fleet

# Sections of the page, and the keys of each that are in the engines' time.
SCALED = {
    "Top level": r"metrics_poll_ms",
    "`[profile.predictor]`": r"\w+_ms(_per_entry)?",
    "`[profile.picker]`": r"\w+_ms",
}


def defaults(page):
    """{section: {key: default}} of what is in engine time and not 0."""
    found = {section: {} for section in SCALED}
    section = None
    for line in page.splitlines():
        if line.startswith("## "):
            section = line[3:].strip()
        row = re.match(r"\| `(\w+)` \| (?:float|integer) \| `([0-9.]+)` \|", line)
        if section in SCALED and row and re.fullmatch(SCALED[section], row[1]) and float(row[2]) != 0:
            found[section][row[1]] = row[2]
    return found


def scaled(page, section, speedup):
    """TOML lines of a section."""
    values = defaults(page)[section]
    if not values:
        raise SystemExit(f"docs/configuration.md: no times found under {section}")
    whole = {key: "." not in value for key, value in values.items()}
    numbers = {key: float(value) / speedup for key, value in values.items()}
    return "".join(f"{key} = {max(1, round(n)) if whole[key] else n!r}\n" for key, n in numbers.items())


def config(page, speedup, grpc, admin, calibration):
    """The configuration file."""
    top = scaled(page, "Top level", speedup)
    predictor = scaled(page, "`[profile.predictor]`", speedup)
    picker = scaled(page, "`[profile.picker]`", speedup)
    more = f'calibration = "{calibration}"\n' if calibration else ""
    return f"""listen = "127.0.0.1:{grpc}"
admin_listen = "127.0.0.1:{admin}"
{top}
[[profile]]
name = "bench"
tokenize.mode = "local"

[profile.predictor]
{predictor}{more}
[profile.picker]
{picker}
[[workerset]]
name = "local" # as in envoy/duplex.yaml
profile = "bench"
kv_block_size = {fleet.BLOCK}

[workerset.discovery]
mode = "static"
workers_file = "workers.toml"

[tokenize]
local.mount_dir = "models"
"""


def workers(engines):
    """The workers file."""
    rows = []
    for i, engine in enumerate(engines):
        http = fleet.address(engine["http"])
        rows.append(f"""[[workers]]
worker_id_str = "engine-{i}"
worker_id_num = {i + 1}
model_name = "{fleet.MODEL}"
http_url = "http://{http}"
metrics_url = "http://{http}/metrics"
zmq_endpoint = "{engine["kv_events"]}"
replay_endpoint = "{engine["replay"]}"
""")
    return "\n".join(rows)
