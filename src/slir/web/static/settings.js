// The form on the left: what to do to the picture.

import { $, choose, chosen, number } from "./dom.js";
import { Problem } from "./api.js";

const WORDS = {
  denoise: "Takes noise away and leaves detail.",
  deblur: "Undoes a blur that is known: shake, focus, a lens.",
  upsample: "Enlarges, with detail that fits the picture.",
  inpaint: "Fills in what is missing: scratches, dust, text.",
};
export const TASKS = { denoise: "Denoise", deblur: "Deblur", upsample: "Enlarge", inpaint: "Inpaint" };

export class Settings extends EventTarget {
  constructor(sliders, psf) {
    super();
    this.sliders = sliders;
    this.psf = psf;
    $("tasks").addEventListener("change", () => this.#taskChanged());
    $("noise").addEventListener("change", () => this.#noiseChanged());
    sliders.sigma.addEventListener("change", () => ($("said").textContent = ""));
    this.#taskChanged();
    this.#noiseChanged();
  }

  get task() {
    return chosen("task");
  }

  /** Count in a picture's units. */
  measure(file) {
    const span = Array.isArray(file.data_range) ? file.data_range[1] - file.data_range[0] : file.data_range;
    $("range-block").hidden = Boolean(span);
    this.#units(span);
  }

  /** A new picture: its units, and what an example suggests. */
  suit({ file, suggested }) {
    this.measure(file);
    const task = suggested?.task ?? file.task_hint;
    if (task) choose("task", task);
    if (suggested?.factor) choose("factor", String(suggested.factor));
    this.#taskChanged();
    const sigma = suggested?.sigma;
    if (sigma > 0) {
      $("noise").value = "number";
      this.sliders.sigma.value = sigma;
    } else if (suggested) $("noise").value = String(sigma ?? "auto");
    this.#noiseChanged();
    if (suggested?.psf) this.psf.use(suggested.psf);
  }

  /** What POST /api/jobs takes for a picture; a Problem where something is missing. */
  async collect(picture) {
    const task = this.task;
    const settings = { file: picture.file.file, task, sigma: this.#sigma(), error_map: true };
    if (task === "upsample") settings.factor = Number(chosen("factor"));
    if (task === "deblur") {
      settings.psf = await this.psf.ready(picture.file.orientation);
      settings.border = $("border").value;
      if (!settings.psf) throw new Problem({ title: "There is no blur yet", detail: $("psf-words").textContent });
    }
    if (task === "inpaint") settings.mask = await picture.maskId();
    if (!picture.file.data_range) settings.data_range = this.#white();
    return settings;
  }

  #sigma() {
    const kind = $("noise").value;
    if (kind === "number") return this.sliders.sigma.value;
    return kind === "0" ? 0 : kind;
  }

  #white() {
    const white = $("white").valueAsNumber;
    if (white > 0) return white;
    $("white").focus();
    const detail = "Its pixels are floats. Pass 1 where white is 1, 255 where white is 255.";
    throw new Problem({ title: "Say what white is in this picture", detail });
  }

  #units(span) {
    if (!span || span === this.span) return;
    const before = this.span ?? 255;
    this.span = span;
    const step = Number((span / 510).toPrecision(1));
    this.sliders.sigma.reach((span * 75) / 255, step);
    this.sliders.sigma.value = (this.sliders.sigma.value * span) / before;
    $("sigma-words").textContent = `In pixel values: white is ${number(span, 6)}.`;
  }

  #taskChanged() {
    $("task-words").textContent = WORDS[this.task];
    for (const part of document.querySelectorAll("[data-task]")) part.hidden = part.dataset.task !== this.task;
    this.#noiseFor(this.task);
    if (this.task === "deblur" && !this.psf.id) this.psf.make();
    this.#noiseChanged();
    this.dispatchEvent(new Event("task"));
  }

  /** What the command line takes by default; what cannot be is not offered. */
  #noiseFor(task) {
    const noisy = task === "denoise" || task === "deblur";
    const offer = (value, on) => {
      const option = $("noise").querySelector(`[value="${value}"]`);
      option.hidden = option.disabled = !on;
    };
    offer("poisson-gaussian", task === "denoise");
    offer("0", task !== "denoise");
    if ($("noise").value !== "number") $("noise").value = noisy ? "auto" : "0";
  }

  #noiseChanged() {
    const known = $("noise").value === "number";
    $("sigma-row").hidden = $("sigma-words").hidden = !known;
  }
}

/** A run in a few words: "Denoise, σ 25". */
export function inWords(settings) {
  const words = [TASKS[settings.task] ?? settings.task];
  if (settings.task === "upsample") words[0] += ` ${settings.factor} ×`;
  const { sigma } = settings;
  if (Number(sigma) !== 0) words.push(sigma === "auto" ? "σ auto" : sigma === "poisson-gaussian" ? "photon noise" : `σ ${number(Number(sigma))}`);
  return words.join(", ");
}
