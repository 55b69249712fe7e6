// From runs and groups to parts of a figure: {label, colour, x, y, low, high, dash, faint, kind}.

const COLOURS = 8;
const DASHES = [undefined, [7, 4], [2, 3]];
const { runs, groups } = data;
const allKeys = [...new Set(runs.flatMap((run) => Object.keys(run.columns)))].sort();

function hue(place) {
  return colour(`c${place % COLOURS}`);
}

/** Colour and dash of a run: its group's, or its own where there is one group only. */
function lookOf(run) {
  const place = groups.length === 1 ? groups[0].runs.indexOf(runs.indexOf(run)) : run.group;
  return { colour: hue(place), dash: DASHES[Math.floor(place / COLOURS) % DASHES.length] };
}

function groupLook(place) {
  return { colour: hue(place), dash: DASHES[Math.floor(place / COLOURS) % DASHES.length] };
}

function groupLabel(group) {
  return group.runs.length > 1 ? `${group.name} (${group.runs.length} seeds)` : group.name;
}

/** What is drawn now: groups as one, or their runs each. */
function shownEntries() {
  const entries = [];
  groups.forEach((group, place) => {
    if (state.hidden.has(place)) return;
    if (group.runs.length > 1 && !state.each) {
      entries.push({ label: groupLabel(group), look: groupLook(place), group, members: group.runs.map((at) => runs[at]) });
    } else {
      for (const at of group.runs) entries.push({ label: runs[at].name, look: lookOf(runs[at]), run: runs[at], members: [runs[at]], thin: group.runs.length > 1 && groups.length > 1 });
    }
  });
  return entries;
}

/** The curve of an entry: of a run its column, of a group the mean with its band. */
function curveOf(entry, key) {
  if (entry.run) {
    const y = entry.run.columns[key];
    return y ? { x: entry.run.step, y } : null;
  }
  const band = entry.group.bands[key];
  return band ? { x: entry.group.step, y: band[0], low: band[1], high: band[2] } : null;
}

/** Mean over the `width` values around each one; nulls stay nulls and count for nothing. */
function smoothed(values, width) {
  if (!values || width <= 1) return values;
  const half = Math.floor(width / 2);
  const result = new Array(values.length);
  let [sum, count, from, to] = [0, 0, 0, 0];
  for (let at = 0; at < values.length; at++) {
    for (; to <= Math.min(values.length - 1, at + half); to++) if (values[to] !== null) { sum += values[to]; count += 1; }
    for (; from < at - half; from++) if (values[from] !== null) { sum -= values[from]; count -= 1; }
    result[at] = values[at] === null || !count ? null : sum / count;
  }
  return result;
}

/** The parts of a curve: smoothed over its raw self, or as it is. */
function partsOf(curve, settings) {
  if (!curve) return [];
  const width = state.smooth;
  if (width <= 1 || curve.y.length < 2 * width) return [{ ...curve, ...settings }];
  const main = { ...curve, ...settings, y: smoothed(curve.y, width), low: smoothed(curve.low, width), high: smoothed(curve.high, width) };
  return curve.low ? [main] : [{ x: curve.x, y: curve.y, ...settings, dash: undefined, faint: true }, main];
}

function curves(key) {
  return shownEntries().flatMap((entry) => partsOf(curveOf(entry, key), { label: entry.label, ...entry.look, thin: entry.thin }));
}

function logged(...keys) {
  return keys.filter((key) => runs.some((run) => run.columns[key]?.some((value) => value !== null)));
}

/** A figure of metrics that belong together: with one experiment all of them at once, else one at a time. */
function family(spec, members) {
  const present = members.filter((member) => logged(member.key).length && !isRedundant(member));
  const together = groups.length === 1 && present.length > 1 && new Set(present.map((member) => member.unit ?? spec.unit)).size === 1;
  const all = { value: "all", label: "all", unit: spec.unit };
  const variants = [...(together ? [all] : []), ...present.map((member) => ({ value: member.key, label: member.label, unit: member.unit ?? spec.unit, about: member.about }))];
  const note = (variant) => [variants.find((each) => each.value === variant)?.about, spec.about].filter(Boolean).join(" ");
  const parts = (variant) => (variant === "all" ? familyParts(present) : curves(variant));
  return present.length ? { overSteps: true, ...spec, variants, parts, note, unit: variants[0].unit } : null;
}

/** A metric that says no more than another one here: the flow before a weighting that isn't done, a selection of nothing. */
function isRedundant({ key, unlike, unlessZero }) {
  const columns = runs.map((run) => run.columns[key]).filter(Boolean);
  if (unlessZero) return columns.every((column) => column.every((value) => !value));
  return Boolean(unlike) && runs.every((run) => JSON.stringify(run.columns[key]) === JSON.stringify(run.columns[unlike]));
}

function familyParts(members) {
  const entries = shownEntries();
  return members.flatMap((member, place) =>
    entries.flatMap((entry) => partsOf(curveOf(entry, member.key), { label: member.label, colour: hue(place), thin: entries.length > 1 })));
}

/** Where an annealing stage begins, in the runs that are shown. */
function stageMarks() {
  const shown = shownEntries().flatMap((entry) => entry.members);
  const starts = new Set(shown.map((run) => run.step[run.columns.stage?.indexOf(1) ?? -1]).filter((step) => step !== undefined));
  return [...starts].slice(0, 3).map((x) => ({ x, label: "stage" }));
}
