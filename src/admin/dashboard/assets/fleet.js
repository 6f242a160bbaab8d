// The table of workers.

import { ago, byId, cell, count, el, fill, ms, NONE, number, percent, say, show, unknown } from "./dom.js";

const NEVER_SCRAPED = "its /metrics has not been read";
const NO_EVENTS = "its KV events are not followed";
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
  const { load, health } = worker;
  // Who was set apart on purpose is no outage.
  const shown = worker.set_apart ? "cordoned" : health.state;
  row.dataset.state = shown;
  row.dataset.worker = worker.name;
  const scraped = (text) => (worker.degraded.includes("no_metrics") ? unknown(NEVER_SCRAPED) : text());
  const set = `${worker.workerset} · ${worker.endpoint}`;
  fill(
    row,
    cell("State", el("span", { class: "state" }, shown)),
    el("th", { scope: "row", role: "rowheader", "data-label": "Worker" }, el("span", { class: "name" }, worker.name), el("span", { class: "faint small" }, set), reasons(worker)),
    cell("Models", worker.models.join(", ") || NONE, { class: "models" }),
    number("In flight", count(load.in_flight)),
    number("Queue", scraped(() => count(load.queue))),
    number("Running", scraped(() => count(load.running))),
    number("KV use", scraped(() => meter(load.kv_usage))),
    number("Blocks", held(worker)),
    number("Cached, measured", percent(worker.hit_share)),
    number("Event lag", lag(worker, state.now)),
    number("Picks", count(worker.picks)),
  );
}

/** What is wrong with it, and what is not but has to be known. */
function reasons({ health, warming, set_apart: apart }) {
  const calm = (at) => (at === 0 && apart ? { class: "calm" } : {});
  const all = health.why.map((reason, at) => el("li", calm(at), reason));
  if (warming && health.state !== "out") all.push(el("li", { class: "calm" }, "warming up: it has answered nothing yet, and gets a few requests at a time"));
  return all.length ? el("ul", { class: "why" }, all) : null;
}

function held({ blocks, degraded }) {
  if (!blocks.gpu && !blocks.lower && degraded.includes("no_kv_events")) return unknown(NO_EVENTS);
  return blocks.lower ? `${count(blocks.gpu)} + ${count(blocks.lower)}` : count(blocks.gpu);
}

function meter(share) {
  const level = el("span", { class: share > 0.9 ? "level full" : "level" });
  level.style.inlineSize = `${Math.min(100, share * 100)}%`;
  return el("span", { class: "meter" }, el("span", { class: "track", "aria-hidden": "true" }, level), percent(share));
}

function lag(worker, now) {
  if (worker.events_at_ms === null) return NONE;
  return el("span", { title: `last events ${ago(worker.events_at_ms, now)}` }, ms(worker.events_lag_ms));
}

function note({ fleet, server, readiness }) {
  if (!fleet) return;
  const parts = [`${fleet.ok} ok`, `${fleet.degraded} degraded`, `${fleet.out} out`];
  if (fleet.cordoned) parts.push(`${fleet.cordoned} cordoned`);
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
