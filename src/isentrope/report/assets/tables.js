// What stands in words and numbers: cards, tables, recipes, notes.

const NAMES = {
  "entropy/mean": "entropy, nats/token", "reward/mean": "training reward", "rollout/length_mean": "length, tokens",
  "rollout/truncated_fraction": "cut off at the limit",
};

/** A card of an experiment: its score, and where entropy and reward began and ended. */
function card(group, place) {
  const members = group.runs.map((at) => runs[at]);
  const [first] = members;
  const facts = el("dl", { class: "facts" });
  const fact = (name, value) => facts.append(el("div", {}, el("dt", { text: name }), el("dd", { text: value })));
  const last = group.scores.filter((score) => score.set === group.scores[0].set).at(-1);
  if (last && last.k > 1) fact(`pass@${last.k}`, show(last.mean.at(-1)));
  for (const [key, name] of Object.entries(NAMES)) {
    const ends = members.map((run) => run.ends[key]).filter(Boolean);
    if (!ends.length || (key === "rollout/truncated_fraction" && ends.every(([from, to]) => !from && !to))) continue;
    fact(name, `${show(mean(ends.map((pair) => pair[0])))} \u2192 ${show(mean(ends.map((pair) => pair[1])))}`);
  }
  const errors = members.flatMap((run) => (run.columns["control/error"] ?? []).filter((value) => value !== null));
  if (errors.length) fact("off target, mean", show(mean(errors.map(Math.abs))));
  const spent = members.map((run) => run.seconds["time/step_s"]).filter((value) => value !== undefined);
  if (spent.length) fact(members.length > 1 ? "time of a run, mean" : "time", seconds(mean(spent)));
  return el("article", { class: "card", style: { "--hue": groupLook(place).colour } },
    el("h3", { text: plain(groupLabel(group), 80) }), el("p", { class: "soft", text: `${plain(first.label, 90)} \u00b7 ${progress(members)}` }), headline(group, members), facts);
}

function mean(values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

function progress(members) {
  const done = members.map((run) => run.done);
  const planned = members[0].planned;
  const [low, high] = [Math.min(...done), Math.max(...done)];
  if (planned === null || low >= planned) return low === high ? plural(high, "step") : `${low.toLocaleString("en-US")} to ${plural(high, "step")}`;
  return `in progress: ${low === high ? "" : `${low.toLocaleString("en-US")} to `}${high.toLocaleString("en-US")} of ${plural(planned, "step")}`;
}

/** pass@1 of the last evaluation and the largest k beside it; the reward where nothing was evaluated. */
function headline(group, members) {
  const scores = group.scores.filter((score) => score.set === group.scores[0].set);
  if (scores.length) {
    const [one] = scores;
    const bounds = Number.isFinite(one.low.at(-1)) ? ` [${show(one.low.at(-1))}, ${show(one.high.at(-1))}]` : "";
    return el("p", { class: "big", title: "with its 95 % interval" }, show(one.mean.at(-1)), el("small", { text: `pass@${one.k}${bounds}` }));
  }
  const reward = mean(members.map((run) => run.ends["reward/mean"]?.[1]));
  return el("p", { class: "big" }, show(reward), el("small", { text: reward === null ? "no reward logged" : "training reward, not evaluated" }));
}

function table(head, rows, numeric = () => false) {
  const mark = (at) => (numeric(at) ? "number" : null);
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": head.filter(Boolean).map((name) => plain(name, 30)).join(", ") }, el("table", {},
    el("thead", {}, el("tr", {}, head.map((name, at) => el("th", { scope: "col", class: mark(at), text: plain(name, 60) })))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((value, at) => el(at ? "td" : "th", { class: at ? [mark(at), value === undefined ? "none" : null].filter(Boolean).join(" ") || null : null, scope: at ? null : "row" }, value instanceof Node ? value : plain(value ?? NONE, 400))))))));
}

function named(place, text) {
  return el("span", { class: "mono-none" }, swatch({ colour: groupLook(place).colour }), ` ${plain(text, 60)}`);
}

const SHARES = [["1_in_5000", "0.02 %"], ["1_in_500", "0.2 %"], ["1_in_50", "2 %"], ["1_in_5", "20 %"], ["1_in_2", "50 %"], ["all", "all"]];

/** Mean covariance of the tokens with the largest, as in table 1 of the entropy mechanism paper: first and last steps. */
function covarianceTable() {
  const keys = SHARES.map(([name]) => `covariance/top_${name}`);
  if (!logged(...keys).length) return [el("p", { class: "note", text: "No table of the covariance by top share: these runs log its mean over all tokens alone (no covariance/top_*)." })];
  return [el("h3", { text: "Covariance by top share" }),
    el("p", { class: "intro", text: "Mean over the tokens with the largest covariance of log-prob and advantage: a few tokens carry most of it. First and last five steps." }),
    table(["run", "steps", ...SHARES.map(([, label]) => label)], groups.map((group, place) => ends(group, place, keys)).flat(), (at) => at > 1)];
}

function ends(group, place, keys) {
  const members = group.runs.map((at) => runs[at]);
  const part = (last) => keys.map((key) => show(mean(members.map((run) => {
    const values = (run.columns[key] ?? []).filter((value) => value !== null);
    return mean(last ? values.slice(-5) : values.slice(0, 5));
  }))));
  return [[named(place, groupLabel(group)), "first", ...part(false)], ["", "last", ...part(true)]];
}

function lawTable() {
  const laws = data.laws.groups;
  const interval = (values) => `${show(values[0])} [${show(values[1])}, ${show(values[2])}]`;
  const rows = groups.map((group, place) => {
    const law = laws[place];
    const name = named(place, groupLabel(group));
    return law.reason ? [name, law.reason, "", "", "", "", ""] : [name, interval(law.a), interval(law.b), interval(law.ceiling), show(law.r2), show(law.rmse), law.best];
  });
  const doubts = groups.map((group, place) => (laws[place].warnings?.length ? el("p", { class: "warning", text: `${plain(groupLabel(group), 60)}: ${laws[place].warnings.join("; ")}.` }) : null));
  return [table(["run", "a", "b", "ceiling b \u2212 a", "R\u00b2", "RMSE", "best law"], rows, (at) => at > 0 && at < 6), ...doubts];
}

/** The resolved recipes: where they differ first, then each whole. */
function recipeSection() {
  const parts = [];
  const withRecipe = runs.filter((run) => Object.keys(run.recipe).length);
  const shown = groups.filter((group) => withRecipe.includes(runs[group.runs[0]]));
  if (withRecipe.length > 1) parts.push(...recipeDifferences(shown));
  if (data.differences.environment.length) parts.push(...environmentDifferences(withRecipe));
  for (const run of runs) {
    const rows = Object.entries(run.recipe);
    const about = rows.length ? "resolved recipe" : "which column was taken for what";
    const body = rows.length ? [table(["key", "value"], rows)] : [table(["metric", "column of the log"], Object.entries(run.guesses))];
    if (Object.keys(run.environment).length) body.push(el("h4", { class: "soft", text: "Versions and machine" }), table(["", ""], Object.entries(run.environment)));
    parts.push(el("details", {}, el("summary", { text: `${plain(run.name, 80)}: ${about}` }), ...body));
  }
  return parts;
}

/** A column for each experiment: its runs differ in name, seed and output alone. */
function recipeDifferences(shown) {
  const keys = data.differences.recipe;
  const seeds = ["seed", ...shown.map((group) => group.runs.map((at) => runs[at].seed ?? NONE).join(", "))];
  const rows = keys.map((key) => [el("code", { text: plain(key) }), ...shown.map((group) => runs[group.runs[0]].recipe[key])]);
  const same = keys.length ? null : el("p", { class: "intro", text: "The recipes differ in name, seed and output alone." });
  return [el("h3", { text: "What differs between the recipes" }), same, table(["key", ...shown.map(groupLabel)], [seeds, ...rows])];
}

function environmentDifferences(shown) {
  const rows = data.differences.environment.map((key) => [el("code", { text: plain(key) }), ...shown.map((run) => run.environment[key])]);
  return [el("h3", { text: "What differs between versions and machines" }), table(["key", ...shown.map((run) => run.name)], rows)];
}
