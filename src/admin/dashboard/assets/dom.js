// Elements and words. Text goes in as text, never as markup: names and ids are chosen by clients.

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
    node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** Sets an element's text, if it is another: what did not change is not announced or repainted. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Puts other children into an element. */
export function fill(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
}

export function show(node, shown) {
  node.hidden = !shown;
}

export const NONE = "–";

export function ms(value) {
  if (value === null || value === undefined) return NONE;
  if (Math.abs(value) >= 60000) return `${(value / 60000).toFixed(1)} min`;
  if (Math.abs(value) >= 1000) return `${(value / 1000).toFixed(2)} s`;
  if (value !== 0 && Math.abs(value) < 1) return `${(value * 1000).toFixed(0)} µs`;
  return `${Math.abs(value) < 10 && value !== 0 ? value.toFixed(1) : value.toFixed(0)} ms`;
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
