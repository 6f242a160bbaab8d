// What is beside the workers and the decisions: tiles, banners, news, degradations, tenants, policies.

import { byId, clock, count, el, fill, ms, NONE, percent, say, share, show, things } from "./dom.js";

export function drawTiles(state) {
  const { totals, fleet } = state;
  const secs = state.server?.bucket_secs ?? 10;
  const last = state.buckets.get(state.bucket - 1);
  const [p50, p95] = totals.observed_ms ?? [null, null];
  const [guess, guess95] = totals.predicted_ms ?? [null, null];
  const workers = fleet.out ? "bad" : fleet.degraded ? "warn" : "good";
  const apart = fleet.cordoned ? `, ${fleet.cordoned} cordoned` : "";
  fill(
    byId("tiles"),
    tile("Workers ok", `${fleet.ok} of ${fleet.total}`, fleet.total ? `${fleet.degraded} degraded, ${fleet.out} out${apart}` : "none is known", workers),
    tile("Requests a second", count((last?.decisions ?? 0) / secs), `${count(totals.decisions)} in 15 minutes${sampled(totals)}`),
    tile("TTFT p50", ms(p50), `predicted ${ms(guess)}`),
    tile("TTFT p95", ms(p95), `predicted ${ms(guess95)}`),
    tile("Cached, measured", percent(share(totals.cached_tokens, totals.prompt_tokens)), `of ${count(totals.prompt_tokens)} prompt tokens`),
    tile("Turned away", count(totals.rejected), `${things(totals.failed, "failure")} of engines`, totals.rejected || totals.failed ? "warn" : null),
  );
}

function sampled(totals) {
  return totals.decisions > totals.seen ? `; sampled: ${count(totals.seen)} looked at` : "";
}

function tile(name, value, note, tone) {
  return el("div", { class: "tile", "data-tone": tone }, el("dt", {}, name), el("dd", {}, el("strong", {}, value), el("span", { class: "faint" }, note)));
}

export function drawBanners({ readiness, server, policies }) {
  const banners = [];
  if (readiness && !readiness.ready) banners.push(banner("bad", "Not ready", readiness.reasons));
  if (readiness?.behind?.length) banners.push(banner("warn", "The Kubernetes API server is not followed", readiness.behind));
  if (policies?.refused) {
    banners.push(banner("bad", "The policy files can't be used: what was in force stays", policies.refused.split("\n")));
  }
  if (server?.mock_mode) banners.push(banner("warn", "Mock mode: workers answer without KV events, scrapes and tokenization", []));
  fill(byId("banners"), banners);
}

function banner(tone, title, reasons) {
  return el("div", { class: `banner ${tone}` }, el("strong", {}, title), reasons.length ? el("ul", {}, reasons.map((one) => el("li", {}, one))) : null);
}

let announced = null;

export function drawNews({ news }) {
  const all = news ?? [];
  say(byId("news-empty"), "Nothing since the start.");
  show(byId("news-empty"), all.length === 0);
  show(byId("news-list"), all.length > 0);
  fill(
    byId("news-list"),
    all.map((one) =>
      el("li", { "data-state": one.state ?? "gone" }, el("time", { datetime: new Date(one.at_ms).toISOString() }, clock(one.at_ms)), el("strong", {}, one.worker), ` ${one.what}`),
    ),
  );
  const latest = all[0] ? `${all[0].at_ms} ${all[0].worker}` : "";
  // What was there before the page is not announced.
  if (announced !== null && latest && latest !== announced) say(byId("announce"), `${all[0].worker} ${all[0].what}`);
  announced = latest;
}

export function drawLacking({ degradations }) {
  const { lacks = [], removed = [], rejections = [] } = degradations ?? {};
  const list = (title, all) => (all.length ? [el("h3", {}, title), el("ul", { class: "counts" }, all)] : []);
  const line = (number, name, words) => el("li", {}, el("span", { class: "n" }, count(number)), el("span", {}, el("code", {}, name), words ? ` ${words}` : null));
  const parts = [
    list("Decisions made on less", lacks.map((one) => line(one.decisions, one.what, one.words))),
    list("Requests turned away", rejections.map((one) => line(one.count, one.what))),
    list("Who was no candidate", removed.map((one) => line(one.count, one.what))),
  ].flat();
  fill(byId("lacking-body"), parts.length ? parts : el("p", { class: "empty" }, "None."));
}

export function drawTenants({ tenants }) {
  const { top = [], others, unnamed = 0 } = tenants ?? {};
  const row = (name, sum) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, name),
      [count(sum.requests), count(sum.rejected), count(sum.prompt_tokens), percent(share(sum.cached_blocks, sum.blocks))].map((text) => el("td", { class: "n" }, text)),
    );
  const rows = top.map((one) => row(one.tenant === null ? el("em", {}, "not told") : one.tenant, one));
  if (others?.requests) rows.push(row(el("em", {}, unnamed ? `${count(unnamed)} or more others` : "others"), others));
  const none = el("tr", {}, el("td", { colspan: 5, class: "empty" }, "No request in the last 15 minutes."));
  fill(byId("tenants").querySelector("tbody"), rows.length ? rows : none);
}

export function drawPolicies({ policies }) {
  const body = byId("policies-body");
  if (!policies) return;
  if (!policies.enabled) return fill(body, el("p", { class: "empty" }, "Policies are off."));
  const wrong = policies.resources.filter((one) => one.rejected || one.unresolved || one.suspicious);
  const parts = wrong.length ? [el("ul", { class: "problems" }, wrong.map(problem))] : [];
  parts.push(...policies.pools.map(pool));
  if (!policies.pools.length) parts.push(el("p", { class: "empty" }, "No pool is in force."));
  const sound = policies.resources.length - wrong.length;
  parts.push(el("p", { class: "faint" }, `${things(sound, "resource")} accepted without a remark${policies.more ? `, ${count(policies.more)} not listed` : ""}.`));
  return fill(body, parts);
}

function problem(one) {
  const said = [];
  if (one.rejected) said.push(`not accepted: ${one.rejected}${one.active ? `; generation ${one.active} stays in force` : ""}`);
  if (one.unresolved) said.push(`names what does not exist: ${one.unresolved}`);
  if (one.suspicious) said.push(one.suspicious);
  return el("li", { "data-tone": one.rejected ? "bad" : "warn" }, el("strong", {}, `${one.kind} ${one.name}`), ` ${said.join("; ")}`);
}

function pool(one) {
  const title = el("h3", {}, one.name, " ", el("span", { class: "faint" }, `publishes ${one.models.join(", ") || NONE}`));
  if (!one.rules.length) return el("div", {}, title, el("p", { class: "faint" }, "No rules: by prediction alone."));
  const names = ["Ran", "Removed", "Left nobody", "Passed on", "Turned away", "Not known"];
  const head = el("tr", {}, el("th", { scope: "col" }, "Rule"), names.map((name) => el("th", { scope: "col", class: "n" }, name)));
  const rows = one.rules.map((rule) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, `${rule.policy}/${rule.rule}`, rule.generation ? el("span", { class: "faint" }, ` generation ${rule.generation}`) : null),
      [rule.ran, rule.removed, rule.emptied, rule.passed_on, rule.rejected, rule.unknown].map((n) => el("td", { class: "n" }, count(n))),
    ),
  );
  const table = el("table", { class: "ruled" }, el("caption", { class: "hidden" }, `Rules of ${one.name}`), el("thead", {}, head), el("tbody", {}, rows));
  return el("div", {}, title, el("div", { class: "scroll", role: "region", "aria-label": `Rules of ${one.name}`, tabindex: 0 }, table));
}
