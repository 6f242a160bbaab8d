"""Writes the Grafana dashboards beside it: `fleet.json`, `tenants.json`, `predictions.json`.

Usage: generate.py           writes them
       generate.py --check   fails, and names them, where the copies are not what it would write

What a panel asks for is a line here. Metrics and labels are those of docs/metrics.md; a test holds them to it and has every query parsed.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Of Grafana 12; older ones migrate what they know, so nothing newer than they need is used below.
SCHEMA = 41
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24
BAD, SO_SO, GOOD = "red", "orange", "green"
# Series that mean the same wherever they are shown.
COLOURS = {"completed": GOOD, "ready": GOOD, "synced": GOOD, "failed": BAD, "evicted": BAD, "failing": BAD, "disconnected": BAD}
COLOURED = {"{{outcome}}", "{{state}}"}


def pick(metric, *filters, **fixed):
    """A selector: the job, the variables of that name, and what is given."""
    parts = [f'{name}=~"${name}"' for name in ("job", *filters)]
    parts += [f'{name}="{value}"' for name, value in fixed.items()]
    return f"{metric}{{{', '.join(parts)}}}"


def rate(metric, *filters, **fixed):
    return f"rate({pick(metric, *filters, **fixed)}[$__rate_interval])"


def by(labels, inner):
    """The sum by those labels, or the sum of all."""
    return f"sum by ({labels}) ({inner})" if labels else f"sum({inner})"


def share(part, whole, labels=""):
    return f"{by(labels, part)} / {by(labels, whole)}"


def mean(metric, labels, *filters):
    return share(rate(f"{metric}_sum", *filters), rate(f"{metric}_count", *filters), labels)


def quantile(q, metric, labels, *filters):
    buckets = ", ".join(part for part in (labels, "le") if part)
    return f"histogram_quantile({q}, {by(buckets, rate(f'{metric}_bucket', *filters))})"


def each(metric, labels, how="max", filters=("workerset",), **fixed):
    """A gauge that every replica has: of all of them the largest, or another `how`."""
    return f"{how} by ({labels}) ({pick(metric, *filters, **fixed)})"


def steps(limits):
    """Thresholds: [(from, colour), ...], the first from anything."""
    return {"mode": "absolute", "steps": [{"color": colour, "value": value} for value, colour in limits]}


@dataclass
class Panel:
    """A panel: what it shows, of which queries {legend: expression}."""

    title: str
    description: str
    unit: str
    queries: dict
    width: int = 12
    limits: list | None = None
    kind: str = "timeseries"
    stack: bool = False
    signed: bool = False

    @property
    def height(self):
        return 4 if self.kind == "stat" else 8

    def targets(self):
        instant = self.kind in ("stat", "table")
        form = {"table": "table", "heatmap": "heatmap"}.get(self.kind, "time_series")
        return [
            {"refId": chr(ord("A") + i), "datasource": DATASOURCE, "expr": expr, "legendFormat": legend,
             "format": form, "instant": instant, "range": not instant}
            for i, (legend, expr) in enumerate(self.queries.items())
        ]

    def options(self):
        if self.kind == "stat":
            return {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                    "colorMode": "value", "graphMode": "none", "textMode": "auto"}
        if self.kind == "heatmap":
            return {"calculate": False, "yAxis": {"unit": self.unit}, "cellGap": 1,
                    "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64},
                    "tooltip": {"mode": "single", "yHistogram": False}, "legend": {"show": False}}
        if self.kind == "table":
            return {"showHeader": True, "sortBy": [{"displayName": "Value", "desc": True}]}
        return {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                "tooltip": {"mode": "multi", "sort": "desc"}}

    def fields(self):
        defaults = {"unit": self.unit, "color": {"mode": "palette-classic"}}
        if self.kind == "timeseries":
            defaults |= {} if self.signed else {"min": 0}
            defaults["custom"] = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 20 if self.stack else 0,
                                  "showPoints": "never", "spanNulls": False,
                                  "stacking": {"mode": "normal" if self.stack else "none", "group": "A"}}
        if self.limits:
            defaults["thresholds"] = steps(self.limits)
            if self.kind == "stat":
                defaults["color"] = {"mode": "thresholds"}
            else:
                defaults["custom"]["thresholdsStyle"] = {"mode": "dashed"}
        return {"defaults": defaults, "overrides": self.overrides()}

    def overrides(self):
        if not COLOURED & self.queries.keys():
            return []
        return [
            {"matcher": {"id": "byName", "options": name},
             "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}]}
            for name, colour in COLOURS.items()
        ]

    def json(self, number, at):
        panel = {"id": number, "type": self.kind, "title": self.title, "description": self.description,
                 "datasource": DATASOURCE, "gridPos": {"x": at[0], "y": at[1], "w": self.width, "h": self.height},
                 "fieldConfig": self.fields(), "options": self.options(), "targets": self.targets()}
        if self.kind == "table":
            panel["transformations"] = [{"id": "organize", "options": {"excludeByName": {"Time": True}}}]
        return panel


def variable(name, of):
    query = f"label_values({of}, {name})"
    return {"name": name, "label": name, "type": "query", "datasource": DATASOURCE, "definition": query,
            "query": {"query": query, "refId": "StandardVariableQuery"}, "refresh": 2, "sort": 1,
            "multi": True, "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}


def dashboard(name, title, description, variables, panels):
    x = y = height = 0
    placed = []
    for panel in panels:
        if x + panel.width > COLUMNS:
            x, y = 0, y + height
        placed.append(panel.json(len(placed) + 1, (x, y)))
        x, height = x + panel.width, panel.height
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    templating = [source, variable("job", "kinference_build_info"), *(variable(*pair) for pair in variables)]
    return {"uid": f"kinference-{name}", "title": title, "description": description, "tags": ["kinference"],
            "schemaVersion": SCHEMA, "version": 1, "editable": True, "graphTooltip": 1, "refresh": "30s",
            "time": {"from": "now-1h", "to": "now"}, "timezone": "browser", "annotations": {"list": []},
            "links": [{"type": "dashboards", "title": "Kinference", "tags": ["kinference"], "asDropdown": False,
                       "keepTime": True, "includeVars": True}],
            "templating": {"list": templating}, "panels": placed}


SET = ("workerset", "kinference_workers")
MODEL = ("model", "kinference_requests_total")
TENANT = ("tenant", "kinference_requests_total")
FAULTS = pick("kinference_rejections_total").replace("}", ', kind=~"overloaded|no_worker|pool_not_found|internal"}')
FEW_ARE_BAD = [(None, GOOD), (0.01, SO_SO), (0.05, BAD)]


def fleet():
    requests, rejections = "kinference_requests_total", "kinference_rejections_total"
    rejected = f"rate({FAULTS}[$__rate_interval])"
    everything = f"{rate(rejections)} or {rate(requests)}"
    return dashboard("fleet", "Kinference: fleet", "Requests, workers and decisions of all replicas.", [SET], [
        Panel("Replicas", "Replicas of Kinference that are scraped.", "short", {"": f"count({pick('kinference_build_info')})"},
              6, [(None, BAD), (1, SO_SO), (2, GOOD)], "stat"),
        Panel("Workers that take requests", "As the replica sees it that sees the fewest.", "short",
              {"": f"sum({each('kinference_workers', 'workerset', 'min', state='ready')})"}, 6, [(None, BAD), (1, GOOD)], "stat"),
        Panel("Requests", "Requests that ended, whoever served them.", "reqps",
              {"": by("", rate(requests, "workerset"))}, 6, kind="stat"),
        Panel("Turned away", "Share of all requests that Kinference answered with 429, 500 or 503 itself, for want of workers or memory.",
              "percentunit", {"": f"({by('', rejected)} or vector(0)) / {by('', everything)}"}, 6, FEW_ARE_BAD, "stat"),
        Panel("Requests by outcome", "`failed`: a 5xx of the engine, not reached or no answer in time. `cancelled`: the client went away, or an answer broke off.",
              "reqps", {"{{outcome}}": by("outcome", rate(requests, "workerset"))}, stack=True),
        Panel("Turned away by kind", "Requests that Kinference answered itself; `policy`: as a rule says.",
              "reqps", {"{{kind}}": by("kind", rate(rejections))}, stack=True),
        Panel("Time to first token", "Of streamed answers, from the decision.", "s",
              {f"p{q} {{{{workerset}}}}": quantile(q / 100, "kinference_ttft_seconds", "workerset", "workerset") for q in (50, 95)}),
        Panel("Time to decide", "From the whole request to its answer: what Kinference adds to each request.", "s",
              {f"p{q}": quantile(q / 100, "kinference_decision_seconds", "") for q in (50, 99)}, limits=[(None, GOOD), (0.25, BAD)]),
        Panel("Workers by state", "Those that take requests, and why the others do not.", "short",
              {"{{state}}": f"sum by (state) ({each('kinference_workers', 'workerset, state')})"}, stack=True),
        Panel("KV events by state", "Workers by how far their KV events can be trusted; only of those that are `synced` all is known that they hold.",
              "short", {"{{state}}": f"sum by (state) ({each('kinference_workers_kv_events', 'workerset, state')})"}, stack=True),
        Panel("Requests in flight", "Our own, by worker, of all replicas.", "short",
              {"{{worker}}": each("kinference_worker_in_flight_requests", "worker", "sum")}),
        Panel("Prefill that waits", "Predicted work that is left before a worker is free, by worker; each replica knows its own requests only.",
              "s", {"{{worker}}": each("kinference_worker_backlog_seconds", "worker", "sum")}),
        Panel("KV-cache use", "As scraped, by worker.", "percentunit",
              {"{{worker}}": each("kinference_worker_kv_usage_ratio", "worker")}, limits=[(None, GOOD), (0.95, SO_SO)]),
        Panel("Age of load", "Since the last scrape of each worker.", "s",
              {"{{worker}}": each("kinference_worker_scrape_age_seconds", "worker")}, limits=[(None, GOOD), (30, BAD)]),
    ])


def tenants():
    every = ("tenant", "model", "workerset")
    requests, tokens = "kinference_requests_total", "kinference_tokens_total"
    cached = rate(tokens, *every, kind="cached_prompt")
    prompt = f"{cached} or {rate(tokens, *every, kind='uncached_prompt')}"
    rejections, accepted = rate("kinference_rejections_total", "tenant"), rate(requests, "tenant")

    def slow(metric):
        return {"{{tenant}}": quantile(0.95, metric, "tenant", *every)}

    return dashboard("tenants", "Kinference: tenants", "Who asks for what, and how fast the answers are. `_other` and `_none`: see docs/metrics.md.",
        [TENANT, MODEL, SET], [
        Panel("Requests", "Requests that ended.", "reqps", {"": by("", rate(requests, *every))}, 6, kind="stat"),
        Panel("Tokens", "Prompt and output, as engines say.", "short", {"per second": by("", rate(tokens, *every))}, 6, kind="stat"),
        Panel("Prompt tokens from cache", "Share of all prompt tokens that engines had cached.", "percentunit",
              {"": share(cached, prompt)}, 6, kind="stat"),
        Panel("Turned away", "Share of all requests that Kinference answered itself, for whatever reason.", "percentunit",
              {"": f"({by('', rejections)} or vector(0)) / {by('', f'{rejections} or {accepted}')}"}, 6, FEW_ARE_BAD, "stat"),
        Panel("Requests by tenant", "Requests that ended.", "reqps", {"{{tenant}}": by("tenant", rate(requests, *every))}, stack=True),
        Panel("Turned away by tenant", "Requests that Kinference answered itself, by kind.", "reqps",
              {"{{tenant}} {{kind}}": by("tenant, kind", rejections)}, stack=True),
        Panel("Time to first token, p95", "Of streamed answers, from the decision.", "s", slow("kinference_ttft_seconds")),
        Panel("Time to the whole answer, p95", "From the request's head.", "s", slow("kinference_e2e_seconds")),
        Panel("Time between tokens, p95", "Of streamed answers: the time after the first token, per further token.", "s",
              slow("kinference_inter_token_seconds")),
        Panel("Tokens by kind", "Per second.", "short", {"{{kind}}": by("kind", rate(tokens, *every))}, stack=True),
        Panel("Prompt tokens from cache, by tenant", "Share that engines had cached.", "percentunit",
              {"{{tenant}}": share(cached, prompt, "tenant")}),
        Panel("Tokens in the time shown", "What accounting adds up.", "short",
              {"": by("tenant, model, kind", f"increase({pick(tokens, *every)}[$__range])")}, kind="table"),
    ])


def predictions():
    of = ("model", "workerset")
    error, ratio = "kinference_ttft_error_seconds", "kinference_ttft_error_ratio"
    observed, predicted = "kinference_ttft_seconds", "kinference_ttft_predicted_seconds"
    decisions = "kinference_decisions_total"

    def both(q):
        return {"predicted": quantile(q, predicted, "", *of), "observed": quantile(q, observed, "", *of)}

    def bias(labels=""):
        over, under = (by(labels, rate(f"{error}_sum", *of, sign=sign)) for sign in ("over", "under"))
        count = by(labels, rate(f"{error}_count", *of))
        none = f"({count} * 0)"
        return f"(({over} or {none}) - ({under} or {none})) / {count}"

    return dashboard("predictions", "Kinference: predictions", "How good predictions and tokens are, and what decisions were made on.", [MODEL, SET], [
        Panel("Mean error", "Mean distance of prediction and observation, as a share of what was observed.", "percentunit",
              {"": mean(ratio, "", *of)}, 6, [(None, GOOD), (0.5, SO_SO), (0.75, BAD)], "stat"),
        Panel("Bias", "Positive: first tokens come sooner than predicted.", "s", {"": bias()}, 6, kind="stat"),
        Panel("Made on the prompt", "Share of the decisions that knew the prompt's tokens.", "percentunit",
              {"": share(rate(decisions, *of, basis="prompt"), rate(decisions, *of))}, 6,
              [(None, BAD), (0.5, SO_SO), (0.9, GOOD)], "stat"),
        Panel("Spread", "Decisions per second that spread a hot prefix to another worker.", "ops",
              {"": by("", rate("kinference_decisions_replicated_total", *of))}, 6, kind="stat"),
        Panel("Time to first token, median", "Of picks made on the prompt. Observed: of all streamed answers.", "s", both(0.5)),
        Panel("Time to first token, p95", "The same.", "s", both(0.95)),
        Panel("Mean error by model", "As a share of what was observed.", "percentunit", {"{{model}}": mean(ratio, "model", *of)},
              limits=[(None, GOOD), (0.75, BAD)]),
        Panel("Bias by model", "Positive: first tokens come sooner than predicted.", "s", {"{{model}}": bias("model")}, signed=True),
        Panel("Errors", "How many predictions are how far off, as a share of what was observed.", "percentunit",
              {"{{le}}": by("le", rate(f"{ratio}_bucket", *of))}, kind="heatmap"),
        Panel("Knowledge that was missing", "Decisions made on less than full knowledge, by what was missing.", "ops",
              {"{{reason}}": by("reason", rate("kinference_decisions_degraded_total", *of))}, stack=True),
        Panel("Prompts tokenized", "By what made the tokens, and how it ended.", "ops",
              {"{{means}} {{outcome}}": by("means, outcome", rate("kinference_tokenize_total"))}, stack=True),
        Panel("Local tokens against the engine's", "`different` is a mismatch: cached prefixes are not found.", "ops",
              {"{{outcome}}": by("outcome", rate("kinference_tokenize_comparisons_total"))}),
        Panel("Stages of a decision", "Mean time of each.", "s", {"{{stage}}": mean("kinference_decision_stage_seconds", "stage")}, stack=True),
        Panel("Decisions by basis", "On the `prompt`, or on `load` alone.", "ops", {"{{basis}}": by("basis", rate(decisions, *of))}, stack=True),
    ])


def main():
    stale = []
    for made in (fleet(), tenants(), predictions()):
        path = HERE / f"{made['uid'].removeprefix('kinference-')}.json"
        text = json.dumps(made, indent=1) + "\n"
        if "--check" not in sys.argv[1:]:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(path.name)
    if stale:
        sys.exit(f"out of date: {', '.join(stale)}; config/grafana/generate.py renews them")


if __name__ == "__main__":
    main()
