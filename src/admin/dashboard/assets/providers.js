// The providers of the policies in force: their load, how soon they answer, why one gets no requests.

import { byId, cell, clock, count, el, fill, ms, number, say, show } from "./dom.js";

export function drawProviders({ providers, policies }) {
  const { all = [], more = 0 } = providers ?? {};
  fill(byId("providers-table").tBodies[0], all.map(row));
  show(byId("providers-table"), all.length > 0);
  const empty = policies?.enabled ? "No pool in force has a provider." : "Policies are off: there are none.";
  say(byId("providers-note"), all.length ? `${count(more)} more are not listed.` : empty);
  show(byId("providers-note"), all.length === 0 || more > 0);
}

function row(one) {
  const why = reasons(one);
  const name = el(
    "th",
    { scope: "row", role: "rowheader", "data-label": "Provider" },
    el("span", { class: "name" }, one.name),
    el("span", { class: "faint small" }, one.authority),
    why.length ? el("ul", { class: "why" }, why.map((reason) => el("li", {}, reason))) : null,
  );
  return el(
    "tr",
    { role: "row", "data-state": one.state, "data-provider": one.name },
    cell("State", el("span", { class: "state" }, one.set_aside ? "set aside" : one.state)),
    name,
    cell("Pools", lines([...one.pools]), { class: "models" }),
    number("In flight", count(one.in_flight)),
    cell("Models", lines(one.models.map((model) => model.name)), { class: "models" }),
    number("TTFT, expected", lines(one.models.map((model) => ms(model.expected_ttft_ms)))),
    number("TTFT, learnt", lines(one.models.map((model) => learnt(model.learnt_ttft_ms)))),
  );
}

const lines = (all) => el("span", { class: "lines" }, all.map((text) => el("span", {}, text)));

function learnt(value) {
  return value === null ? "not seen yet" : ms(value);
}

function reasons({ set_aside: aside, credential }) {
  const all = [];
  if (credential) all.push(`no credential, no requests: ${credential}`);
  if (aside) {
    all.push(`set aside since ${clock(aside.since_at_ms)}: ${aside.why}`);
    const next = aside.tried_from_at_ms === null ? "one request is there now, to see whether it is back" : `from ${clock(aside.tried_from_at_ms)} on one request tries it`;
    all.push(next);
  }
  return all;
}
