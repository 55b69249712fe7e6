// The sample browser: completions of a step, coloured per token, filtered and searched. A page of groups at a time.

const MEASURES = {
  none: "nothing", entropy: "entropy", flow: "entropy flow", covariance: "covariance", logp: "log-prob of the token",
};
const PAGE = 12;

function sampleSection() {
  const withSamples = runs.filter((run) => run.samples.steps.length);
  if (!withSamples.length) return [el("p", { class: "empty", text: "No run here has stored samples: run folders have them in rollouts/, logs of other trainers don't." })];
  const view = { run: withSamples[0], step: 0, pages: 1 };
  const list = el("div", { id: "samples" });
  const count = el("p", { class: "count", role: "status" });
  const field = (label, input) => el("label", {}, label, input);
  const choice = (options, change) => el("select", { on: { change } }, options.map(([value, label]) => el("option", { value, text: label })));
  const update = () => { view.pages = 1; render(); };
  const run = choice(withSamples.map((each) => [runs.indexOf(each), plain(each.name, 40)]), () => { view.run = runs[run.value]; fillSteps(); update(); });
  const step = choice([], () => { view.step = Number(step.value); update(); });
  const measure = choice(Object.entries(MEASURES), () => render());
  const reward = choice([["all", "all"], ["best", "full reward"], ["some", "some reward"], ["none", "no reward"]], update);
  const kind = choice([["all", "all"], ["cut", "cut off"], ["malformed", "malformed"], ["mixed", "prompts that differ"]], update);
  const order = choice([["drawn", "as drawn"], ["low", "lowest reward first"], ["entropy", "highest entropy first"], ["long", "longest first"]], update);
  const search = el("input", { type: "search", placeholder: "in prompt or completion", title: "In prompts, completions and answers; capitals don't matter", on: { input: update } });
  const move = (by) => { step.selectedIndex = Math.min(step.options.length - 1, Math.max(0, step.selectedIndex + by)); step.dispatchEvent(new Event("change")); };
  const arrow = (text, label, by) => el("button", { class: "button", type: "button", "aria-label": label, text, on: { click: () => move(by) } });
  const scale = el("div", { class: "scale" });
  Object.assign(run, { id: "sample-run" });
  for (const [node, id] of [[step, "sample-step"], [measure, "sample-measure"], [reward, "sample-reward"], [kind, "sample-kind"], [order, "sample-order"], [search, "sample-search"]]) node.id = id;

  function fillSteps() {
    const { steps } = view.run.samples;
    step.replaceChildren(...steps.map((each, at) => el("option", { value: at, text: each.step.toLocaleString("en-US") })));
    view.step = steps.length - 1;
    step.value = view.step;
    const has = new Set(steps.flatMap((each) => each.groups.flatMap((group) => group.samples.flatMap((sample) => Object.keys(sample.per_token ?? {})))));
    for (const option of measure.options) option.disabled = option.value !== "none" && !has.has(option.value);
    if (measure.selectedOptions[0]?.disabled || !view.chosen) measure.value = ["entropy", "flow", "covariance"].find((name) => has.has(name)) ?? "none";
    view.chosen = true;
    measure.title = has.size ? "" : "This run stored no numbers per token";
  }

  function render() {
    const stepData = view.run.samples.steps[view.step];
    const words = search.value.trim();
    const find = words ? new RegExp(words.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "gi") : null;
    const range = rangeOfMeasure(view.run, measure.value);
    const fitting = sorted(filtered(stepData.groups, { reward: reward.value, kind: kind.value, find }), order.value);
    const total = fitting.reduce((sum, group) => sum + group.samples.length, 0);
    const page = fitting.slice(0, view.pages * PAGE);
    list.replaceChildren(...page.map((group) => groupNode(group, measure.value, range, find)));
    if (!fitting.length) list.append(el("p", { class: "empty", text: "No sample of this step fits the filters and the search." }));
    if (page.length < fitting.length) {
      list.append(el("div", { class: "more" }, el("button", { class: "button", type: "button", text: `Show more (${plural(fitting.length - page.length, "prompt")} left)`, on: { click: () => { view.pages += 1; render(); } } })));
    }
    count.textContent = countText(view.run, stepData, total, fitting.length);
    scale.replaceChildren(...legendOfMeasure(measure.value, range));
  }

  fillSteps();
  render();
  redraws.push(render);
  return [el("div", { class: "browse" }, field("Run", run), field("Step", el("div", { class: "stepper" }, arrow("\u2039", "Earlier step", -1), step, arrow("\u203a", "Later step", 1))),
    field("Colour by", measure), field("Reward", reward), field("Samples", kind), field("Order", order), field("Search", search), scale), count, list];
}

function countText(run, step, total, prompts) {
  const shown = `${plural(total, "sample")} of ${plural(prompts, "prompt")}`;
  const of = step.shown < step.total ? `; the page holds the first ${step.shown.toLocaleString("en-US")} of the step's ${plural(step.total, "sample")}` : "";
  const steps = run.samples.steps.length < run.samples.stored ? `; ${run.samples.steps.length} of the run's ${run.samples.stored.toLocaleString("en-US")} stored steps, evenly spread` : "";
  const unreadable = step.unreadable ? `; ${plural(step.unreadable, "line")} can't be read` : "";
  return `${shown}${of}${steps}${unreadable}.`;
}

const whole = (text) => text.head + (text.tail ?? "");

function filtered(groups, { reward, kind, find }) {
  const best = Math.max(...groups.flatMap((group) => group.samples.map((sample) => sample.reward ?? -Infinity)), 1e-9);
  const fits = (sample, group) => {
    const value = sample.reward ?? 0;
    if (reward === "best" && value < best) return false;
    if (reward === "some" && !(value > 0 && value < best)) return false;
    if (reward === "none" && value > 0) return false;
    if (kind === "cut" && sample.finished !== false) return false;
    if (kind === "malformed" && !sample.malformed) return false;
    if (!find) return true;
    return [group.prompt, group.answer, sample.text].some((text) => whole(text).search(find) >= 0);
  };
  return groups
    .filter((group) => kind !== "mixed" || new Set(group.samples.map((sample) => sample.reward)).size > 1)
    .map((group) => ({ ...group, rank: group.samples, samples: group.samples.filter((sample) => fits(sample, group)) }))
    .filter((group) => group.samples.length);
}

function sorted(groups, order) {
  const by = { low: (sample) => sample.reward ?? 0, entropy: (sample) => -(sample.entropy ?? 0), long: (sample) => -(sample.tokens ?? whole(sample.text).length) }[order];
  if (!by) return groups;
  const within = groups.map((group) => ({ ...group, samples: [...group.samples].sort((a, b) => by(a) - by(b)) }));
  return within.sort((a, b) => mean(a.samples.map(by)) - mean(b.samples.map(by)));
}

function groupNode(group, measure, range, find) {
  const prompt = el("div", { class: "text" });
  fill(prompt, group.prompt, find);
  const rewards = group.rank.map((sample) => sample.reward).filter((value) => value !== null);
  const about = el("div", { class: "about" }, group.problem === null ? "prompt" : `problem ${plain(group.problem, 40)}`, el("span", { text: `answer: ${plain(whole(group.answer), 80) || NONE}` }), el("span", { text: `mean reward ${show(mean(rewards))} of ${plural(group.rank.length, "sample")}` }));
  return el("section", { class: "group" }, el("div", { class: "prompt" }, about, prompt), merged(group.samples).map((sample) => sampleNode(sample, measure, range, find)));
}

/** Equal completions once, with how many there are. */
function merged(samples) {
  const seen = new Map();
  for (const sample of samples) {
    const key = JSON.stringify([sample.text, sample.reward, sample.finished, sample.kept]);
    const first = seen.get(key);
    if (first) first.times += 1;
    else seen.set(key, { ...sample, times: 1 });
  }
  return [...seen.values()];
}

function sampleNode(sample, measure, range, find) {
  const text = el("div", { class: "text" });
  if (measure !== "none" && sample.per_token?.[measure]) colourTokens(text, sample.per_token, measure, range);
  else fill(text, sample.text, find);
  if (!text.childNodes.length) text.append(el("span", { class: "left-out", text: "empty completion" }));
  const times = sample.times > 1 ? el("span", { class: "soft", text: ` \u00d7 ${sample.times}` }) : null;
  const verdict = el("div", { class: `verdict ${sample.reward > 0 ? "good" : "bad"}` }, `reward ${show(sample.reward)}`, times);
  const facts = [sample.tokens === undefined ? null : plural(sample.tokens, "token"), sample.entropy === null ? null : `${show(sample.entropy)} nats/token`, sample.finished === false ? "cut off" : null, sample.malformed ? "malformed" : null, sample.kept === false ? "not trained on" : null, measure !== "none" && !sample.per_token?.[measure] ? "no numbers per token stored" : null];
  return el("div", { class: "sample" }, verdict, text, el("div", { class: "about", text: facts.filter(Boolean).join(" \u00b7 ") }));
}

function fill(node, text, find) {
  appendText(node, text.head, find);
  if (text.cut) {
    node.append(el("span", { class: "left-out", text: ` \u2026 ${text.cut.toLocaleString("en-US")} characters left out \u2026 ` }));
    appendText(node, text.tail, find);
  }
}

/** Tokens with a background; of the whole run's range, so that steps compare. Signed measures have two hues. */
function colourTokens(node, tokens, measure, range) {
  tokens.text.forEach((text, at) => {
    const value = tokens[measure][at];
    const about = Object.keys(MEASURES).filter((key) => tokens[key]).map((key) => `${MEASURES[key]} ${show(tokens[key][at])}`).join("\n");
    const token = el("span", { class: "token", title: about, style: { "background-color": tokenColour(value, measure, range) } });
    appendOdd(token, text);
    node.append(token);
  });
  if (tokens.cut) node.append(el("span", { class: "left-out", text: ` \u2026 ${plural(tokens.cut, "token")} left out` }));
}

function tokenColour(value, measure, range) {
  if (value === null || value === undefined) return "transparent";
  const share = Math.min(1, Math.abs(value) / range);
  return `rgb(var(--${value < 0 && measure !== "logp" ? "warm" : "cool"}) / ${(0.5 * share ** 0.7).toFixed(3)})`;
}

const ranges = new Map();

/** The size that 98 % of a run's tokens stay below: one outlier doesn't wash out the rest. */
function rangeOfMeasure(run, measure) {
  const key = `${runs.indexOf(run)} ${measure}`;
  if (!ranges.has(key)) {
    const sizes = run.samples.steps.flatMap((step) => step.groups.flatMap((group) => group.samples.flatMap((sample) => sample.per_token?.[measure] ?? []))).filter((value) => value !== null).map(Math.abs).sort((a, b) => a - b);
    ranges.set(key, sizes[Math.floor(0.98 * (sizes.length - 1))] || 1);
  }
  return ranges.get(key);
}

function legendOfMeasure(measure, range) {
  if (measure === "none") return [];
  const signed = measure === "flow" || measure === "covariance";
  const stops = signed ? "rgb(var(--warm) / 0.5), transparent, rgb(var(--cool) / 0.5)" : "transparent, rgb(var(--cool) / 0.5)";
  const words = { entropy: ["0", `${show(range)} nats`], flow: ["lowers entropy", "raises it"], covariance: [`${show(-range)}`, show(range)], logp: ["0", `${show(-range)} nats`] }[measure];
  return [words[0], el("span", { class: "ramp", style: { background: `linear-gradient(90deg, ${stops})` } }), words[1]];
}
