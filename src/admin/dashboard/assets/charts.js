// Line charts of the last 15 minutes, as inline SVG with the same numbers in a table.

import { byId, count, el, fill, ms, percent, share, svg } from "./dom.js";

const HEIGHT = 190;
const PAD = { top: 10, right: 12, bottom: 24, left: 58 };

const TTFT = [
  { name: "observed p50", className: "observed", of: (b) => b.observed_ms?.[0] },
  { name: "predicted p50", className: "predicted", of: (b) => b.predicted_ms?.[0] },
  { name: "observed p95", className: "observed thin", of: (b) => b.observed_ms?.[1] },
  { name: "predicted p95", className: "predicted thin", of: (b) => b.predicted_ms?.[1] },
];
const CACHED = [{ name: "cached share of prompt tokens, measured", className: "cached", of: (b) => share(b.cached_tokens, b.prompt_tokens) }];

export function drawCharts(state) {
  const buckets = [...state.buckets.values()].sort((a, b) => a.n - b.n);
  chart(byId("ttft"), { buckets, state, lines: TTFT, format: ms, top: null, label: "Time to first token, predicted and observed" });
  chart(byId("cached"), { buckets, state, lines: CACHED, format: percent, top: 1, bars: (b) => b.decisions, label: "Cached share of prompt tokens, measured, and requests" });
  table("ttft-table", buckets, state, [
    ["Requests", (b) => count(b.ended)],
    ...TTFT.map((line) => [line.name, (b) => ms(line.of(b))]),
  ]);
  table("cached-table", buckets, state, [
    ["Requests", (b) => count(b.decisions)],
    ["Rejected", (b) => count(b.rejected)],
    ["Failed", (b) => count(b.failed)],
    ["Prompt tokens", (b) => count(b.prompt_tokens)],
    ["Cached, measured", (b) => percent(CACHED[0].of(b))],
  ]);
}

function chart(holder, { buckets, state, lines, format, top, bars, label }) {
  const width = Math.max(240, holder.clientWidth || 600);
  const all = state.server?.buckets ?? 90;
  const first = state.bucket - all + 1;
  const highest = top ?? ceiling(Math.max(1, ...lines.flatMap((line) => buckets.map((b) => line.of(b) ?? 0))));
  const inner = { width: width - PAD.left - PAD.right, height: HEIGHT - PAD.top - PAD.bottom };
  const x = (n) => PAD.left + ((n - first + 0.5) / all) * inner.width;
  const y = (value) => PAD.top + inner.height * (1 - Math.min(1, value / highest));
  const picture = svg("svg", { width, height: HEIGHT, role: "img", "aria-label": `${label}. ${summary(buckets, lines, format)}` });
  picture.append(...grid({ width, highest, y, format }), ...times({ width, inner, secs: all * (state.server?.bucket_secs ?? 10) }));
  if (bars) picture.append(...columns({ buckets, bars, x, inner, all }));
  lines.forEach((line) => picture.append(...segments(buckets, line, x, y)));
  const legend = el("ul", { class: "legend" }, lines.map((line) => el("li", { class: line.className }, line.name)));
  if (bars) legend.append(el("li", { class: "bars" }, `requests, at most ${count(Math.max(0, ...buckets.map(bars)))} in 10 s`));
  const rest = buckets.length ? null : el("p", { class: "empty over" }, "No request in the last 15 minutes.");
  fill(holder, picture, legend, rest);
}

function summary(buckets, lines, format) {
  const last = buckets.findLast((b) => lines[0].of(b) !== null && lines[0].of(b) !== undefined);
  return last ? `Latest: ${lines.map((line) => `${line.name} ${format(line.of(last))}`).join(", ")}.` : "Nothing yet.";
}

/** The next round number above. */
function ceiling(value) {
  const step = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 3, 4, 5, 8, 10].map((times) => times * step).find((round) => round >= value) ?? value;
}

function grid({ width, highest, y, format }) {
  return [0, 0.25, 0.5, 0.75, 1].flatMap((part) => {
    const at = y(highest * part);
    const label = svg("text", { x: PAD.left - 8, y: at + 4, class: "axis", "text-anchor": "end" }, part % 0.5 ? "" : format(highest * part));
    return [svg("line", { x1: PAD.left, x2: width - PAD.right, y1: at, y2: at, class: "grid" }), label];
  });
}

function times({ width, inner, secs }) {
  const minutes = secs / 60;
  const every = width < 420 ? 5 : minutes / 5;
  const labels = [];
  for (let minute = minutes; minute >= 0; minute -= every) {
    const x = PAD.left + inner.width * (1 - minute / minutes);
    const anchor = minute === 0 ? "end" : minute === minutes ? "start" : "middle";
    labels.push(svg("text", { x, y: HEIGHT - 6, class: "axis", "text-anchor": anchor }, minute === 0 ? "now" : `−${minute} min`));
  }
  return labels;
}

function columns({ buckets, bars, x, inner, all }) {
  const most = Math.max(1, ...buckets.map(bars));
  const width = Math.max(1, inner.width / all - 1);
  return buckets.map((b) => {
    const height = (bars(b) / most) * inner.height;
    return svg("rect", { x: x(b.n) - width / 2, y: PAD.top + inner.height - height, width, height, class: "column" });
  });
}

/** A line, broken where there is nothing; a point that stands alone is a dot. */
function segments(buckets, line, x, y) {
  const runs = [];
  let last = null;
  for (const b of buckets) {
    const value = line.of(b);
    if (value === null || value === undefined) continue;
    // A quiet bucket or two do not break it.
    if (last === null || b.n - last > 3) runs.push([]);
    runs.at(-1).push([x(b.n), y(value)]);
    last = b.n;
  }
  return runs.map((points) =>
    points.length === 1
      ? svg("circle", { cx: points[0][0], cy: points[0][1], r: 2.5, class: `dot ${line.className}` })
      : svg("polyline", { points: points.map((at) => at.map((v) => v.toFixed(1)).join(",")).join(" "), class: `line ${line.className}` }),
  );
}

function table(id, buckets, state, columnsOf) {
  const details = byId(id);
  if (!details.open) return;
  const secs = state.server?.bucket_secs ?? 10;
  const head = el("tr", {}, el("th", { scope: "col" }, "Before now"), columnsOf.map(([name]) => el("th", { scope: "col", class: "n" }, name)));
  const body = buckets.toReversed().map((b) => {
    const ago = (state.bucket - b.n) * secs;
    const when = ago === 0 ? "now" : `${Math.floor(ago / 60)} min ${ago % 60} s`;
    return el("tr", {}, el("th", { scope: "row" }, when), columnsOf.map(([, of]) => el("td", { class: "n" }, of(b))));
  });
  fill(details.querySelector("div"), el("table", {}, el("thead", {}, head), el("tbody", {}, body)));
}

for (const id of ["ttft-table", "cached-table"]) {
  byId(id).addEventListener("toggle", () => dispatchEvent(new Event("redraw")));
}
