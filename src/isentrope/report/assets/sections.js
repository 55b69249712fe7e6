// The figures, section by section. A figure whose metrics no run logs is named at the section's end, not drawn.

function entropyFigures() {
  const target = logged("entropy/target").length;
  return [
    {
      id: "entropy", title: "Entropy", unit: "nats/token, mean over the tokens of a rollout", overSteps: true, zero: true, key: "entropy/mean", wide: !logged("entropy/quarter_1", "entropy/predicted_change").length,
      parts: () => [...curves("entropy/mean"), ...(target ? targets() : [])],
      about: target ? "Dashed: the target of the schedule." : "Falling to zero is a collapse: the policy stops exploring. No run here has a target.",
    },
    {
      id: "predicted", title: "Entropy change, predicted and measured", unit: "measured H(t+1) \u2212 H(t) over predicted, nats/token", scatter: true, key: "entropy/predicted_change", xLabel: "predicted change, nats/token",
      parts: () => changes("entropy/predicted_change"), about: "On the diagonal a prediction was right. Each point is a step.",
    },
    family({ id: "positions", title: "Entropy along the response", unit: "nats/token", zero: true, about: "Mean over the tokens of a quarter of each response." },
      [1, 2, 3, 4].map((quarter) => ({ key: `entropy/quarter_${quarter}`, label: `${["first", "second", "third", "last"][quarter - 1]} quarter` }))) ?? { title: "Entropy along the response", key: "entropy/quarter_1" },
  ];
}

/** Targets of the shown runs, each curve once: seeds share theirs. */
function targets() {
  const seen = new Set();
  return shownEntries().flatMap((entry) => {
    const curve = curveOf(entry, "entropy/target");
    const name = curve && JSON.stringify([curve.y, state.each ? 0 : entry.label]);
    if (!curve || seen.has(name)) return [];
    seen.add(name);
    return [{ x: curve.x, y: curve.y, label: `target of ${entry.label}`, colour: entry.look.colour, dash: [5, 4], thin: true }];
  });
}

/** A line's prediction against the change that the next line measured. */
function changes(key) {
  const parts = shownEntries().flatMap((entry) => entry.members.map((run) => {
    const [predicted, measured] = [run.columns[key], run.columns["entropy/measured_change"]];
    if (!predicted || !measured || run.stretch > 1) return null;
    const places = run.step.map((_, at) => at).filter((at) => predicted[at] !== null && measured[at + 1] !== null && measured[at + 1] !== undefined && run.step[at + 1] === run.step[at] + 1);
    return { kind: "points", label: entry.label, colour: entry.look.colour, x: places.map((at) => predicted[at]), y: places.map((at) => measured[at + 1]), steps: places.map((at) => run.step[at]) };
  })).filter((part) => part?.x.length);
  if (!parts.length) return [];
  const values = parts.flatMap((part) => part.x);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return [...parts, { label: "as predicted", colour: colour("soft"), dash: [4, 4], thin: true, x: [low, high], y: [low, high] }];
}

function rewardFigures() {
  return [
    { id: "reward", title: "Reward", unit: "mean over the samples of a rollout", overSteps: true, most: 1, key: "reward/mean", parts: () => curves("reward/mean"), about: "Before the overlong penalty, over all groups, dropped ones too." },
    passAtK(),
    passOverSteps(),
    parallelogram(),
    family({ id: "responses", title: "Responses", unit: "fraction of samples", zero: true }, [
      { key: "rollout/length_mean", label: "mean length", unit: "tokens" },
      { key: "rollout/truncated_fraction", label: "cut off at the limit", unit: "fraction of samples" },
      { key: "rollout/malformed_fraction", label: "answer can't be read", unit: "fraction of samples" },
      { key: "groups/informative_fraction", label: "prompts whose samples differ in reward", unit: "fraction of prompts" },
    ]),
  ];
}

function allScores() {
  return shownEntries().flatMap((entry) => (entry.group ?? { scores: entry.run.scores }).scores.map((score) => ({ entry, ...score })));
}

function passAtK() {
  const sets = [...new Set(groups.flatMap((group) => group.scores.map((score) => score.set)))];
  if (!sets.length) return { title: "pass@k", key: "evaluations" };
  const one = groups.flatMap((group) => group.scores).find((score) => score.samples);
  return {
    id: "pass", title: "pass@k", unit: "fraction of problems, last evaluation", xLabel: "k, samples drawn for a problem", logX: true, most: 1, xTicks: (parts) => [...new Set(parts.flatMap((part) => part.x))].sort((a, b) => a - b),
    variants: sets.map((set) => ({ value: set, label: plain(set, 40) })),
    parts: (set) => shownEntries().map((entry) => {
      const scores = allScores().filter((score) => score.entry.label === entry.label && score.set === set);
      return { label: entry.label, ...entry.look, x: scores.map((score) => score.k), y: scores.map((score) => score.mean.at(-1)), errorLow: scores.map((score) => score.low.at(-1)), errorHigh: scores.map((score) => score.high.at(-1)) };
    }).filter((part) => part.x.length),
    note: () => `${one ? `${one.problems} problems, ${one.samples} samples each at temperature ${show(one.temperature)}. ` : ""}Bars: 95 % intervals, of one run over its problems, of several seeds over the seeds.`,
  };
}

function passOverSteps() {
  const several = groups.flatMap((group) => group.scores).filter((score) => score.step.length > 1);
  if (!several.length) return { title: "pass@k over steps", key: "evaluation.every" };
  const names = [...new Set(several.map((score) => JSON.stringify([score.set, score.k])))];
  return {
    id: "pass-steps", title: "pass@k over steps", unit: "fraction of problems", overSteps: true, most: 1,
    variants: names.map((name) => { const [set, k] = JSON.parse(name); return { value: name, label: `pass@${k}, ${plain(set, 30)}` }; }),
    parts: (name) => allScores().filter((score) => JSON.stringify([score.set, score.k]) === name && score.step.length > 1)
      .map((score) => ({ label: score.entry.label, ...score.entry.look, x: score.step, y: score.mean, low: score.low, high: score.high })),
    about: "Bands: 95 % intervals, of one run over its problems, of several seeds over the seeds.",
  };
}

const SHAPES = { none: "no schedule: decays from the start", constant: "held constant", stable_then_anneal: "stable, then annealed", linear: "linear decay", cosine: "cosine decay", cyclic: "cyclic", piecewise: "piecewise" };

/** Reward against step by how the entropy is led: the shape that the scheduling paper names. */
function parallelogram() {
  const kinds = [...new Set(runs.filter((run) => Object.keys(run.recipe).length).map((run) => run.schedule ?? "none"))];
  if (kinds.length < 2) return { title: "Parallelogram view", key: "runs with and without a [schedule]" };
  return {
    id: "parallelogram", title: "Parallelogram view", unit: "reward, by how the entropy is led", overSteps: true, most: 1,
    parts: () => shownEntries().map((entry) => {
      const curve = curveOf(entry, "reward/mean");
      if (!curve) return null;
      const width = Math.max(5, Math.round(curve.y.length / 15));
      const kind = entry.members[0].schedule ?? "none";
      return { x: curve.x, y: smoothed(curve.y, width), label: entry.label, legend: SHAPES[kind] ?? kind, colour: hue(groups.length + kinds.indexOf(kind)) };
    }).filter(Boolean),
    about: "Decay from the start rises early and ends lower, held entropy trails, held and then annealed trails first and ends highest: so says the paper, of one model. Mean over a fifteenth of the run around each step.",
  };
}

function flowFigures() {
  const unit = "nats/token per unit step";
  return [
    family({ id: "flow", title: "Entropy flow", unit, about: "First-order estimate of what the update does to the entropy; net is raising less lowering." }, [
      { key: "flow/net", label: "net" }, { key: "flow/raising", label: "raising" }, { key: "flow/lowering", label: "lowering" },
      { key: "flow/net_unweighted", label: "net before weighting", unlike: "flow/net" },
    ]) ?? { title: "Entropy flow", key: "flow/net" },
    family({ id: "quadrants", title: "Flow by quadrant", unit, about: "Sign of the advantage, and whether the token is more or less likely than exp(\u2212H)." }, [
      { key: "flow/positive_likely", label: "A > 0, likely" }, { key: "flow/positive_unlikely", label: "A > 0, unlikely" },
      { key: "flow/negative_likely", label: "A < 0, likely" }, { key: "flow/negative_unlikely", label: "A < 0, unlikely" },
    ]) ?? { title: "Flow by quadrant", key: "flow/positive_likely" },
    family({ id: "clip", title: "Clipping", unit: "fraction of tokens", zero: true }, [
      { key: "clip/high_fraction", label: "at the upper clip" }, { key: "clip/low_fraction", label: "at the lower clip" }, { key: "objective/selected_fraction", label: "selected by the method", unlessZero: true },
    ]) ?? { title: "Clipping", key: "clip/high_fraction" },
    family({ id: "clipped-flow", title: "Flow that the clip stops", unit, about: "Entropy flow of the tokens without gradient at the upper and at the lower clip, had they been let through." }, [
      { key: "flow/clipped_high", label: "upper clip" }, { key: "flow/clipped_low", label: "lower clip" },
    ]) ?? { title: "Flow that the clip stops", key: "flow/clipped_high" },
    family({ id: "covariance", title: "Covariance of log-prob and advantage", unit: "nats times advantage", about: "The larger, the faster the entropy falls." }, [
      { key: "covariance/mean", label: "tokens" }, { key: "covariance/response_mean", label: "responses" }, { key: "covariance/response_hard", label: "responses, hard prompts" },
      { key: "covariance/response_medium", label: "responses, medium prompts" }, { key: "covariance/response_easy", label: "responses, easy prompts" },
    ]) ?? { title: "Covariance", key: "covariance/mean" },
  ];
}

function controlFigures() {
  if (!logged("entropy/target", "control/value", "objective/lambda").length) return [];
  const actuators = [...new Set(runs.map((run) => run.recipe["controller.actuator"]).filter(Boolean))];
  const unit = actuators.length === 1 ? actuators[0] : "the setting that is steered";
  return [
    family({ id: "error", title: "Distance to the target", unit: "nats/token, target \u2212 entropy", about: "Above 0 the entropy is below its target." }, [{ key: "control/error", label: "error" }]) ?? { title: "Distance to the target", key: "control/error" },
    family({ id: "value", title: "What the controller set", unit }, [{ key: "control/value", label: "value" }, { key: "control/saturated", label: "at a limit of its range", unit: "1 where it was, else 0" }]) ?? { title: "What the controller set", key: "control/value" },
    family({ id: "lambda", title: "Lambda of OPEFO", unit: "mean over the updates of a step", about: "\u22121 and 1 are its limits: there it can't give the flow that is asked for." }, [{ key: "objective/lambda", label: "lambda" }]) ?? { title: "Lambda of OPEFO", key: "objective/lambda" },
  ];
}

function lawFigures() {
  const laws = data.laws;
  if (!laws || laws.groups.every((law) => law.reason)) return [];
  const forecasts = runs.map((run, at) => ({ run, at })).filter(({ at }) => !laws.runs[at].reason);
  return [
    {
      id: "law", title: "Reward against entropy", unit: "mean reward of a step", scatter: true, xLabel: "entropy, nats/token",
      parts: () => shownEntries().flatMap((entry) => [
        ...entry.members.filter((run) => run.columns["entropy/mean"] && run.columns["reward/mean"]).map((run) => pointsOf(run, entry)),
        ...lawCurve(entry.members[0].group, entry),
      ]),
      about: "A point is a step; the line is R = \u2212a exp(H) + b, fitted to all steps of an experiment, with its 80 % interval.",
    },
    forecasts.length ? {
      id: "forecast", title: "Forecast of the reward", unit: "mean reward", overSteps: true, most: 1,
      variants: forecasts.map(({ run, at }) => ({ value: at, label: plain(run.name, 40) })),
      parts: (at) => forecastParts(runs[at], laws.runs[at]),
      marks: (at) => [{ x: laws.runs[at].from, label: "forecast from here" }],
      note: (at) => forecastNote(laws.runs[at]),
    } : { title: "Forecast of the reward", key: "at least eight steps" },
  ];
}

function pointsOf(run, entry) {
  const most = 700;
  const every = Math.ceil(run.step.length / most);
  const places = run.step.map((_, at) => at).filter((at) => at % every === 0 && run.columns["entropy/mean"][at] !== null && run.columns["reward/mean"][at] !== null);
  return { kind: "points", label: entry.label, colour: entry.look.colour, x: places.map((at) => run.columns["entropy/mean"][at]), y: places.map((at) => run.columns["reward/mean"][at]), steps: places.map((at) => run.step[at]) };
}

function lawCurve(place, entry) {
  const law = data.laws.groups[place];
  if (law.reason) return [];
  const [x, y, low, high] = law.curve;
  return [{ label: entry.label, colour: entry.look.colour, x, y, low, high }];
}

function forecastParts(run, forecast) {
  const [x, y, low, high] = forecast.band;
  const reward = run.columns["reward/mean"];
  const look = lookOf(run);
  return [
    { label: "reward of a step", colour: look.colour, x: run.step, y: reward, faint: true },
    { label: `reward, mean of ${forecast.window} steps`, colour: look.colour, x: run.step, y: trailing(reward, forecast.window) },
    { label: `forecast with its ${Math.round(100 * forecast.level)} % interval`, colour: colour("ink"), dash: [6, 4], x, y, low, high },
  ];
}

function trailing(values, width) {
  return values.map((value, at) => {
    const part = values.slice(Math.max(0, at - width + 1), at + 1).filter((each) => each !== null);
    return value === null || !part.length ? null : part.reduce((sum, each) => sum + each, 0) / part.length;
  });
}

function forecastNote(forecast) {
  const [mean, low, high] = forecast.final;
  const stands = `Made from the steps up to ${forecast.from} (${plural(forecast.known, "step")}), entropy extrapolated too`;
  const then = forecast.finished ? "so that it can be held against what came" : "for the steps that are left";
  return `${stands}, ${then}. Final score: ${show(mean)} [${show(low)}, ${show(high)}], law: ${forecast.law}.`;
}

function timeFigures() {
  const phases = [["time/rollout_s", "rollout"], ["time/plan_s", "plan"], ["time/update_s", "update"]];
  if (!logged("time/step_s").length) return [];
  return [
    {
      id: "time", title: "Time by phase", unit: "seconds per step",
      get bars() { return [...phases.map(([, label], place) => ({ label, colour: hue([5, 4, 6][place]) })), { label: "other", colour: hue(7) }]; },
      parts: () => shownEntries().map((entry) => {
        const per = (key) => entry.members.reduce((sum, run) => sum + (run.seconds[key] ?? 0) / Math.max(1, run.counted), 0) / entry.members.length;
        const values = phases.map(([key]) => per(key));
        return { label: entry.label, values: [...values, Math.max(0, per("time/step_s") - values.reduce((sum, value) => sum + value, 0))] };
      }),
      about: "Rollout: sampling, scoring, measuring. Plan: the forward passes that decide the weights. Update: losses, gradients, optimizer.",
    },
    family({ id: "step-time", title: "Time over steps", unit: "seconds", zero: true }, [
      { key: "time/step_s", label: "whole step" }, { key: "time/rollout_s", label: "rollout" }, { key: "time/plan_s", label: "plan" }, { key: "time/update_s", label: "update" },
    ]),
  ];
}

function anyFigure() {
  const start = logged("update/grad_norm")[0] ?? allKeys[0];
  const keys = [start, ...allKeys.filter((key) => key !== start)];
  return [{
    id: "any", title: "Any metric", unit: "as the log has it", overSteps: true, wide: true, parts: (key) => curves(key),
    variants: keys.map((key) => ({ value: key, label: plain(key, 60), unit: plain(key, 80) })),
    about: "Every number that the runs log. What the names mean is in docs/metrics.md; other trainers' columns keep their own names.",
  }];
}

const SECTIONS = [
  { id: "entropy", title: "Entropy", figures: entropyFigures, intro: "How uncertain the policy is about its next token, at the sampling temperature.", none: "No run logs an entropy." },
  { id: "reward", title: "Reward and evaluation", figures: rewardFigures, intro: "What the samples of training earn, and what held-out problems say.", none: "No run logs a reward." },
  { id: "flow", title: "Where the entropy goes", figures: flowFigures, intro: "Which tokens raise and which lower the entropy, and what the method lets through.", none: "Logs of other trainers have no flow: it takes per-token statistics. Run with objective = \"observe\" to have it." },
  { id: "control", title: "Control", figures: controlFigures, intro: "The target, the controller, and what it set.", none: "No run here has a target: give a recipe a [schedule] and a [controller], or take recipes/schedule_constant.toml." },
  { id: "law", title: "The entropy law", figures: lawFigures, intro: "Where entropy is all that is spent, R = \u2212a exp(H) + b says what it buys, and b \u2212 a is the ceiling at zero entropy.", none: "The law needs at least four steps with both an entropy and a reward." },
  { id: "time", title: "Time", figures: timeFigures, intro: "", none: "No run logs how long its steps took." },
  { id: "any", title: "All metrics", figures: anyFigure, intro: "", none: "No run logs any metric." },
];
