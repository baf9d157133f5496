// Several blurs tried on a crop, of which a person picks one; the next ones are closer to it.

import { api, Problem } from "./api.js";
import { $, el } from "./dom.js";
import { cropped, drawCrop } from "./preview.js";

const ROUNDS = [
  { ratio: 1.6, angle: 60, fine: 1.3 },
  { ratio: 1.25, angle: 20, fine: 1.1 },
  { ratio: 1.1, angle: 7, fine: 1.04 },
];
const SIDE = 144;

/** Nine settings of a blur around one. */
export function around({ kind, ...values }, round) {
  const { ratio, angle, fine } = ROUNDS[Math.min(round, ROUNDS.length - 1)];
  const rounded = (value, step) => Number((Math.max(Math.round(value / step), 1) * step).toFixed(2));
  if (kind === "motion") {
    const turn = (by) => (values.angle + by + 180) % 180;
    const lengths = [1 / ratio, 1, ratio].map((factor) => rounded(values.length * factor, 0.5));
    return lengths.flatMap((length) => [-angle, 0, angle].map((by) => ({ length, angle: turn(by) })));
  }
  const [name, value] = Object.entries(values)[0];
  return [-4, -3, -2, -1, 0, 1, 2, 3, 4].map((power) => ({ [name]: rounded(value * fine ** power, 0.05) }));
}

const inWords = ({ length, angle, radius, width }) => (length ? `${length} px, ${angle}°` : `${radius ?? width} px`);

export class Trials {
  constructor(desk, psf, preview, fail) {
    Object.assign(this, { desk, psf, preview, fail });
    $("psf-try").addEventListener("click", () => this.open().catch(fail));
    $("trials").addEventListener("close", () => this.#close());
  }

  async open() {
    this.round = 0;
    this.preview.pause("trials", true);
    this.asked = await this.preview.asked();
    $("trials").showModal();
    await this.#fill();
  }

  #close() {
    this.abort?.abort();
    this.preview.pause("trials", false);
  }

  async #fill() {
    this.abort?.abort();
    const { signal } = (this.abort = new AbortController());
    const blurs = around(this.psf.built, this.round);
    const cards = blurs.map((values) => this.#card(values));
    $("trial-list").replaceChildren(...cards.map((card) => el("li", {}, card)));
    $("trial-words").textContent = "";
    const { orientation } = this.desk.picture.file;
    const waiting = ({ title }) => ($("trial-words").textContent = `${title}. The trials wait.`);
    try {
      for (const [index, values] of blurs.entries()) {
        const { psf } = await api.psf(this.psf.request(values, orientation));
        const crop = await cropped({ ...this.asked, psf }, orientation, { signal, waiting });
        drawCrop(cards[index].querySelector("canvas"), crop.after, crop.after);
        cards[index].disabled = false;
        $("trial-words").textContent = "";
      }
    } catch (problem) {
      if (signal.aborted) return;
      if (!(problem instanceof Problem)) throw problem;
      $("trial-words").textContent = `${problem.title}: ${problem.words}`;
    }
  }

  #card(values) {
    const words = inWords(values);
    const canvas = el("canvas", { width: SIDE, height: SIDE, "aria-hidden": "true" });
    const now = JSON.stringify(values) === JSON.stringify(this.psf.built, Object.keys(values));
    return el("button", { type: "button", disabled: true, "aria-pressed": String(now), click: () => this.#pick(values) }, canvas, el("span", { text: words }));
  }

  #pick(values) {
    this.psf.set(values);
    this.round++;
    this.#fill().catch(this.fail);
  }
}
