// The page: follows /api/events, keeps what it was told, draws what changed.

import { byId, clock, say } from "./dom.js";
import { drawCharts } from "./charts.js";
import { drawDecisions, forget } from "./decisions.js";
import { drawFleet } from "./fleet.js";
import { drawProviders } from "./providers.js";
import { drawBanners, drawLacking, drawNews, drawPolicies, drawTenants, drawTiles } from "./panels.js";

// Nothing at all for this long: the connection is dead, whatever the browser thinks.
const SILENCE_MS = 15000;
const RETRY_MS = 2000;
const MOST_DECISIONS = 200;

const PARTS = ["server", "readiness", "news", "totals", "tenants", "policies", "providers", "degradations", "fleet"];
// What to draw again when a part changed.
const DRAWN_BY = {
  server: [drawBanners, drawFleet, drawCharts],
  readiness: [drawBanners, drawFleet],
  news: [drawNews],
  totals: [drawTiles],
  tenants: [drawTenants],
  policies: [drawPolicies, drawBanners, drawProviders],
  providers: [drawProviders],
  degradations: [drawLacking],
  fleet: [drawFleet, drawTiles],
  workers: [drawFleet],
  buckets: [drawCharts, drawTiles],
  decisions: [drawDecisions],
};

let state = blank();
let source = null;
let heard = Date.now();
let lost = null;
let retry = null;
const due = new Set();

function blank() {
  return { now: Date.now(), bucket: 0, workers: new Map(), buckets: new Map(), decisions: new Map() };
}

function take(message) {
  state.now = message.now_ms;
  const moved = state.bucket !== message.bucket;
  state.bucket = message.bucket;
  for (const name of PARTS) {
    if (name in message) {
      state[name] = message[name];
      wants(name);
    }
  }
  for (const worker of message.workers ?? []) state.workers.set(worker.id, worker);
  for (const id of message.removed ?? []) state.workers.delete(id);
  if (message.workers || message.removed) wants("workers");
  for (const bucket of message.buckets ?? []) state.buckets.set(bucket.n, bucket);
  for (const n of state.buckets.keys()) if (n <= state.bucket - (state.server?.buckets ?? 90)) state.buckets.delete(n);
  if (moved || message.buckets) wants("buckets");
  for (const decision of message.decisions ?? []) state.decisions.set(decision.seq, decision);
  // Here, and not where they are drawn: a page in the background draws nothing.
  for (const seq of [...state.decisions.keys()].slice(0, -MOST_DECISIONS)) state.decisions.delete(seq);
  for (const { seq, ending } of message.ended ?? []) {
    const decision = state.decisions.get(seq);
    if (decision) state.decisions.set(seq, { ...decision, ending });
  }
  if (message.decisions || message.ended) wants("decisions");
}

function wants(name) {
  if (due.size === 0) requestAnimationFrame(draw);
  for (const drawing of DRAWN_BY[name]) due.add(drawing);
}

function draw() {
  const now = [...due];
  due.clear();
  // Before the first snapshot nothing is known, and the page says so.
  if (!state.server) return;
  for (const drawing of now) drawing(state);
}

function redraw() {
  Object.keys(DRAWN_BY).forEach(wants);
}

function connection(name, text) {
  const shown = byId("connection");
  document.body.dataset.connection = name;
  shown.dataset.state = name;
  say(shown, text);
}

function address() {
  const search = byId("search").value.trim();
  return `api/events${search ? `?search=${encodeURIComponent(search)}` : ""}`;
}

function listen() {
  clearTimeout(retry);
  source?.close();
  source = new EventSource(address());
  heard = Date.now();
  source.addEventListener("snapshot", (event) => {
    const kept = state.decisions;
    state = blank();
    lost = null;
    take(JSON.parse(event.data));
    // Numbers of another process are other decisions.
    const known = [...state.decisions.values()].every((one) => !kept.has(one.seq) || kept.get(one.seq).time === one.time);
    if (known && state.decisions.size) state.decisions = new Map([...kept, ...state.decisions].sort(([a], [b]) => a - b));
    else forget();
    heardOf();
    redraw();
  });
  source.addEventListener("delta", (event) => {
    take(JSON.parse(event.data));
    heardOf();
  });
  source.addEventListener("beat", (event) => {
    state.now = JSON.parse(event.data).now_ms;
    heardOf();
  });
  source.addEventListener("error", () => lose());
}

function heardOf() {
  heard = Date.now();
  const server = state.server ? `${state.server.replica} · ${state.server.version}` : "";
  say(byId("server"), server);
  connection("live", "Live");
}

/** The connection is lost: says since when, and tries again. */
function lose() {
  source.close();
  lost ??= new Date();
  connection("lost", `Disconnected since ${clock(lost)}, trying again`);
  clearTimeout(retry);
  retry = setTimeout(attempt, RETRY_MS);
}

/** Looks whether there is a stream before it listens to it: a stream does not tell why there is none. */
async function attempt() {
  const look = new AbortController();
  try {
    const answer = await fetch(address(), { cache: "no-store", signal: look.signal });
    if (answer.ok) {
      look.abort();
      return listen();
    }
    connection("lost", `Disconnected since ${clock(lost)}: ${(await answer.text()).trim() || answer.status}`);
  } catch {
    // Not there: stays as it is said.
  }
  retry = setTimeout(attempt, RETRY_MS);
}

setInterval(() => {
  if (!lost && source && Date.now() - heard > SILENCE_MS) lose();
}, 1000);

function theme() {
  const select = byId("theme");
  const apply = (value) => {
    if (value === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = value;
  };
  let kept = "auto";
  try {
    kept = localStorage.getItem("theme") ?? "auto";
  } catch {
    // No storage: as the system has it.
  }
  select.value = ["light", "dark"].includes(kept) ? kept : "auto";
  apply(select.value);
  select.addEventListener("change", () => {
    apply(select.value);
    try {
      localStorage.setItem("theme", select.value);
    } catch {
      // It holds for this page only.
    }
  });
}

let typing = null;
byId("search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(listen, 300);
});
byId("pause").addEventListener("click", () => wants("decisions"));
addEventListener("redraw", redraw);
new ResizeObserver(() => wants("buckets")).observe(byId("ttft"));
theme();
connection("connecting", "Connecting");
listen();
