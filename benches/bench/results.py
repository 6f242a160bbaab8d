"""From records of requests to rows of `routing.json` and a table. Times are the engines': wall time times the speedup."""

import json
import math
import statistics

FIGURES = ("ttft_p50_ms", "ttft_p95_ms", "ttft_mean_ms", "cached_share", "goodput_rpm", "path_ms", "ttft_mean_life_ms")


def quantile(values, q):
    """The nearest-rank quantile, 0 of nothing."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(q * len(ranked)) - 1)] if ranked else 0.0


def summary(records, objective_ms):
    """The figures of one run. A failed request has no time, and meets no objective."""
    good = [record for record in records if not record.get("error")]
    ttft = [record["ttft_ms"] for record in good]
    prompt = sum(record["prompt_tokens"] for record in good)
    # Of the time in which requests arrived: at this rate, not the most that there could be.
    minutes = max(record["at_s"] for record in records) / 60
    return {
        "ttft_p50_ms": quantile(ttft, 0.5),
        "ttft_p95_ms": quantile(ttft, 0.95),
        "ttft_mean_ms": statistics.fmean(ttft) if ttft else 0.0,
        "cached_share": sum(record["cached_tokens"] for record in good) / max(prompt, 1),
        "goodput_rpm": sum(time <= objective_ms for time in ttft) / minutes,
        "errors": kinds(records),
    }


def path(run, engine_ms, speedup):
    """What is not the engines' doing: mean wall time per request in the client, in the router, and in the engine before its queue.

    It does not run faster with the engines, so that a run overstates it by the speedup: the second figure is the mean TTFT
    with it counted as it would be before engines that run at the speed of life.
    """
    path_ms = run["ttft_mean_ms"] / speedup - engine_ms
    return {"path_ms": path_ms, "ttft_mean_life_ms": run["ttft_mean_ms"] - path_ms * (speedup - 1)}


def kinds(records):
    """How many failed, by kind."""
    found = {}
    for record in records:
        if record.get("error"):
            found[record["error"]] = found.get(record["error"], 0) + 1
    return found


def row(identity, runs):
    """The row of an arm: median and spread of its repeats; figures only of those whose engines kept pace."""
    used = [run for run in runs if not run["late"]]
    figures = {key: statistics.median(run[key] for run in used) for key in FIGURES} if used else dict.fromkeys(FIGURES)
    spread = {key: [min(run[key] for run in used), max(run[key] for run in used)] for key in FIGURES if used}
    errors = {}
    for run in used:
        for kind, count in run["errors"].items():
            errors[kind] = errors.get(kind, 0) + count
    made = {"errors": sum(errors.values()), "errors_by_kind": errors, "repeats": len(used), "not_used": len(runs) - len(used)}
    return {**identity, **figures, **made, "spread": spread}


def absent(identity, why):
    """The row of an arm that could not be run."""
    return {**identity, **dict.fromkeys(FIGURES), "errors": None, "repeats": 0, "spread": {}, "why": why}


def merge(path, rows):
    """Writes rows into the file, in place of those of the same fleet, workload, arm, mode and rate."""
    identity = lambda row: tuple(row.get(key) for key in ("fleet", "workload", "arm", "mode", "rate_rps"))
    new = {identity(row) for row in rows}
    kept = [row for row in (json.loads(path.read_text()) if path.exists() else []) if identity(row) not in new]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([*kept, *rows], indent=1) + "\n")


def table(rows):
    """The rows as markdown."""
    head = ["workload", "arm", "TTFT p50 ms", "p95 ms", "mean ms", "mean, least-most", "path, wall ms", "mean at speed 1", "cached", "goodput/min", "errors", "repeats"]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in rows:
        if not row["repeats"]:
            why = row.get("why", "engines did not keep pace in any repeat")
            cells = [row["workload"], row["arm"], f"not measured: {why}", *[""] * (len(head) - 3)]
        else:
            least, most = row["spread"]["ttft_mean_ms"]
            times = [f"{row[key]:,.0f}" for key in ("ttft_p50_ms", "ttft_p95_ms", "ttft_mean_ms")]
            path = f"{row['path_ms']:.1f}", f"{row['ttft_mean_life_ms']:,.0f}"
            share, goodput = f"{row['cached_share']:.0%}", f"{row['goodput_rpm']:.1f}"
            late = f" (and {row['not_used']} not used)" if row["not_used"] else ""
            cells = [row["workload"], row["arm"], *times, f"{least:,.0f}-{most:,.0f}", *path, share, goodput]
            cells += [str(row["errors"]), f"{row['repeats']}{late}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def comparison(rows):
    """For each workload, where ours is behind a peer; or that it is behind none."""
    lines = []
    by = {(row["workload"], row["arm"]): row for row in rows if row["repeats"]}
    peers = [row for row in rows if row.get("peer") and row["repeats"]]
    for arm in ("kinference", "kinference_calibrated"):
        for workload in sorted({row["workload"] for row in rows}):
            own = by.get((workload, arm))
            if not own or not any(peer["workload"] == workload for peer in peers):
                continue
            behind = [text for peer in peers if peer["workload"] == workload for text in worse(own, peer)]
            lines.append(f"- {workload}, {arm}: " + ("; ".join(behind) if behind else "ahead of every peer measured"))
    return "\n".join(lines)


def worse(own, peer):
    """In what a peer is ahead of ours."""
    ahead = [
        f"{key} {peer[key]:,.0f} against {own[key]:,.0f}"
        for key in ("ttft_mean_ms", "ttft_mean_life_ms", "ttft_p95_ms", "goodput_rpm")
        if (peer[key] > own[key] if key == "goodput_rpm" else peer[key] < own[key])
    ]
    return [f"{peer['arm']} is ahead in {', '.join(ahead)}"] if ahead else []
