// Elements, numbers and hostile text. Every text of the data goes through a text node; nothing here parses markup.

const NONE = "\u2013";
const data = JSON.parse(document.getElementById("data").textContent);

/** An element. `settings`: class, text, on (listeners), style (properties); everything else is an attribute. */
function el(tag, settings = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(settings)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") node.className = value;
    else if (key === "text") node.textContent = value;
    else if (key === "on") for (const [name, listener] of Object.entries(value)) node.addEventListener(name, listener);
    else if (key === "style") for (const [name, part] of Object.entries(value)) node.style.setProperty(name, part);
    else node.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  return node;
}

/** A number with so many significant digits, a thin space between thousands, a dash for what isn't known. */
function show(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e7 || size < 1e-4) return minus(value.toExponential(Math.max(0, digits - 2)).replace("e+", "e"));
  if (Number.isInteger(value) || size >= 10 ** digits) return minus(Math.round(value).toLocaleString("en-US"));
  return minus(value.toFixed(Math.max(0, digits - 1 - Math.floor(Math.log10(size)))));
}

function minus(text) {
  return text.replace(/^-/, "\u2212").replace("e-", "e\u2212");
}

/** Numbers of an axis: all with the decimals that the distance of two ticks needs. */
function ticks(values, distance) {
  let decimals = Math.max(0, -Math.floor(Math.log10(distance) + 1e-9));
  const scaled = distance * 10 ** decimals;
  if (Math.abs(scaled - Math.round(scaled)) > 1e-6) decimals += 1; // 0.025 takes three
  return values.map((value) => {
    if (value === null || value === undefined) return "";
    if (value !== 0 && (Math.abs(value) >= 1e7 || decimals > 5)) return minus(value.toExponential(1).replace("e+", "e"));
    return minus(decimals ? value.toFixed(decimals) : value.toLocaleString("en-US"));
  });
}

function seconds(value) {
  if (value === null || value === undefined) return NONE;
  if (value < 120) return `${show(value)} s`;
  if (value < 7200) return `${show(value / 60)} min`;
  return `${show(value / 3600)} h`;
}

function plural(count, word) {
  return `${count.toLocaleString("en-US")} ${word}${count === 1 ? "" : "s"}`;
}

// Control signs, marks that turn the direction of writing, invisible signs, lone surrogates: shown, never obeyed.
const ODD = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** The name of a sign that has no visible form. */
function oddName(sign) {
  return `U+${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/** A short text for labels: odd signs named, cut at a length. */
function plain(text, longest = 120) {
  const whole = String(text).replace(ODD, oddName).replace(/[\t\n]+/g, " ");
  return whole.length > longest ? `${whole.slice(0, longest - 1)}\u2026` : whole;
}

/** Appends a text to a node, odd signs in boxes, matches of `find` (a RegExp with the flag g) marked. */
function appendText(node, text, find = null) {
  let from = 0;
  for (const match of find ? text.matchAll(find) : []) {
    if (!match[0]) continue;
    appendOdd(node, text.slice(from, match.index));
    const mark = el("mark");
    appendOdd(mark, match[0]);
    node.append(mark);
    from = match.index + match[0].length;
  }
  appendOdd(node, text.slice(from));
}

function appendOdd(node, text) {
  let from = 0;
  for (const match of text.matchAll(ODD)) {
    if (match.index > from) node.append(text.slice(from, match.index));
    node.append(el("span", { class: "odd", text: oddName(match[0]) }));
    from = match.index + match[0].length;
  }
  if (from < text.length) node.append(text.slice(from));
}

/** A colour of the palette, as the theme has it now. */
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function faded(hex, share) {
  return `${hex}${Math.round(share * 255).toString(16).padStart(2, "0")}`;
}
