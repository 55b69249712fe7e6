// A figure: heading, variants, legend, chart, tooltip, keyboard, saving. What it shows is asked of spec.parts on each refresh.
//
// spec: {title, unit, about, empty, parts(variant) -> parts or null, variants, note(variant), overSteps, scatter, logX, xLabel,
//        xTicks, zero, most, wide, height, bars}

const figures = [];
const state = { each: false, smooth: 1, hidden: new Set() };

function figure(spec) {
  const holder = el("div", { class: "plot" });
  const keys = el("div", { class: "keys" });
  const note = el("p", { class: "note" });
  const unit = el("div", { class: "unit" });
  const tools = el("div", { class: "tools" });
  const node = el("figure", { class: spec.wide ? "wide" : null, "data-figure": spec.id },
    el("div", { class: "head" }, el("div", {}, el("h3", { text: spec.title }), unit), tools), keys, holder, note);
  const self = { spec, node, holder, keys, note, unit, variant: spec.variants?.[0]?.value ?? null, chart: null, parts: null };
  if (spec.variants?.length > 1) {
    const choice = el("select", { "aria-label": `What ${spec.title} shows`, on: { change: () => { self.variant = spec.variants[choice.selectedIndex].value; draw(self); } } },
      spec.variants.map((variant) => el("option", { value: variant.value, text: variant.label })));
    tools.append(choice);
  }
  const button = (label, title, action) => tools.append(el("button", { class: "button quiet", type: "button", title, "aria-label": title, text: label, on: { click: action } }));
  button("PNG", `Save ${spec.title} as a picture`, () => self.picture && savePng(spec.title, self.picture()));
  button("CSV", `Save the numbers of ${spec.title}`, () => self.csv && saveCsv(spec.title, self.csv()));
  figures.push(self);
  near.observe(node);
  return node;
}

/** (Re)draws one figure with the settings of now. */
function draw(self) {
  const { spec, holder, keys } = self;
  const variant = spec.variants?.find((each) => each.value === self.variant);
  self.isStale = false;
  self.chart?.destroy();
  self.chart = null;
  holder.replaceChildren();
  self.unit.textContent = variant?.unit ?? spec.unit;
  self.note.textContent = spec.note?.(self.variant) ?? spec.about ?? "";
  self.note.hidden = !self.note.textContent;
  const parts = (spec.parts(self.variant) ?? []).filter((part) => part.y?.some((value) => value !== null && value !== undefined) ?? true);
  self.parts = parts;
  const legend = legendOf(parts, spec);
  keys.replaceChildren(...(legend.length > 1 || spec.bars ? legend : []).map((key) => el("span", {}, swatch(key), plain(key.label, 60))));
  keys.hidden = !keys.childElementCount;
  if (!parts.length) {
    holder.append(el("p", { class: "empty", text: state.hidden.size ? "All runs that have this are hidden: choose one above." : spec.empty ?? "No run logs this." }));
    self.picture = self.csv = null;
    return;
  }
  if (spec.bars) drawBarFigure(self, parts, legend);
  else drawChart(self, parts, legend);
  self.picture = () => pictureOf(spec.title, self.unit.textContent, legend.map((key) => ({ ...key, label: plain(key.label, 60) })), holder.querySelector("canvas"));
}

function swatch(key) {
  const bar = el("span", { class: "swatch", style: { color: key.colour } });
  if (key.dash) bar.style.setProperty("background", `repeating-linear-gradient(90deg, ${key.colour} 0 4px, transparent 4px 7px)`);
  return bar;
}

/** One entry a label: parts of the same label, such as a curve and its points, share it. */
function legendOf(parts, spec) {
  const seen = new Map();
  for (const part of spec.bars ?? parts) {
    const label = part.legend ?? part.label;
    if (!part.faint && !seen.has(label)) seen.set(label, { ...part, label });
  }
  return [...seen.values()];
}

function drawChart(self, parts, legend) {
  const { spec, holder } = self;
  const width = Math.max(240, Math.floor(holder.clientWidth || 520));
  const height = spec.height ?? 250;
  const tip = el("div", { class: "tip", hidden: true });
  const hooks = {
    draw: [(chart) => drawExtras(spec, parts, self.variant, chart)],
    setCursor: [(chart) => showTip(self, chart, tip)],
  };
  self.chart = new uPlot(chartOptions(spec, parts, width, height, hooks), chartData(parts), holder);
  holder.append(tip);
  holder.tabIndex = 0;
  holder.setAttribute("role", "group");
  holder.setAttribute("aria-label", `${spec.title}, ${self.unit.textContent}: ${legend.slice(0, 8).map((key) => plain(key.label, 40)).join(", ")}. Arrow keys read values.`);
  holder.onkeydown = (event) => moveCursor(self, event, tip);
  holder.onblur = () => { tip.hidden = true; };
  self.csv = () => csvText(parts, spec.xLabel ?? "step", self.unit.textContent);
}

/** The values at the cursor, or of the nearest point. */
function showTip(self, chart, tip) {
  const { left, top, idx } = chart.cursor;
  const isHere = chart.over.matches(":hover") || self.holder === document.activeElement;
  if (!isHere || left === undefined || left < 0) {
    tip.hidden = true;
    return;
  }
  const rows = self.spec.scatter ? nearestPoint(self.parts, chart, left, top) : rowsAt(self, chart, idx);
  tip.hidden = !rows;
  if (!rows) return;
  tip.replaceChildren(el("b", { text: rows.head }), ...rows.values.map((row) => el("div", {}, swatch(row.part), el("span", { text: plain(row.part.label, 36) }), el("b", { text: row.text }))));
  const space = self.holder.clientWidth;
  const x = left + chart.bbox.left / uPlot.pxRatio;
  tip.style.left = `${Math.max(0, x + tip.offsetWidth + 18 > space ? x - tip.offsetWidth - 12 : x + 14)}px`;
  tip.style.top = "8px";
  self.spoken = `${rows.head}: ${rows.values.map((row) => `${plain(row.part.label, 40)} ${row.text}`).join(", ")}`;
}

function rowsAt(self, chart, idx) {
  if (idx === null || idx === undefined) return null;
  const values = [];
  let column = 1;
  for (const part of self.parts) {
    if (part.kind === "points") continue;
    const y = chart.data[column]?.[idx];
    if (!part.faint && y !== null && y !== undefined) {
      const at = part.errorLow ? part.x.indexOf(chart.data[0][idx]) : -1;
      const [low, high] = part.low ? [chart.data[column + 1][idx], chart.data[column + 2][idx]] : at >= 0 ? [part.errorLow[at], part.errorHigh[at]] : [null, null];
      values.push({ part, y, text: Number.isFinite(low) && Number.isFinite(high) ? `${show(y)}  [${show(low)}, ${show(high)}]` : show(y) });
    }
    column += part.low ? 3 : 1;
  }
  if (!values.length) return null;
  return { head: `${self.spec.xLabel ?? "step"} ${show(chart.data[0][idx], 6)}`, values: values.slice(0, 14) };
}

function nearestPoint(parts, chart, left, top) {
  let best = null;
  for (const part of parts) {
    if (part.kind !== "points") continue;
    part.x.forEach((x, at) => {
      if (part.y[at] === null || x === null) return;
      const distance = Math.hypot(chart.valToPos(x, "x") - left, chart.valToPos(part.y[at], "y") - top);
      if (distance < 24 && (!best || distance < best.distance)) best = { distance, part, at };
    });
  }
  if (!best) return null;
  const { part, at } = best;
  return { head: part.steps ? `step ${part.steps[at]}` : "", values: [{ part, text: `${show(part.x[at])}, ${show(part.y[at])}` }] };
}

/** Arrow keys move the cursor by a point, with Shift by ten; Home and End; Escape takes the zoom back. */
function moveCursor(self, event, tip) {
  const chart = self.chart;
  const length = chart?.data[0].length ?? 0;
  if (event.key === "Escape") return zoomOut();
  const far = event.shiftKey ? 10 : 1;
  const moves = { ArrowLeft: -far, ArrowRight: far, Home: -length, End: length };
  if (!(event.key in moves) || !length) return undefined;
  event.preventDefault();
  const from = chart.cursor.idx ?? (event.key === "ArrowLeft" ? length : -1);
  const idx = Math.min(length - 1, Math.max(0, from + moves[event.key]));
  chart.setCursor({ left: chart.valToPos(chart.data[0][idx], "x"), top: chart.over.clientHeight / 2 });
  document.getElementById("live").textContent = tip.hidden ? "" : self.spoken;
  return undefined;
}

function drawBarFigure(self, parts, legend) {
  const { spec, holder } = self;
  const canvas = el("canvas");
  const tip = el("div", { class: "tip", hidden: true });
  holder.append(canvas, tip);
  const places = drawBars(canvas, Math.max(240, holder.clientWidth || 520), parts.map((part) => ({ ...part, label: plain(part.label, 40) })), spec.bars, "s");
  holder.setAttribute("role", "img");
  holder.setAttribute("aria-label", parts.map((part) => `${plain(part.label, 40)}: ${part.values.map((value, at) => `${spec.bars[at].label} ${show(value)} s`).join(", ")}`).join("; "));
  canvas.addEventListener("mousemove", (event) => {
    const hit = places.find((each) => event.offsetX >= each.x && event.offsetX < each.x + each.wide && event.offsetY >= each.y && event.offsetY < each.y + each.high);
    tip.hidden = !hit;
    if (!hit) return;
    tip.replaceChildren(el("b", { text: hit.row.label }), ...hit.row.values.map((value, at) => el("div", {}, swatch(legend[at]), el("span", { text: spec.bars[at].label }), el("b", { text: `${show(value)} s` }))));
    tip.style.left = `${Math.min(event.offsetX + 14, holder.clientWidth - tip.offsetWidth)}px`;
    tip.style.top = `${hit.y + hit.high + 4}px`;
  });
  canvas.addEventListener("mouseleave", () => { tip.hidden = true; });
  self.csv = () => [["run", ...spec.bars.map((key) => `${key.label} (s per step)`)], ...parts.map((part) => [part.label, ...part.values])].map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

/** Takes the zoom of the figures over steps back. */
function zoomOut() {
  for (const self of figures) {
    if (!self.chart || !self.spec.overSteps) continue;
    const x = self.chart.data[0];
    self.chart.setScale("x", { min: x[0], max: x.at(-1) });
  }
}

/** Draws what is on the screen or near it now, and the rest when it comes near: a page of twenty figures opens at once. */
const near = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const self = figures.find((each) => each.node === entry.target);
    self.isNear = entry.isIntersecting;
    if (self.isNear && self.isStale) draw(self);
  }
}, { rootMargin: "700px 0px" });

function drawAll({ hidden = false } = {}) {
  for (const self of figures) {
    self.isStale = true;
    if (hidden || self.isNear) draw(self);
  }
}
