// The blur: built by sliders, drawn by hand or read from a file; the server makes it and its picture.

import { api } from "./api.js";
import { $, choose, chosen, settled } from "./dom.js";
import { Grid } from "./grid.js";
import { inverse, turnedAngle, turnedRows } from "./orient.js";

const NAMES = { motion: "Motion", defocus: "Defocus", gaussian: "Gaussian", drawn: "Drawn by hand", file: "From a file" };

export class Psf {
  constructor(sliders) {
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
    for (const name of ["psf-length", "psf-angle", "psf-radius", "psf-width"]) sliders[name].addEventListener("change", changed);
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
    const kind = chosen("psf-kind");
    if (!this.id || orientation === 1 || !["motion", "drawn"].includes(kind)) return this.id; // others are round, or as they are
    return (await api.psf({ kind, ...this.#parameters(kind, inverse(orientation)) })).psf;
  }

  /** Take over a builder's settings, as an example suggests them. */
  use(settings) {
    choose("psf-kind", settings.kind);
    for (const name of ["length", "angle", "radius", "width"]) {
      if (name in settings) this.sliders[`psf-${name}`].value = settings[name];
    }
    if (settings.pixels) this.grid.take(settings.pixels);
    this.#kindChanged();
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
  }

  #kindChanged() {
    const kind = chosen("psf-kind");
    for (const part of document.querySelectorAll("[data-psf]")) part.hidden = part.dataset.psf !== kind;
    this.id = null;
    this.make();
  }
}
