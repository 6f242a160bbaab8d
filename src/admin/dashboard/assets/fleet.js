// The table of workers.

import { byId, cell, count, el, fill, ms, NONE, number, percent, say, show } from "./dom.js";

const WORDS = { ok: "ok", degraded: "degraded", out: "out" };
const rows = new Map();

export function drawFleet(state) {
  const body = byId("fleet").tBodies[0];
  const sorted = [...state.workers.values()].sort((a, b) => a.id - b.id);
  for (const [id, row] of rows) {
    if (!state.workers.has(id)) {
      row.remove();
      rows.delete(id);
    }
  }
  sorted.forEach((worker, at) => {
    let row = rows.get(worker.id);
    if (!row) {
      // As a card it is no table any more to a browser, unless it is told.
      row = el("tr", { role: "row" });
      rows.set(worker.id, row);
    }
    if (row.shown !== worker || row.now !== Math.floor(state.now / 1000)) {
      row.shown = worker;
      row.now = Math.floor(state.now / 1000);
      draw(row, worker, state);
    }
    if (body.children[at] !== row) body.insertBefore(row, body.children[at] ?? null);
  });
  note(state);
}

function draw(row, worker, state) {
  const { load, health, blocks } = worker;
  row.dataset.state = health.state;
  row.dataset.worker = worker.name;
  const why = health.why.length ? el("ul", { class: "why" }, health.why.map((reason) => el("li", {}, reason))) : null;
  const set = `${worker.workerset} · ${worker.endpoint}`;
  fill(
    row,
    cell("State", el("span", { class: "state" }, WORDS[health.state])),
    el("th", { scope: "row", role: "rowheader", "data-label": "Worker" }, el("span", { class: "name" }, worker.name), el("span", { class: "faint small" }, set), why),
    cell("Models", worker.models.join(", ") || NONE, { class: "models" }),
    number("In flight", count(load.in_flight)),
    number("Queue", count(load.queue)),
    number("Running", count(load.running)),
    number("KV use", meter(load.kv_usage)),
    number("Blocks", blocks.lower ? `${count(blocks.gpu)} + ${count(blocks.lower)}` : count(blocks.gpu)),
    number("Hit share", percent(worker.hit_share)),
    number("Event lag", lag(worker, state.now)),
    number("Picks", count(worker.picks)),
  );
}

function meter(share) {
  const level = el("span", { class: share > 0.9 ? "level full" : "level" });
  level.style.inlineSize = `${Math.min(100, share * 100)}%`;
  return el("span", { class: "meter" }, el("span", { class: "track", "aria-hidden": "true" }, level), percent(share));
}

function lag(worker, now) {
  if (worker.events_at_ms === null) return NONE;
  const ago = Math.max(0, Math.floor((now - worker.events_at_ms) / 1000));
  const words = `last events ${ago} s ago`;
  return el("span", { title: words }, ms(worker.events_lag_ms));
}

function note({ fleet, server, readiness }) {
  if (!fleet) return;
  const parts = [`${fleet.ok} ok`, `${fleet.degraded} degraded`, `${fleet.out} out`];
  if (fleet.search) parts.push(`${fleet.matching} of ${fleet.total} match`);
  if (fleet.hidden) parts.push(`${fleet.hidden} not shown: search for them`);
  say(byId("fleet-note"), parts.join(", "));
  const empty = byId("fleet-empty");
  show(empty, fleet.shown === 0);
  show(byId("fleet"), fleet.shown > 0);
  if (fleet.shown > 0) return;
  if (fleet.search && fleet.total) say(empty, `No worker matches “${fleet.search}”.`);
  else if (fleet.total) say(empty, "No worker is to be shown: dashboard_max_workers is 0.");
  else say(empty, `No worker is known. ${(readiness?.reasons ?? []).slice(1).join("; ")}`.trim());
  if (server?.mock_mode) empty.append(" Mock mode is on.");
}
