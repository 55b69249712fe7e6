// What a figure draws beyond uPlot's lines: points, error bars, bars of time. All on canvas, so that a picture can be saved.

const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif";

/** Distances of ticks over steps: whole numbers. */
const WHOLE = [0, 1, 2, 3, 4, 5, 6].flatMap((power) => [1, 2, 5].map((digit) => digit * 10 ** power));

/** The options of a uPlot chart for parts {label, colour, x, y, low, high, dash, faint, kind}. */
function chartOptions(spec, parts, width, height, hooks) {
  const lines = parts.filter((part) => part.kind !== "points");
  const series = [{}];
  const bands = [];
  for (const part of lines) {
    const few = part.y.length <= 12;
    series.push({
      label: part.label,
      stroke: part.faint ? faded(part.colour, 0.28) : part.colour,
      width: part.faint ? 1 : part.thin ? 1.2 : 1.8,
      dash: part.dash,
      points: { show: !part.faint && few && !part.dash, size: 6, fill: part.colour, stroke: part.colour, width: 0 },
      paths: part.kind === "steps" ? uPlot.paths.stepped({ align: 1 }) : undefined,
      spanGaps: false,
    });
    if (part.low) {
      const at = series.length;
      series.push(edge(), edge());
      bands.push({ series: [at + 1, at], fill: faded(part.colour, 0.16) });
    }
  }
  return {
    width,
    height,
    series,
    bands,
    padding: [10, 14, 0, 0],
    legend: { show: false },
    focus: { alpha: 1 },
    cursor: {
      y: false,
      sync: spec.overSteps ? { key: "steps", scales: ["x", null] } : undefined,
      drag: { x: Boolean(spec.overSteps), y: false, setScale: Boolean(spec.overSteps), dist: 6 },
      points: { show: !spec.scatter, size: 7 },
    },
    scales: {
      x: { time: false, distr: spec.logX ? 3 : 1, log: 2, range: spec.overSteps ? undefined : (_, low, high) => spec.xRange?.(parts, low, high) ?? rangeOf(spec, parts, "x") },
      y: { range: (chart, low, high) => rangeOf(spec, parts, "y", low, high) },
    },
    axes: [
      axis({ label: spec.xLabel ?? "step", values: (chart, splits, _, __, distance) => ticks(splits, distance || 1), ...(spec.xTicks ? { splits: () => spec.xTicks(parts), values: (_, splits) => ticks(splits, 1), filter: null } : { space: 56, incrs: spec.overSteps ? WHOLE : undefined }) }),
      axis({ size: (chart, values) => 16 + 7 * Math.max(2, ...(values ?? []).map((text) => text.length)), space: 34, values: (chart, splits, _, __, distance) => ticks(splits, distance || 1) }),
    ],
    hooks,
  };
}

function edge() {
  return { stroke: "transparent", width: 0, points: { show: false } };
}

function axis(settings) {
  return {
    stroke: colour("soft"),
    font: FONT,
    labelFont: FONT,
    labelSize: 18,
    labelGap: 2,
    gap: 6,
    size: 30,
    ticks: { show: false },
    grid: { stroke: colour("grid"), width: 1 },
    ...settings,
  };
}

/** The range of an axis: of all parts' finite values, with room at the ends, from 0 where that is near. */
function rangeOf(spec, parts, side, low = Infinity, high = -Infinity) {
  if (side === "x" || spec.scatter || spec.logX || low === null || !Number.isFinite(low)) {
    low = Infinity;
    high = -Infinity;
    for (const part of parts) {
      for (const column of side === "x" ? [part.x] : [part.y, part.low, part.high, part.errorLow, part.errorHigh]) {
        for (const value of column ?? []) {
          if (value === null || value === undefined) continue;
          if (value < low) low = value;
          if (value > high) high = value;
        }
      }
    }
  }
  if (!Number.isFinite(low)) return [0, 1];
  if (side === "x" && spec.logX) return [low * 0.85, high * 1.18];
  let room = (high - low) * 0.06;
  if (!room) room = Math.abs(high) * 0.1 || 0.5;
  const [least, most] = [low - room, high + room];
  if (side === "x") return [least, most];
  const isPositive = parts.every((part) => part.y.every((value) => !(value < 0)));
  const fromZero = spec.zero ? isPositive : low >= 0 && low < 0.35 * high;
  return [fromZero ? 0 : least, spec.most !== undefined && high <= spec.most && most > spec.most ? spec.most + room / 3 : most];
}

/** Aligned columns for uPlot; steps that a run doesn't have stay undefined and are bridged, nulls stay gaps. */
function chartData(parts) {
  const tables = parts.filter((part) => part.kind !== "points").map((part) => [part.x, part.y, ...(part.low ? [part.low, part.high] : [])]);
  return tables.length ? uPlot.join(tables) : [[]];
}

/** Draws points, error bars and upright marks of the parts over a finished chart. */
function drawExtras(spec, parts, variant, chart) {
  const { ctx, bbox } = chart;
  const ratio = uPlot.pxRatio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  for (const part of parts) {
    if (part.kind === "points") {
      ctx.fillStyle = faded(part.colour, part.x.length > 400 ? 0.35 : 0.55);
      for (let at = 0; at < part.x.length; at++) {
        if (part.y[at] === null || part.x[at] === null) continue;
        ctx.beginPath();
        ctx.arc(chart.valToPos(part.x[at], "x", true), chart.valToPos(part.y[at], "y", true), 2.4 * ratio, 0, 2 * Math.PI);
        ctx.fill();
      }
    }
    if (part.errorLow) {
      ctx.strokeStyle = part.colour;
      ctx.lineWidth = 1.5 * ratio;
      part.x.forEach((x, at) => {
        if (part.errorLow[at] === null || part.errorHigh[at] === null) return;
        const left = chart.valToPos(x, "x", true);
        ctx.beginPath();
        ctx.moveTo(left, chart.valToPos(part.errorLow[at], "y", true));
        ctx.lineTo(left, chart.valToPos(part.errorHigh[at], "y", true));
        ctx.stroke();
      });
    }
  }
  ctx.font = `${11 * ratio}px system-ui, sans-serif`;
  for (const mark of spec.marks?.(variant) ?? (spec.overSteps ? stageMarks() : [])) {
    const left = Math.round(chart.valToPos(mark.x, "x", true));
    ctx.strokeStyle = ctx.fillStyle = colour("soft");
    ctx.lineWidth = ratio;
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
    const wide = ctx.measureText(mark.label).width + 8 * ratio;
    ctx.textAlign = left + wide > bbox.left + bbox.width ? "right" : "left";
    ctx.fillText(mark.label, left + (ctx.textAlign === "right" ? -4 : 4) * ratio, bbox.top + bbox.height - 7 * ratio);
  }
  ctx.restore();
}

/** Horizontal bars {label, values} stacked by the colours of `keys`; returns where each stands, for the pointer. */
function drawBars(canvas, width, rows, keys, unit) {
  const ratio = uPlot.pxRatio;
  const [high, gap, top] = [22, 12, 4];
  const height = top + rows.length * (high + gap) + 30;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const ctx = canvas.getContext("2d");
  ctx.scale(ratio, ratio);
  ctx.font = FONT;
  ctx.textBaseline = "middle";
  const longest = Math.min(width * 0.34, Math.max(...rows.map((row) => ctx.measureText(row.label).width)));
  const left = Math.ceil(longest) + 12;
  const most = Math.max(...rows.map((row) => row.values.reduce((sum, value) => sum + value, 0)), 1e-9);
  const scale = (width - left - 76) / most;
  const places = [];
  rows.forEach((row, place) => {
    const y = top + place * (high + gap);
    ctx.fillStyle = colour("ink");
    ctx.textAlign = "right";
    ctx.fillText(shorten(ctx, row.label, longest), left - 10, y + high / 2);
    let x = left;
    row.values.forEach((value, at) => {
      const wide = value * scale;
      ctx.fillStyle = keys[at].colour;
      ctx.fillRect(x, y, Math.max(0, wide - 1), high);
      places.push({ x, y, wide, high, row, at });
      x += wide;
    });
    ctx.fillStyle = colour("ink");
    ctx.textAlign = "left";
    ctx.fillText(`${show(row.values.reduce((sum, value) => sum + value, 0))} ${unit}`, x + 7, y + high / 2);
  });
  ctx.fillStyle = colour("soft");
  ctx.textAlign = "left";
  ctx.fillText("0", left, height - 14);
  ctx.fillText("seconds per step, mean over the run", left + 22, height - 14);
  return places;
}

function shorten(ctx, text, width) {
  if (ctx.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 1 && ctx.measureText(`${text.slice(0, length)}\u2026`).width > width) length -= 1;
  return `${text.slice(0, length)}\u2026`;
}
