// A crop of the picture, restored at once with the settings of the form, before the whole is.

import { api, patiently } from "./api.js";
import { $, overall, settled } from "./dom.js";
import { turned, turnedPlace, inverse } from "./orient.js";

const PAUSE = 90; // milliseconds without a change, before the server is asked

const known = new Map();

/** The noise that the server finds in a picture. asked : settings of a job, but for its noise. */
export async function noiseOf(asked, signal) {
  const key = JSON.stringify(asked);
  if (!known.has(key)) {
    const place = { row: 0, col: 0, ...asked };
    const told = await patiently(() => api.preview({ ...place, sigma: "auto" }, signal), { signal });
    known.set(key, overall(told.sigma));
  }
  return known.get(key);
}

/** A crop before and after: {row, col, height, width, sigma, before, after}, the last two upright bitmaps. */
export async function cropped(asked, orientation, { signal, waiting }) {
  const told = await patiently(() => api.preview(asked, signal), { signal, waiting });
  const bitmap = async (data) => {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    return turned(await createImageBitmap(new Blob([bytes], { type: "image/png" })), orientation);
  };
  return { ...told, before: await bitmap(told.before), after: await bitmap(told.after) };
}

/** Draw the middle of a bitmap, pixel by pixel where it is large enough. */
export function drawCrop(canvas, bitmap, size) {
  const context = canvas.getContext("2d");
  const scale = Math.max(canvas.width / size.width, canvas.height / size.height, 1) * (size.width / bitmap.width);
  const [width, height] = [bitmap.width * scale, bitmap.height * scale];
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.imageSmoothingEnabled = scale < 2;
  context.drawImage(bitmap, (canvas.width - width) / 2, (canvas.height - height) / 2, width, height);
}

export class Preview {
  constructor(desk, settings) {
    Object.assign(this, { desk, settings, pauses: new Set() });
    this.refresh = settled(() => this.#refresh(), PAUSE);
    settings.addEventListener("change", this.refresh);
    desk.viewer.addEventListener("drawn", () => this.#place() !== this.placed && this.refresh());
  }

  /** Ask for nothing while something else keeps the server busy. */
  pause(reason, on) {
    if (on === this.pauses.has(reason)) return;
    if (on) this.pauses.add(reason);
    else this.pauses.delete(reason);
    this.refresh();
  }

  /** The settings of a crop in the middle of the view. */
  async asked(signal) {
    const { picture, plane } = this.desk;
    const { row, col } = this.place();
    const asked = await this.settings.asked(picture);
    return { ...asked, row, col, plane, sigma: await this.settings.sigma(asked, signal) };
  }

  /** The pixel in the middle of the view, as it is stored. */
  place() {
    const { viewer, picture } = this.desk;
    const { box, view } = viewer;
    const { width, height } = picture.layer;
    const within = (value, length) => Math.min(Math.max(Math.floor(value), 0), length - 1);
    const upright = { row: within((view.y * height) / box.height, height), col: within((view.x * width) / box.width, width) };
    return turnedPlace(upright, { width, height }, inverse(picture.file.orientation));
  }

  #place() {
    return this.desk.picture ? JSON.stringify([this.place(), this.desk.plane, this.desk.picture.file.file]) : "";
  }

  async #refresh() {
    this.abort?.abort();
    const { picture } = this.desk;
    $("preview").hidden = !picture || this.settings.task === "inpaint";
    if ($("preview").hidden || this.pauses.size) return;
    if (picture !== this.shown) this.#clear();
    this.shown = picture;
    const { signal } = (this.abort = new AbortController());
    const waiting = ({ title }) => this.#say(`${title}. The preview waits.`);
    this.placed = this.#place();
    try {
      const crop = await cropped(await this.asked(signal), picture.file.orientation, { signal, waiting });
      if (signal.aborted) return;
      const size = { width: crop.after.width, height: crop.after.height };
      drawCrop($("preview-before"), crop.before, size);
      drawCrop($("preview-after"), crop.after, size);
      this.settings.found(crop);
      this.#say("The middle of the view, before and after");
    } catch (problem) {
      if (!signal.aborted) this.#say(`No preview: ${problem.title ?? problem}`);
    }
  }

  #clear() {
    for (const side of ["before", "after"]) $(`preview-${side}`).getContext("2d").clearRect(0, 0, 132, 132);
    $("strength-words").textContent = "";
  }

  #say(words) {
    $("preview-words").textContent = words;
  }
}
