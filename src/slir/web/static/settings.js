// The form on the left: what to do to the picture.

import { $, choose, chosen, number, overall } from "./dom.js";
import { Problem } from "./api.js";
import { turnedAngle } from "./orient.js";
import { noiseOf } from "./preview.js";

export const TASKS = { denoise: "Denoise", deblur: "Deblur", upsample: "Enlarge", inpaint: "Inpaint" };
const WHOLE = 255; // the range in which the page's own σ counts before there is a picture

/** What the command line takes by default. */
const DEFAULTS = {
  task: "denoise",
  factor: "2",
  noise: { denoise: "auto", deblur: "auto", upsample: "0", inpaint: "0" },
  sigma: 25 / WHOLE,
  strength: 100,
  border: "unknown",
  psf: { kind: "motion", length: 9, angle: 30, radius: 3, width: 1.6, pixels: null, file: null },
};

/** "change" when a setting has, "task" when another task is chosen. */
export class Settings extends EventTarget {
  constructor(sliders, psf) {
    super();
    Object.assign(this, { sliders, psf, span: WHOLE, noise: { ...DEFAULTS.noise } });
    this.own = this.holder = {}; // whose settings the form shows: those of all pictures, or an example's
    $("tasks").addEventListener("change", () => this.#taskChanged());
    $("noise").addEventListener("change", () => {
      this.noise[this.task] = $("noise").value;
      this.#noiseChanged();
    });
    for (const id of ["border", "white"]) $(id).addEventListener("change", () => this.#changed());
    document.querySelector("[data-task=upsample]").addEventListener("change", () => this.#changed());
    for (const name of ["sigma", "strength"]) sliders[name].addEventListener("change", () => this.#changed());
    psf.addEventListener("change", () => this.#changed());
    $("settings").addEventListener("input", () => ($("said").textContent = "")); // it is about other settings
    this.#taskChanged();
  }

  get task() {
    return chosen("task");
  }

  /** The settings that belong to a picture: an example's are its own, all others share theirs. */
  suit(picture) {
    const { file, suggested } = picture;
    this.holder.kept = this.#state();
    this.holder = suggested ? picture : this.own;
    this.#measure(file);
    const { psf, sigma, ...others } = suggested ?? {};
    const fresh = () => ({ ...DEFAULTS, ...others, psf: { ...DEFAULTS.psf, ...psf } });
    this.#apply(this.holder.kept ?? fresh());
    if (!suggested && file.task_hint) this.#apply({ ...this.#state(), task: file.task_hint });
  }

  /** What POST /api/jobs takes for a picture; a Problem where something is missing. */
  async collect(picture) {
    const asked = await this.asked(picture);
    if (this.task === "inpaint") asked.mask = await picture.maskId();
    return { ...asked, sigma: await this.sigma(asked), error_map: true };
  }

  /** The same without the noise and the mask. */
  async asked(picture) {
    const { task } = this;
    const asked = { file: picture.file.file, task };
    if (task === "denoise" && $("noise").value === "auto") asked.strength = this.sliders.strength.value / 100;
    if (task === "upsample") asked.factor = Number(chosen("factor"));
    if (task === "deblur") {
      asked.psf = await this.psf.ready(picture.file.orientation);
      asked.border = $("border").value;
      if (!asked.psf) throw new Problem({ title: "There is no blur yet", detail: $("psf-words").textContent });
    }
    if (!picture.file.data_range) asked.data_range = this.#white();
    return asked;
  }

  /** The noise to assume: as it is known, or as it is found. Tasks that have no strength of their own take it times that. */
  async sigma(asked, signal) {
    const kind = $("noise").value;
    if (kind === "number") return this.sliders.sigma.value;
    const share = this.sliders.strength.value / 100;
    if (kind !== "auto" || share === 1 || this.task === "denoise") return kind === "0" ? 0 : kind;
    return Number((share * (await noiseOf(asked, signal))).toPrecision(4));
  }

  /** Tell what noise a preview found or assumed. */
  found({ noise, sigma }) {
    $("strength-words").textContent = noise ? `Found: ${noise}.` : `Assumed: noise of σ ${number(overall(sigma), 3)}.`;
  }

  /** Count in a picture's units. */
  #measure(file) {
    const span = Array.isArray(file.data_range) ? file.data_range[1] - file.data_range[0] : file.data_range;
    $("range-block").hidden = Boolean(span);
    if (!span) return;
    const share = this.sliders.sigma.value / this.span;
    this.span = span;
    this.sliders.sigma.reach((span * 75) / 255, Number((span / 510).toPrecision(1)));
    this.sliders.sigma.value = share * span;
    $("sigma-words").textContent = `In pixel values: white is ${number(span, 6)}.`;
  }

  #state() {
    const { sliders } = this;
    return {
      task: this.task,
      factor: chosen("factor"),
      noise: { ...this.noise },
      sigma: sliders.sigma.value / this.span,
      strength: sliders.strength.value,
      border: $("border").value,
      psf: this.psf.state,
    };
  }

  #apply({ task, factor, noise, sigma, strength, border, psf }) {
    choose("task", task);
    choose("factor", String(factor));
    this.noise = { ...noise };
    this.sliders.sigma.value = sigma * this.span;
    this.sliders.strength.value = strength;
    $("border").value = border;
    this.psf.use(psf);
    this.#taskChanged();
  }

  #white() {
    const white = $("white").valueAsNumber;
    if (white > 0) return white;
    const detail = "The pixels are floats. Specify 1 where white is 1, 255 where white is 255.";
    throw new Problem({ title: "The white level must be specified", detail, argument: "white" });
  }

  #taskChanged() {
    for (const part of document.querySelectorAll("[data-task]")) part.hidden = part.dataset.task !== this.task;
    const offer = (value, on) => {
      const option = $("noise").querySelector(`[value="${value}"]`);
      option.hidden = option.disabled = !on;
    };
    offer("poisson-gaussian", this.task === "denoise");
    offer("0", this.task !== "denoise");
    offer("auto", this.task !== "inpaint");
    $("noise").value = this.noise[this.task];
    if (this.task === "deblur" && !this.psf.id) this.psf.make();
    this.#noiseChanged();
    this.dispatchEvent(new Event("task"));
  }

  #noiseChanged() {
    const kind = $("noise").value;
    $("sigma-row").hidden = $("sigma-words").hidden = kind !== "number";
    $("strength-row").hidden = $("strength-words").hidden = kind !== "auto";
    $("strength-block").hidden = this.task === "inpaint";
    $("strength-legend").textContent = kind === "auto" ? "Noise" : "Preview";
    this.#changed();
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }
}

/** A blur in a few words, as the picture is seen: "motion 9 px, 30°". */
function blurInWords(blur, orientation) {
  const words = {
    motion: () => `motion ${number(blur.length)} px, ${number(turnedAngle(blur.angle, orientation))}°`,
    defocus: () => `defocus ${number(blur.radius)} px`,
    gaussian: () => `Gaussian ${number(blur.width)} px`,
    drawn: () => "drawn blur",
    file: () => blur.name,
  };
  return words[blur.kind]();
}

/** A run in a few words: "Deblur, motion 9 px, 30°, σ 2.5". */
export function inWords({ settings, blur, orientation = 1 }) {
  const words = [TASKS[settings.task] ?? settings.task];
  if (settings.task === "upsample") words[0] += ` ${settings.factor} ×`;
  if (blur) words.push(blurInWords(blur, orientation));
  const { sigma, strength = 1 } = settings;
  if (Number(sigma) !== 0) words.push(sigma === "auto" ? "σ auto" : sigma === "poisson-gaussian" ? "photon noise" : `σ ${number(Number(sigma))}`);
  if (strength !== 1) words.push(`strength ${number(100 * strength)} %`);
  return words.join(", ");
}
