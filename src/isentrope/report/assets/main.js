// Puts the page together, and what the settings do.

const redraws = [];

function heading() {
  const seeds = groups.length < runs.length ? ` in ${plural(groups.length, "experiment")}` : "";
  const longest = Math.max(...runs.map((run) => run.done));
  const title = runs.length === 1 ? plain(runs[0].name, 80) : groups.map((group) => plain(group.name, 40)).slice(0, 5).join(", ") + (groups.length > 5 ? ` and ${groups.length - 5} more` : "");
  document.title = `${title} \u2013 Isentrope report`;
  const made = new Date(data.created);
  document.getElementById("top").append(
    el("p", { class: "mark", text: "Isentrope training report" }), el("h1", { text: title }),
    el("p", { class: "lead", text: `${plural(runs.length, "run")}${seeds}, ${runs.length > 1 ? "up to " : ""}${plural(longest, "step")}. Made ${made.toISOString().slice(0, 16).replace("T", " ")} UTC with Isentrope ${data.version}.` }),
    ...data.notes.map((note) => el("p", { class: "warning", text: plain(note, 400) })));
}

function settings() {
  const links = el("div", { class: "links" }, [["overview", "Overview"], ...SECTIONS.map((section) => [section.id, section.title.replace(" and evaluation", "").replace("Where the entropy goes", "Flow").replace("The entropy law", "Law")]), ["browser", "Samples"], ["recipes", "Recipes"]].map(([id, label]) => el("a", { href: `#${id}`, text: label })));
  const theme = el("button", { class: "button quiet", type: "button", id: "theme", on: { click: switchTheme } });
  document.getElementById("bar").append(el("div", {}, links, el("div", { class: "settings" }, theme)), el("div", {}, chips(), el("div", { class: "settings wide" }, seedChoice(), smoothChoice())));
  nameTheme();
  followSections(links);
}

function chips() {
  return el("div", { class: "chips", role: "group", "aria-label": "Runs that are drawn" }, groups.map((group, place) => {
    const chip = el("button", { class: "chip", type: "button", "aria-pressed": "true", title: plain(groupLabel(group), 200) }, el("span", { class: "swatch" }), el("span", { text: plain(groupLabel(group), 60) }));
    chip.addEventListener("click", () => {
      if (!state.hidden.delete(place)) state.hidden.add(place);
      chip.setAttribute("aria-pressed", String(!state.hidden.has(place)));
      drawAll();
    });
    const paint = () => chip.firstChild.style.setProperty("color", groupLook(place).colour);
    paint();
    redraws.push(paint);
    return chip;
  }));
}

function seedChoice() {
  if (groups.every((group) => group.runs.length === 1)) return null;
  const choice = el("select", { id: "seeds", on: { change: () => { state.each = choice.value === "each"; drawAll(); } } }, el("option", { value: "mean", text: "mean and 95 % interval" }), el("option", { value: "each", text: "each run" }));
  return el("label", { title: "Of two seeds the band is their range" }, "Seeds", choice);
}

function smoothChoice() {
  const longest = Math.max(...runs.map((run) => run.step.length));
  state.smooth = longest > 300 ? 20 : 1;
  const choice = el("select", { id: "smooth", on: { change: () => { state.smooth = Number(choice.value); drawAll(); } } }, [[1, "none"], [5, "5 points"], [20, "20 points"], [100, "100 points"]].filter(([width]) => 2 * width <= longest || width === 1).map(([value, text]) => el("option", { value, text })));
  choice.value = String(state.smooth);
  return el("label", { title: "Mean over so many points around each; the curve itself stays in the background" }, "Smoothing", choice);
}

function isDark() {
  return (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
}

function switchTheme() {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  try { localStorage.setItem("isentrope-theme", document.documentElement.dataset.theme); } catch { /* a file may have no storage */ }
  repaint();
}

function nameTheme() {
  const button = document.getElementById("theme");
  button.textContent = isDark() ? "Light" : "Dark";
  button.setAttribute("aria-label", isDark() ? "Switch to the light theme" : "Switch to the dark theme");
}

function repaint() {
  nameTheme();
  for (const redraw of redraws) redraw();
  drawAll();
}

/** Marks the link of the section that is read. */
function followSections(links) {
  const byId = new Map([...links.children].map((link) => [link.hash.slice(1), link]));
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of links.children) link.removeAttribute("aria-current");
      byId.get(entry.target.id)?.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  queueMicrotask(() => document.querySelectorAll("main > section").forEach((section) => watch.observe(section)));
}

function section(id, title, intro, ...content) {
  return el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title`, text: title }), intro ? el("p", { class: "intro", text: intro }) : null, ...content);
}

function figureSection({ id, title, intro, figures: make, none }) {
  const specs = make().filter(Boolean);
  const drawn = specs.filter((spec) => spec.id && (!spec.key || logged(spec.key).length));
  const left = specs.filter((spec) => !drawn.includes(spec));
  if (!drawn.length) return section(id, title, "", el("p", { class: "empty", text: none }));
  const missing = left.length ? el("p", { class: "note", text: `Not drawn, since no run here has what it takes: ${left.map((spec) => `${spec.title} (${spec.key})`).join(", ")}.` }) : null;
  const extra = { flow: covarianceTable, law: lawTable }[id]?.() ?? [];
  return section(id, title, intro, el("div", { class: "figures" }, drawn.map(figure)), extra.length ? el("div", { class: "after" }, extra) : null, missing);
}

function build() {
  heading();
  settings();
  const main = document.getElementById("main");
  main.append(
    section("overview", "Overview", "Values are means over the first and the last five steps.", el("div", { class: "cards" }, groups.map(card))),
    ...SECTIONS.map(figureSection),
    section("browser", "Samples", "What the policy wrote, with what its tokens did to the entropy.", sampleSection()),
    section("recipes", "Recipes", "", recipeSection()));
  document.getElementById("foot").append(
    el("p", { text: "A long curve is drawn from the lowest and highest value of each stretch of steps; of samples the page holds some steps, evenly spread, and of a step its first prompts, as drawn. Drag in a figure to zoom its steps, double-click or Escape to go back; arrow keys read values." }),
    el("p", { text: "This page is one file. It loads nothing and sends nothing. Charts: uPlot 1.6.32, MIT licence, Leon Sorokin." }));
  drawAll();
  let width = innerWidth;
  addEventListener("beforeprint", () => drawAll({ hidden: true }));
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; requestAnimationFrame(drawAll); } });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  document.documentElement.dataset.ready = "true";
}

try {
  const kept = localStorage.getItem("isentrope-theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
} catch { /* a file may have no storage */ }
build();
