// The stream of decisions, and one of them with everything that it followed from.

import { byId, cell, clock, count, el, ms, NONE, number, percent, say, share, show, things } from "./dom.js";
import { drawDetail } from "./detail.js";

const MOST = 100;
const rows = new Map();
let paused = false;
let newest = 0;

byId("pause").addEventListener("click", () => {
  paused = !paused;
  const button = byId("pause");
  button.setAttribute("aria-pressed", String(paused));
  say(button, paused ? "Go on" : "Pause");
});

/** All that was shown is of another process. */
export function forget() {
  rows.clear();
  newest = 0;
  byId("decisions").tBodies[0].replaceChildren();
}

export function drawDecisions(state) {
  const all = [...state.decisions.values()];
  const body = byId("decisions").tBodies[0];
  if (!paused) {
    for (const decision of all.slice(-MOST)) {
      if (!rows.has(decision.seq)) {
        const row = el("tr", { role: "row" });
        rows.set(decision.seq, row);
        body.prepend(row);
      }
    }
    newest = all.at(-1)?.seq ?? newest;
    for (const seq of [...rows.keys()].slice(0, -MOST)) {
      rows.get(seq).remove();
      rows.delete(seq);
    }
  }
  for (const [seq, row] of rows) {
    const decision = state.decisions.get(seq);
    if (decision && row.shown !== decision) draw(row, decision, state);
  }
  note(state, all);
}

function note(state, all) {
  const parts = [];
  if (paused) parts.push(`paused, ${things(Math.max(0, (all.at(-1)?.seq ?? newest) - newest), "new one")}`);
  const first = rows.keys().next().value;
  const gone = rows.size ? newest - first + 1 - rows.size : 0;
  if (gone > 0) parts.push(`${things(gone, "more was", "more were")} too fast to show`);
  say(byId("stream-note"), parts.join("; "));
  say(byId("stream-empty"), "No request yet.");
  show(byId("stream-empty"), rows.size === 0);
  show(byId("decisions"), rows.size > 0);
}

/** Who it went to. */
function target(candidate) {
  return candidate.worker ? candidate.worker.name : `provider/${candidate.provider.name}`;
}

function draw(row, one, state) {
  const { decision, rejection, ending } = one;
  const fresh = !row.shown;
  row.shown = one;
  row.dataset.seq = one.seq;
  row.dataset.outcome = rejection ? "rejected" : (ending?.outcome ?? "open");
  const chosen = decision?.candidates[decision.chosen];
  const predicted = chosen?.prediction.ttft_ms;
  const served = ending && state.workers.get(ending.served_by)?.name;
  const name = chosen ? target(chosen) : NONE;
  const went = served && served !== name ? `${name} → ${served}` : name;
  if (fresh) {
    const words = `Decision ${one.seq} at ${clock(one.time)}: ${rejection ? "turned away" : name}`;
    const button = el("button", { type: "button", class: "link", "aria-label": words }, clock(one.time));
    button.addEventListener("click", () => drawDetail(row.shown, state));
    row.append(cell("Time", button, { class: "first" }));
  }
  while (row.cells.length > 1) row.cells[1].remove();
  const guessed = chosen ? share(chosen.prediction.cached_blocks, chosen.prediction.blocks) : null;
  const usage = ending?.usage;
  const measured = usage && usage.cached_tokens !== null ? share(usage.cached_tokens, usage.prompt_tokens) : null;
  row.append(
    cell("Went to", went, { class: "first" }),
    number("TTFT, predicted", ms(predicted)),
    number("TTFT, observed", ms(ending?.ttft_ms)),
    number("Cached, predicted", percent(guessed)),
    number("Cached, measured", percent(measured)),
    number("Tokens", count(decision?.prompt_tokens)),
    cell("Model", one.model ?? NONE, { class: "clip" }),
    cell("Tenant", one.tenant ?? NONE, { class: "clip" }),
    cell("Outcome", end(one)),
    cell("Notes", notes(one), { class: "notes" }),
  );
}

function end({ rejection, ending }) {
  if (rejection) return el("span", { class: "tag bad" }, `${rejection.status} ${rejection.kind}`);
  if (!ending) return el("span", { class: "faint" }, "open");
  const tone = { failed: "bad", refused: "bad", client_error: "warn", cancelled: "warn" }[ending.outcome];
  const words = `${ending.outcome.replace("_", " ")} after ${ms(ending.took_ms)}`;
  return tone ? el("span", { class: `tag ${tone}` }, words) : words;
}

function notes({ decision, rejection, degraded }) {
  const all = degraded.map((what) => el("span", { class: "tag warn" }, what));
  const ruled = decision?.ruled ?? rejection?.ruled;
  for (const rule of ruled?.rules ?? []) {
    const removed = rule.steps.reduce((sum, step) => sum + step.removed.length, 0);
    all.push(el("span", { class: "tag" }, `${rule.policy}/${rule.rule}${removed ? ` −${removed}` : ""}`));
  }
  if (decision?.replicated) all.push(el("span", { class: "tag" }, "replicated"));
  const removed = decision?.removed.filter((one) => one.reason !== "policy").length;
  if (removed) all.push(el("span", { class: "tag" }, `${removed} no candidate`));
  return el("span", { class: "tags" }, all);
}
