// A slider and a number that say the same: made from <div data-slider="id" data-label data-min data-max …>.

import { el } from "./dom.js";

export class Slider extends EventTarget {
  constructor(row) {
    super();
    const { slider: id, label, min, max, step, value, unit } = row.dataset;
    this.row = row;
    this.range = el("input", { type: "range", id, min, max, step, value });
    this.field = el("input", { type: "number", min, max, step: "any", value, inputmode: "decimal", "aria-label": `${label}, as a number` });
    row.append(el("label", { for: id, text: label }), this.range, this.field, el("span", { class: "unit", text: unit }));
    this.range.addEventListener("input", () => this.#set(this.range.valueAsNumber));
    this.field.addEventListener("input", () => Number.isFinite(this.field.valueAsNumber) && this.#set(this.field.valueAsNumber, true));
    this.field.addEventListener("change", () => this.#set(this.value));
    this.current = Number(value);
  }

  get value() {
    return this.current;
  }

  set value(value) {
    this.#set(value);
  }

  /** The slider's end and step; the number may go beyond the end, never below the beginning. */
  reach(max, step) {
    Object.assign(this.range, { max, step });
    this.range.value = this.current;
  }

  #set(value, typing = false) {
    const low = Number(this.range.min);
    this.current = Math.max(value, low);
    this.range.value = this.current;
    if (!typing) this.field.value = Number(this.current.toPrecision(6));
    this.dispatchEvent(new Event("change"));
  }
}

/** All sliders of the page by their names. */
export function sliders() {
  const rows = [...document.querySelectorAll("[data-slider]")];
  return Object.fromEntries(rows.map((row) => [row.dataset.slider, new Slider(row)]));
}
