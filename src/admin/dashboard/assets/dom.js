// Elements and words. Text goes in as text, never as markup: names and ids are chosen by clients. What has no shape of
// its own, or turns the text beside it around, is shown as its code.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** An element with attributes and children; a child that is no node is text, null is none. */
export function el(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    node.setAttribute(key, value === true ? "" : visible(String(value)));
  }
  node.append(...nodes(children));
  return node;
}

// Control and format characters, line ends of Unicode, halves of surrogates.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;

/** Text in which every character is seen: U+202E and its like by their codes. */
function visible(text) {
  return text.replace(UNSEEN, (one) => `\\u{${one.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}}`);
}

function nodes(children) {
  const there = children.flat().filter((child) => child !== null && child !== undefined);
  return there.map((child) => (child instanceof Node ? child : visible(String(child))));
}

/** Sets an element's text, if it is another: what did not change is not announced or repainted. */
export function say(node, text) {
  const seen = visible(text);
  if (node.textContent !== seen) node.textContent = seen;
}

/** Puts other children into an element. */
export function fill(node, ...children) {
  node.replaceChildren(...nodes(children));
}

export function show(node, shown) {
  node.hidden = !shown;
}

export const NONE = "–";

/** A dash for what is not known, which says so. */
export const unknown = (why) => el("span", { title: `not known: ${why}`, class: "faint" }, NONE, el("span", { class: "hidden" }, " not known"));

export function ms(value) {
  if (value === null || value === undefined) return NONE;
  if (Math.abs(value) >= 60000) return `${(value / 60000).toFixed(1)} min`;
  if (Math.abs(value) >= 1000) return `${(value / 1000).toFixed(2)} s`;
  if (value !== 0 && Math.abs(value) < 1) return `${(value * 1000).toFixed(0)} µs`;
  return `${Math.abs(value) < 10 && value !== 0 ? value.toFixed(1) : value.toFixed(0)} ms`;
}

/** How long ago something was, in whole seconds. */
export function ago(from, now) {
  const secs = Math.floor((now - from) / 1000);
  return secs < 1 ? "less than 1 s ago" : `${secs} s ago`;
}

export function percent(share) {
  return share === null || share === undefined || Number.isNaN(share) ? NONE : `${(share * 100).toFixed(0)} %`;
}

export function count(value) {
  return value === null || value === undefined ? NONE : value.toLocaleString("en", { maximumFractionDigits: 1 });
}

/** A share of a whole; null where there is no whole. */
export const share = (part, whole) => (whole > 0 ? part / whole : null);

export function clock(at) {
  return new Date(at).toLocaleTimeString("en-GB");
}

/** A number of things in words. */
export function things(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** A table cell with its column's name, which is shown where there are no columns. */
export function cell(label, content, attributes = {}) {
  return el("td", { role: "cell", "data-label": label, ...attributes }, content);
}

export function number(label, content) {
  return cell(label, content, { class: "n" });
}
