// One pixel: its values, how far off they may be, and the training patches behind them.

import { api } from "./api.js";
import { $, el, number } from "./dom.js";
import { patchCanvas } from "./images.js";
import { turned, turnedPlace } from "./orient.js";

const CHANNELS = ["Red", "Green", "Blue", "Alpha"];

export class Inspector {
  constructor(viewer) {
    this.viewer = viewer;
    this.job = null;
    this.words = ""; // of the last answer, for the status line
    const again = () => this.ask($("row").valueAsNumber, $("col").valueAsNumber);
    $("ask").addEventListener("click", again);
    for (const name of ["row", "col"]) $(name).addEventListener("keydown", (event) => event.key === "Enter" && again());
  }

  /** Another run or plane is shown. orientation : of its picture; places here count pixels as they are stored. */
  use(job, orientation, plane) {
    if (this.job?.job === job?.job && this.plane === plane) return;
    this.abort?.abort();
    Object.assign(this, { job, orientation, plane });
    this.viewer.marker = null;
    this.words = $("place").textContent = "";
    $("pixel-answer").replaceChildren();
    this.#say("Click the restored picture to see the value there, its expected error, and the training patches behind it.");
    if (!job) return;
    $("row").max = job.result.height - 1;
    $("col").max = job.result.width - 1;
  }

  async ask(row, col) {
    const { job } = this;
    if (!job) return;
    const { height, width } = job.result;
    if (!(row >= 0 && row < height && col >= 0 && col < width)) {
      return this.#say(`Rows go from 0 to ${height - 1}, columns from 0 to ${width - 1}.`, true);
    }
    [row, col] = [Math.floor(row), Math.floor(col)];
    [$("row").value, $("col").value] = [row, col];
    this.viewer.marker = turnedPlace({ row, col }, job.result, this.orientation);
    this.viewer.draw();
    this.abort?.abort();
    const { signal } = (this.abort = new AbortController());
    this.#say("Inspecting…");
    const parts = [el("div"), el("div", {}, el("p", { class: "muted", text: "Searching for the patches behind it…" }))];
    const fill = async (part, question, draw) => {
      try {
        part.replaceChildren(...draw(await question(job.job, { row, col, plane: this.plane }, signal)));
      } catch (problem) {
        if (problem.name === "AbortError") return;
        part.replaceChildren(el("p", { class: "note", text: [problem.title, problem.words].filter(Boolean).join(": ") }));
      }
    };
    const values = (pixel) => {
      this.words = inShort(pixel);
      return drawPixel(pixel);
    };
    const patches = fill(parts[1], api.explain, (told) => drawPatches(told, this.orientation)); // may wait for a worker
    await fill(parts[0], api.pixel, values);
    if (signal.aborted) return;
    $("pixel-answer").replaceChildren(...parts);
    this.#say(`Row ${row}, column ${col}`);
    $("place").textContent = this.words;
    await patches;
  }

  #say(words, bad = false) {
    $("pixel-words").textContent = words;
    $("pixel-words").classList.toggle("bad", bad);
  }
}

/** "row 3, column 4: 112 → 105 ± 3.1". */
function inShort({ row, col, before, after, error }) {
  if (!after) return "";
  const all = (values) => values.map((value) => number(value)).join(", ");
  const off = error?.length ? ` ± ${number(Math.max(...error), 2)}` : "";
  return `row ${row}, column ${col}: ${before?.length ? `${all(before)} → ` : ""}${all(after)}${off}`;
}

/** Before, after, expected error, and the intervals, channel by channel. */
function drawPixel(pixel) {
  if (!pixel.after) return [];
  const count = pixel.after.length;
  const named = (index) => (count === 1 ? "Value" : CHANNELS[index] ?? `Channel ${index + 1}`);
  const head = el("tr", {}, el("td"), ...["Before", "After", "± error"].map((text) => el("th", { text, scope: "col", class: "right" })));
  const lines = pixel.after.map((after, index) =>
    el("tr", {}, el("th", { text: named(index), scope: "row" }), cell(pixel.before?.[index]), cell(after), cell(pixel.error?.[index], 3)),
  );
  const table = el("table", {}, el("thead", {}, head), el("tbody", {}, ...lines));
  const bars = pixel.interval?.["0.9"] ? pixel.after.map((_, index) => drawInterval(pixel, index, named(index))) : [];
  return bars.length ? [table, el("h3", { text: "The true value lies in this range in 9 of 10 cases" }), ...bars, keys()] : [table];
}

const cell = (value, digits) => el("td", { text: number(value, digits) });

/** A bar from the 90 % interval's low to its high end, the half of all cases inside it, and marks for before and after. */
function drawInterval(pixel, index, name) {
  const ends = (level) => pixel.interval[level]?.map((side) => side[index]);
  const [wide, half] = [ends("0.9"), ends("0.5")];
  const [before, after] = [pixel.before?.[index], pixel.after[index]];
  const all = [...wide, after];
  const room = 0.15 * (Math.max(...all) - Math.min(...all)) || 1;
  const [low, high] = [Math.min(...all) - room, Math.max(...all) + room];
  const at = (value) => `${((value - low) / (high - low)) * 100}%`;
  const span = (ends, kind) => {
    const bar = el("i", { class: kind });
    bar.style.left = at(ends[0]);
    bar.style.width = `${((ends[1] - ends[0]) / (high - low)) * 100}%`;
    return bar;
  };
  const mark = (tag, value) => {
    const line = el(tag);
    line.style.left = at(value);
    return line;
  };
  const shown = before !== undefined && before >= low && before <= high;
  const picture = el("div", { class: "interval", "aria-hidden": "true" }, span(wide, ""), half && span(half, "half"), shown && mark("u", before), mark("b", after));
  return el("div", { class: "spread" }, el("span", { text: name }), picture, el("b", { text: wide.map((end) => rounded(end, wide[1] - wide[0])).join(" – ") }));
}

/** A number with as many digits as an uncertainty of that width leaves. */
function rounded(value, width) {
  const digits = width > 0 ? Math.max(1 - Math.floor(Math.log10(width)), 0) : 4;
  return digits > 6 ? number(value) : value.toFixed(digits);
}

function keys() {
  const entry = (kind, text) => el("span", {}, el("i", { class: kind }), text);
  return el("p", { class: "keys" }, entry("k90", "90 %"), entry("k50", "50 %"), entry("kafter", "after"), entry("kbefore", "before"));
}

/** What the patches add up to, and the patches with their weights. */
function drawPatches(told, orientation) {
  const drawn = (pixels, words) => labelled(turned(patchCanvas(pixels), orientation), words);
  const most = Math.max(...told.patches.map((patch) => Math.abs(patch.weight)), 1e-12);
  const wanted = told.pull.map((line) => line.map((value) => value + (told.mean ?? 0))); // the pull has no mean of its own
  const sums = [[told.restored, "Restored here"], [wanted, "Sum of patches"]];
  const together = sums.map(([pixels, text]) => el("li", {}, drawn(pixels, text), el("p", { text })));
  const shown = atOneContrast(told.patches.map((patch) => patch.pixels));
  const patches = told.patches.map((patch, index) => {
    const bar = el("i");
    bar.style.width = `${(Math.abs(patch.weight) / most) * 100}%`;
    const from = `${patch.source}, row ${patch.row}, column ${patch.col}`;
    const weight = `${patch.weight < 0 ? "−" : ""}${number(Math.abs(patch.weight), 2)}`;
    const words = `Weight ${weight}, from ${from}`;
    return el("li", { class: patch.weight < 0 ? "minus" : undefined, title: from },
      drawn(shown[index], words), el("div", { class: "bar-of" }, bar), el("p", { text: weight }));
  });
  const sources = [...new Set(told.patches.map((patch) => patch.source))];
  const of = told.total ? ` of ${told.total.toLocaleString("en")}` : "";
  const from = sources.length === 1 ? sources[0] : `${sources.length} pictures`;
  const off = told.reproduces < 1e-6 ? "exactly" : `to within ${number(told.reproduces, 2)} of the range`;
  return [
    el("h3", { text: "Training patches behind it" }),
    el("ul", { class: "patches sum" }, ...together),
    el("ul", { class: "patches" }, ...patches),
    el("p", { class: "muted", text: `The ${told.patches.length} patches with the largest weights${of}, from ${from}. Each is shown about a middle grey. All patches together give the sum ${off}.` }),
  ];
}

/** Patches about a middle grey, as they enter the sum, which takes their means away; the liveliest from black to white. */
function atOneContrast(patches) {
  const about = patches.map((patch) => {
    const values = patch.flat(Infinity);
    const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
    return { patch, mean, most: Math.max(...values.map((value) => Math.abs(value - mean))) };
  });
  const gain = 0.5 / Math.max(...about.map(({ most }) => most), 1e-3);
  const each = (value, action) => (Array.isArray(value) ? value.map((part) => each(part, action)) : action(value));
  return about.map(({ patch, mean }) => each(patch, (value) => 0.5 + gain * (value - mean)));
}

function labelled(canvas, words) {
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", words);
  return canvas;
}
