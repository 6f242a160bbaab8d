// One decision in a dialog: every candidate with every term of its prediction, who was none, what the rules did.

import { byId, count, el, fill, ms, NONE, percent, say, share, svg, things, unknown } from "./dom.js";

// The terms of a prediction, in the order of the formula; they add up to it.
const TERMS = [
  ["base_ms", "base"],
  ["forward_pass_ms", "forward pass"],
  ["backlog_ms", "own backlog"],
  ["queue_ms", "queue"],
  ["prefill_ms", "prefill"],
  ["running_ms", "running"],
  ["cache_pressure_ms", "cache pressure"],
  ["saturated_cold_ms", "saturated and cold"],
  ["assumed_ms", "assumed"],
  ["provider_ms", "provider"],
];
const EFFECTS = {
  narrowed: "narrowed",
  would_empty: "would leave nobody",
  none_preferred: "none is preferred: all stay",
  ordered: "ordered",
};
const MOST = 50;

byId("detail-close").addEventListener("click", () => byId("detail").close());

export function drawDetail(one, state) {
  say(byId("detail-title"), `Decision ${one.seq}`);
  fill(byId("detail-body"), facts(one, state), stages(one), ...(one.decision ? candidates(one.decision) : refusal(one.rejection)), rules(one), removed(one.decision ?? one.rejection));
  const dialog = byId("detail");
  if (!dialog.open) dialog.showModal();
  byId("detail-title").focus();
  dialog.scrollTop = 0;
}

function facts(one, state) {
  const { decision, ending } = one;
  const usage = ending?.usage;
  const cached = usage && usage.cached_tokens !== null ? `, ${count(usage.cached_tokens)} cached (measured)` : "";
  const served = ending && servedBy(ending.served_by, decision, state);
  const all = [
    ["Request", one.request_id],
    ["Time", one.time],
    ["Call", one.call],
    ["Model", one.model],
    ["Tenant", one.tenant],
    ["Tags", one.tags.join(", ")],
    ["Pool", one.pool],
    ["Trace", one.trace_id],
    ["Prompt", decision?.prompt_tokens ? `${count(decision.prompt_tokens)} tokens` : null],
    ["Lacking", one.degraded.join(", ")],
    ["Fallbacks", decision?.fallbacks.map((at) => who(decision.candidates[at])).join(", ")],
    ["Outcome", ending ? `${ending.outcome.replace("_", " ")} after ${ms(ending.took_ms)}, by ${served}` : decision ? "open" : null],
    ["Observed TTFT", ending?.ttft_ms ? ms(ending.ttft_ms) : null],
    ["Used", usage ? `${count(usage.prompt_tokens)} prompt tokens${cached}, ${things(usage.completion_tokens, "token")} answered` : null],
  ];
  return el("dl", { class: "facts" }, all.filter(([, text]) => text).map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text))));
}

/** No worker: the provider that was picked. */
function servedBy(worker, decision, state) {
  if (worker === null) return who(decision.candidates[decision.chosen]);
  return state.workers.get(worker)?.name ?? `worker ${worker}`;
}

function who(candidate) {
  return candidate.worker ? candidate.worker.name : `provider/${candidate.provider.name}`;
}

function stages(one) {
  const all = Object.entries(one.stages);
  const width = Math.max(1, one.took_us);
  const bar = svg("svg", { viewBox: "0 0 1000 14", preserveAspectRatio: "none", class: "stack", "aria-hidden": "true" });
  all.forEach(([, stage], at) =>
    bar.append(svg("rect", { x: (stage.from_us / width) * 1000, y: 0, width: Math.max(1.5, (stage.took_us / width) * 1000), height: 14, class: `term t${at}` })),
  );
  const words = all.map(([name, stage], at) => el("li", { class: `t${at}` }, `${name} ${ms(stage.took_us / 1000)}`));
  return el("section", {}, el("h3", {}, `Stages: decided after ${ms(one.took_us / 1000)}`), bar, el("ul", { class: "legend terms" }, words));
}

function candidates(decision) {
  const rows = [
    ...decision.candidates.map((one, at) => ({ one, note: note(decision, at) })),
    ...decision.taken.map((one) => ({ one, note: "removed by a rule", taken: true })),
  ];
  const widest = Math.max(1, ...rows.map(({ one }) => one.prediction.ttft_ms));
  const used = TERMS.filter(([key]) => rows.some(({ one }) => one.prediction[key] > 0));
  const head = ["Candidate", "Predicted", ...used.map(([, name]) => name), "Cached blocks, predicted", "Waiting", "Running", "KV use", "In flight"];
  const header = el("tr", {}, head.map((name, at) => el("th", { scope: "col", class: at ? "n" : null }, name)));
  const body = rows.slice(0, MOST).map((row) => candidate(row, widest, used));
  const more = rows.length > MOST ? el("p", { class: "faint" }, `${rows.length - MOST} slower ones are not listed.`) : null;
  const legend = el("ul", { class: "legend terms" }, used.map(([key, name]) => el("li", { class: `t${index(key)}` }, name)));
  const table = el("table", { class: "candidates" }, el("caption", { class: "hidden" }, "Candidates, the best first, with every term of the prediction"), el("thead", {}, header), el("tbody", {}, body));
  return [
    el("section", {}, el("h3", {}, `Candidates: ${count(rows.length)}`), legend, el("div", { class: "scroll", role: "region", "aria-label": "Candidates", tabindex: 0 }, table), more),
  ];
}

function index(key) {
  return TERMS.findIndex(([name]) => name === key);
}

function note(decision, at) {
  if (at === decision.chosen) return "chosen";
  const fallback = decision.fallbacks.indexOf(at);
  return fallback < 0 ? "" : `fallback ${fallback + 1}`;
}

function candidate({ one, note: words, taken }, widest, used) {
  const { prediction: p, degraded } = one;
  const bar = svg("svg", { viewBox: "0 0 1000 10", preserveAspectRatio: "none", class: "stack", "aria-hidden": "true" });
  let x = 0;
  for (const [key] of used) {
    const width = (p[key] / widest) * 1000;
    bar.append(svg("rect", { x, y: 0, width, height: 10, class: `term t${index(key)}` }));
    x += width;
  }
  const lacking = degraded.map((what) => el("span", { class: "tag warn" }, what));
  const name = el("th", { scope: "row" }, el("span", { class: "name" }, who(one)), words ? el("span", { class: "tag" }, words) : null, lacking, one.model ? el("span", { class: "faint small" }, one.model) : null, bar);
  const why = unseen(one);
  const known = (text) => (why ? unknown(why) : text);
  const cached = p.blocks ? `${count(p.cached_blocks)} of ${count(p.blocks)} (${percent(share(p.cached_blocks, p.blocks))})` : NONE;
  const numbers = [ms(p.ttft_ms), ...used.map(([key]) => (p[key] ? ms(p[key]) : NONE)), cached, known(count(one.waiting)), known(count(p.running)), known(percent(p.kv_usage)), count(one.own_in_flight)];
  return el("tr", { "data-chosen": words === "chosen", "data-taken": Boolean(taken) }, name, numbers.map((text) => el("td", { class: "n" }, text)));
}

/** Why the load of a candidate was not known, where it was not. */
function unseen({ provider, degraded }) {
  if (provider) return "a provider does not say";
  return degraded.includes("no_metrics") ? "its /metrics had not been read" : null;
}

function refusal(rejection) {
  return [el("section", {}, el("h3", {}, "Turned away"), el("p", {}, el("span", { class: "tag bad" }, `${rejection.status} ${rejection.kind}`), ` ${rejection.message}`))];
}

function rules({ decision, rejection }) {
  const ruled = decision?.ruled ?? rejection?.ruled;
  if (!ruled) return null;
  const said = ruled.rules.map((rule) => {
    const generation = rule.generation ? ` (generation ${rule.generation})` : "";
    const passed = rule.passed_on ? ": it left nobody and passed the request on" : "";
    return el("li", {}, el("strong", {}, `${rule.policy}/${rule.rule}`), `${generation}${passed}`, el("ol", {}, rule.steps.map(step)));
  });
  const unknown = ruled.unknown.map((rule) => el("li", {}, el("strong", {}, `${rule.policy}/${rule.rule}`), ` can't be told: ${rule.why}`));
  const all = [...said, ...unknown];
  return el("section", {}, el("h3", {}, `Rules of ${ruled.pool} for ${ruled.model}`), all.length ? el("ul", { class: "rules" }, all) : el("p", { class: "faint" }, "None: by prediction alone."));
}

function step({ effect, removed: gone, text }) {
  const words = typeof effect === "string" ? EFFECTS[effect] : `others are faster by ${ms(effect.others_faster)}: all stay`;
  return el("li", {}, text ? [el("code", {}, text), ": "] : null, words ?? String(effect), gone.length ? `; removed ${gone.map((one) => one.who).join(", ")}` : "");
}

function removed(told) {
  // Whom a rule took away is among the candidates.
  const all = (told?.removed ?? []).filter((one) => one.reason !== "policy");
  if (!all.length) return null;
  const shown = all.slice(0, MOST).map((one) => el("li", {}, el("strong", {}, one.who), one.model ? ` for ${one.model}` : "", `: ${one.reason.replaceAll("_", " ")}`));
  const more = all.length > MOST ? el("li", { class: "faint" }, `and ${all.length - MOST} more`) : null;
  return el("section", {}, el("h3", {}, `No candidates: ${count(all.length)}`), el("ul", {}, shown, more));
}
