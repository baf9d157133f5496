// The blur: built by sliders, drawn by hand or read from a file; the server makes it and its picture.

import { api } from "./api.js";
import { $, choose, chosen, settled } from "./dom.js";
import { Grid } from "./grid.js";
import { inverse, turnedAngle, turnedRows } from "./orient.js";

const NUMBERS = ["length", "angle", "radius", "width"];
const NAMES = { motion: "Motion", defocus: "Defocus", gaussian: "Gaussian", drawn: "Drawn by hand", file: "From a file" };

/** "change" when there is another PSF. */
export class Psf extends EventTarget {
  constructor(sliders) {
    super();
    this.sliders = sliders;
    this.grid = new Grid($("psf-grid"));
    this.id = null;
    this.file = null;
    this.turn = 0;
    this.done = Promise.resolve();
    const later = settled(() => this.make(), 120);
    const changed = () => {
      this.id = null;
      later();
    };
    for (const name of NUMBERS) sliders[`psf-${name}`].addEventListener("change", changed);
    this.grid.addEventListener("change", changed);
    $("psf-kinds").addEventListener("change", () => this.#kindChanged());
    $("psf-size").addEventListener("change", () => this.grid.resize(Number($("psf-size").value)));
    $("psf-clear").addEventListener("click", () => this.grid.clear());
    $("psf-erase").addEventListener("change", () => (this.grid.erase = $("psf-erase").checked));
    $("psf-choose").addEventListener("click", () => $("psf-file").click());
    $("psf-file").addEventListener("change", () => {
      this.take($("psf-file").files[0]);
      $("psf-file").value = ""; // the same name may hold something else next time
    });
  }

  /** The id of what is shown, for a picture that is stored so; null where there is nothing to make it from. */
  async ready(orientation = 1) {
    if (!this.id) await this.make();
    const { id } = this;
    const kind = chosen("psf-kind");
    if (!id || orientation === 1 || !["motion", "drawn"].includes(kind)) return id; // others are round, or as they are
    if (this.stored?.of !== id || this.stored.orientation !== orientation) {
      const { psf } = await api.psf({ kind, ...this.#parameters(kind, inverse(orientation)) });
      this.stored = { of: id, orientation, psf };
    }
    return this.stored.psf;
  }

  /** All settings of the builders. */
  get state() {
    const values = Object.fromEntries(NUMBERS.map((name) => [name, this.sliders[`psf-${name}`].value]));
    return { kind: chosen("psf-kind"), ...values, pixels: this.grid.empty ? null : this.grid.pixels(), file: this.file };
  }

  /** Take over settings like these. */
  use(state) {
    if (JSON.stringify(state) === JSON.stringify(this.state) && state.file === this.file) return;
    choose("psf-kind", state.kind);
    this.set(state);
    if (state.pixels) this.grid.take(state.pixels);
    else this.grid.clear();
    this.file = state.file;
    this.#kindChanged();
  }

  /** Set the builders' numbers. */
  set(values) {
    for (const name of NUMBERS) if (name in values) this.sliders[`psf-${name}`].value = values[name];
  }

  /** What is built by numbers: {kind, …}; null for a blur that is drawn or read. */
  get built() {
    const kind = chosen("psf-kind");
    return kind in { motion: 1, defocus: 1, gaussian: 1 } ? { kind, ...this.#parameters(kind) } : null;
  }

  /** What POST /api/psf takes for other numbers, for a picture that is stored so. */
  request(values, orientation) {
    const turnedValues = "angle" in values ? { angle: turnedAngle(values.angle, inverse(orientation)) } : {};
    return { kind: chosen("psf-kind"), ...values, ...turnedValues };
  }

  take(file) {
    if (!file) return;
    this.file = file;
    choose("psf-kind", "file");
    this.#kindChanged();
  }

  /** Ask the server for the PSF and show it. Only the newest question's answer counts. */
  make() {
    const turn = ++this.turn;
    this.done = this.#make(turn);
    return this.done;
  }

  async #make(turn) {
    const kind = chosen("psf-kind");
    const nothing = { drawn: this.grid.empty && "Draw the blur above.", file: !this.file && "No file chosen." }[kind];
    if (nothing) return this.#show(null, nothing);
    try {
      const made = kind === "file" ? await api.psfFile(this.file) : await api.psf({ kind, ...this.#parameters(kind) });
      if (turn === this.turn) this.#show(made, kind === "file" ? this.file.name : NAMES[kind]);
    } catch (problem) {
      if (turn === this.turn) this.#show(null, [problem.title, problem.words].filter(Boolean).join(": "), true);
    }
  }

  #parameters(kind, orientation = 1) {
    const value = (name) => this.sliders[`psf-${name}`].value;
    if (kind === "motion") return { length: value("length"), angle: orientation === 1 ? value("angle") : turnedAngle(value("angle"), orientation) };
    if (kind === "defocus") return { radius: value("radius") };
    return kind === "gaussian" ? { width: value("width") } : { pixels: turnedRows(this.grid.pixels(), orientation) };
  }

  #show(made, words, bad = false) {
    this.id = made?.psf ?? null;
    const picture = $("psf-picture");
    picture.hidden = !made;
    if (made) {
      const scale = Math.max(1, Math.min(16, Math.floor(176 / Math.max(made.width, made.height))));
      picture.src = `/api/psf/${made.psf}.png?scale=${scale}`;
      picture.alt = `The blur: ${words}`;
    }
    $("psf-words").textContent = made ? `${words}, ${made.height} × ${made.width} pixels` : words;
    $("psf-words").classList.toggle("bad", bad);
    $("psf-try").hidden = !this.built;
    $("psf-try").disabled = !made || $("restore").disabled;
    const shown = `${this.id} ${words}`;
    if (shown !== this.shown) this.dispatchEvent(new Event("change"));
    this.shown = shown;
  }

  #kindChanged() {
    const kind = chosen("psf-kind");
    for (const part of document.querySelectorAll("[data-psf]")) part.hidden = part.dataset.psf !== kind;
    this.id = null;
    this.make();
  }
}
