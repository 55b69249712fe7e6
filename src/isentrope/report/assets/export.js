// Saving a figure: its numbers as CSV, its picture as PNG.

function save(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = el("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

function fileName(title, ending) {
  return `${title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 60) || "figure"}.${ending}`;
}

/** A cell that a spreadsheet takes for what it is: quoted where needed, and never a formula. */
function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** The rows of a figure's parts: one row a point, so that runs of unlike steps stand beside each other. */
function csvText(parts, xLabel, unit) {
  const rows = [["series", xLabel, unit, "low", "high"]];
  for (const part of parts) {
    if (part.faint) continue;
    part.x.forEach((x, at) => {
      const [low, high] = [part.low ?? part.errorLow, part.high ?? part.errorHigh];
      if (part.y[at] === null || part.y[at] === undefined) return;
      rows.push([part.label, x, part.y[at], low?.[at], high?.[at]]);
    });
  }
  return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

function saveCsv(title, text) {
  save(new Blob([text], { type: "text/csv;charset=utf-8" }), fileName(title, "csv"));
}

/** The canvas with title, unit and legend above it. */
function pictureOf(title, unit, keys, canvas) {
  const ratio = canvas.width / (parseFloat(canvas.style.width) || canvas.clientWidth || canvas.width);
  const width = canvas.width / ratio;
  const picture = document.createElement("canvas");
  const ctx = picture.getContext("2d");
  ctx.font = FONT;
  const lines = [[]];
  let used = 0;
  for (const key of keys) {
    const wide = 26 + Math.min(ctx.measureText(key.label).width, width - 60) + 14;
    if (used + wide > width - 16 && lines.at(-1).length) {
      lines.push([]);
      used = 0;
    }
    lines.at(-1).push({ ...key, left: 16 + used });
    used += wide;
  }
  const head = 52 + lines.length * 18;
  picture.width = canvas.width;
  picture.height = Math.round((head + 8) * ratio) + canvas.height;
  ctx.scale(ratio, ratio);
  ctx.fillStyle = colour("card");
  ctx.fillRect(0, 0, width, picture.height / ratio);
  ctx.fillStyle = colour("ink");
  ctx.font = FONT.replace("12px", "600 15px");
  ctx.fillText(shorten(ctx, title, width - 32), 16, 24);
  ctx.fillStyle = colour("soft");
  ctx.font = FONT;
  ctx.fillText(shorten(ctx, unit, width - 32), 16, 42);
  lines.forEach((line, place) => {
    for (const key of line) {
      const y = 62 + place * 18;
      ctx.strokeStyle = key.colour;
      ctx.lineWidth = 2.5;
      ctx.setLineDash(key.dash ?? []);
      ctx.beginPath();
      ctx.moveTo(key.left, y - 4);
      ctx.lineTo(key.left + 18, y - 4);
      ctx.stroke();
      ctx.fillText(shorten(ctx, key.label, width - 60), key.left + 25, y);
    }
  });
  ctx.setTransform(1, 0, 0, 1, 0, 0);
  ctx.drawImage(canvas, 0, Math.round(head * ratio));
  return picture;
}

function savePng(title, picture) {
  picture.toBlob((blob) => save(blob, fileName(title, "png")), "image/png");
}
