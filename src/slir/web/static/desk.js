// What lies on the desk: a picture, a run of it, or two runs to compare; and how the viewer shows them.

import { $, choose, settled } from "./dom.js";
import { loadErrors, showLegend } from "./overlay.js";
import { facts } from "./pictures.js";
import { isFinal } from "./runs.js";
import { inWords } from "./settings.js";

/** "change" when something else is shown; `fail(problem)` tells the person what went wrong. */
export class Desk extends EventTarget {
  constructor(viewer, { runs, pictures, plane, fail }) {
    super();
    Object.assign(this, { viewer, runs, pictures, fail, picture: null, job: null, pair: null, turn: 0, plane: 0 });
    $("modes").addEventListener("change", (event) => this.setMode(event.target.value));
    $("errors").addEventListener("click", () => this.toggleErrors());
    $("opacity").addEventListener("input", () => {
      viewer.opacity = $("opacity").valueAsNumber / 100;
      viewer.draw();
    });
    $("wipe").addEventListener("input", () => this.#wiped());
    this.planes = plane;
    plane.addEventListener("change", settled(() => this.#try(this.#turnTo(Math.round(plane.value) - 1)), 60));
    $("comparing-end").addEventListener("click", () => this.endComparison());
    viewer.addEventListener("drawn", () => {
      $("zoom").textContent = viewer.left ? `${Math.round(viewer.view.scale * 100)} %` : "–";
    });
  }

  /** Something of the desk can be told apart: there is a right side. */
  get two() {
    return Boolean(this.viewer.right);
  }

  async showPicture(picture) {
    const turn = ++this.turn;
    this.#take(picture, { job: null, pair: null });
    this.runs.follow(null);
    await this.#try(picture.layer.load(this.plane));
    if (turn !== this.turn) return;
    this.viewer.show(picture.layer, null, { anew: true });
    this.#changed();
  }

  /** A run, with the picture it was made from. While it runs, estimates take the result's place. */
  async showRun(job) {
    const turn = ++this.turn;
    const picture = await this.#try(this.pictures.recall(job.file));
    if (turn !== this.turn || !picture) return;
    const anew = picture !== this.picture || this.pair;
    this.#take(picture, { job, pair: null });
    this.runs.follow(job.job);
    await this.#try(picture.layer.load(this.plane));
    if (turn !== this.turn) return;
    this.viewer.show(picture.layer, null, { anew });
    this.#changed();
    if (job.state === "done") await this.#showResult(job, turn);
  }

  /** News of a job; only that of the shown one matters here. */
  async news(job) {
    if (!job || job.job !== this.job?.job) return;
    const before = this.job.state;
    this.job = job;
    if (job.state === "done" && before !== "done") await this.#showResult(job, this.turn);
    else {
      if (isFinal(job)) this.viewer.show(this.picture.layer); // what was cancelled or failed leaves no estimate behind
      this.#changed();
    }
  }

  async preview({ job, url, stage }) {
    if (job !== this.job?.job || isFinal(this.job) || this.plane > 0) return; // estimates are of the first plane
    const bitmap = await this.picture.layer.fetch(url).catch(() => null); // the next one will come
    if (!bitmap || job !== this.job?.job || isFinal(this.job) || stage < (this.estimate ?? 0)) return;
    const { width, height } = this.picture.layer;
    const scale = this.job.settings.task === "upsample" ? this.job.settings.factor : 1;
    this.estimate = stage;
    this.viewer.show(this.picture.layer, { bitmap, width: width * scale, height: height * scale });
    this.#changed();
  }

  /** Two runs side by side, the older on the left. */
  async compare(first, second) {
    const turn = ++this.turn;
    const picture = await this.#try(this.pictures.recall(second.file));
    const other = await this.#try(this.pictures.recall(first.file));
    if (!picture || !other) return;
    const layers = [this.runs.layer(first, other.file.orientation), this.runs.layer(second, picture.file.orientation)];
    this.#take(picture, { job: second, pair: [first, second] });
    await this.#try(Promise.all(layers.map((layer) => layer.load(this.plane))));
    if (turn !== this.turn) return;
    this.viewer.show(...layers, { anew: true });
    if (this.viewer.mode === "before" || this.viewer.mode === "after") this.setMode("side");
    await this.#loadErrors();
    this.#changed();
  }

  endComparison() {
    if (!this.pair) return;
    this.dispatchEvent(new Event("uncompare"));
    this.showRun(this.job);
  }

  setMode(mode) {
    choose("mode", mode);
    if (mode === "difference") this.viewer.errors = false;
    this.viewer.setMode(mode);
    this.#changed();
  }

  /** Before, then after, then before. */
  flip() {
    if (this.two) this.setMode(this.viewer.mode === "before" ? "after" : "before");
  }

  async toggleErrors() {
    if ($("errors").disabled) return;
    this.viewer.errors = !this.viewer.errors;
    if (this.viewer.errors && ["before", "difference"].includes(this.viewer.mode)) this.setMode("after");
    await this.#loadErrors();
    this.#changed();
  }

  redraw() {
    this.viewer.draw();
    this.#changed();
  }

  async #showResult(job, turn) {
    const layer = this.runs.layer(job, this.picture.file.orientation);
    await this.#try(layer.load(this.plane));
    if (turn !== this.turn || !layer.bitmap) return;
    this.estimate = 0;
    this.viewer.show(this.picture.layer, layer);
    await this.#loadErrors();
    if (turn === this.turn) this.#changed();
  }

  /** Lay a picture down; another one begins with its first plane. */
  #take(picture, { job, pair }) {
    const { planes } = picture.file;
    if (picture !== this.picture) {
      this.plane = 0;
      this.planes.reach(planes, 1);
      this.planes.value = 1;
    }
    $("plane-row").hidden = planes < 2;
    Object.assign(this, { picture, job, pair });
  }

  /** Show another plane of a stack, before and after. */
  async #turnTo(plane) {
    const last = (this.picture?.file.planes ?? 1) - 1;
    if (plane > last) this.planes.value = last + 1;
    plane = Math.min(plane, last);
    if (plane === this.plane) return;
    this.plane = plane;
    const { left, right } = this.viewer;
    await Promise.all([left, right].filter((layer) => layer?.load).map((layer) => layer.load(plane)));
    this.viewer.draw();
    this.#changed();
  }

  async #loadErrors() {
    if (!this.viewer.errors || !this.viewer.right) return;
    const pairs = this.pair ? this.pair.map((job) => [job, this.runs.layer(job)]) : [[this.job, this.viewer.right]];
    this.scale = await this.#try(loadErrors(pairs));
    this.viewer.draw();
  }

  #wiped() {
    const share = $("wipe").valueAsNumber / 100;
    this.viewer.wipe = share;
    $("wipe-line").style.left = `${share * 100}%`;
    $("wipe").setAttribute("aria-valuetext", `${Math.round(share * 100)} % ${this.pair ? "first run" : "before"}`);
    this.viewer.draw();
  }

  async #try(promise) {
    try {
      return await promise;
    } catch (problem) {
      this.fail(problem);
      return null;
    }
  }

  #changed() {
    const { viewer, picture, job, pair } = this;
    const { mode } = viewer;
    $("welcome").hidden = Boolean(picture);
    $("name").textContent = picture ? picture.file.name : "No picture";
    $("facts").textContent = picture ? facts(picture.file) : "";
    const done = job?.state === "done";
    $("errors").disabled = !(done && this.plane === 0 && (pair ?? [job]).some((each) => each.result.error));
    $("errors").setAttribute("aria-pressed", String(viewer.errors && !$("errors").disabled));
    for (const input of $("modes").querySelectorAll("input")) input.disabled = !this.two;
    $("mode-before").textContent = pair ? "First" : "Before";
    $("mode-after").textContent = pair ? "Second" : "After";
    $("wipe").hidden = $("wipe-line").hidden = !(this.two && mode === "slider");
    if (!$("wipe").hidden) this.#wiped();
    this.#tags();
    const errors = viewer.errors && !$("errors").disabled && done && this.scale && this.two && mode !== "before" && mode !== "difference";
    showLegend(errors ? "errors" : this.two && mode === "difference" ? "difference" : null, this.scale);
    this.dispatchEvent(new Event("change"));
  }

  #tags() {
    const { viewer, job, pair } = this;
    const { mode } = viewer;
    const left = pair ? inWords(pair[0]) : "Before";
    const right = pair ? inWords(pair[1]) : job?.state === "done" ? "After" : `Estimate ${this.estimate || ""}`.trim();
    const both = mode === "slider" || mode === "side";
    $("tag-left").hidden = !(this.two && (both || mode === "before"));
    $("tag-right").hidden = !(this.two && (both || mode === "after"));
    $("tag-left").textContent = left;
    $("tag-right").textContent = right;
  }
}
