// Pictures for the viewer: loaded in steps, told apart, coloured.

import { api } from "./api.js";
import { turned, turnedSize } from "./orient.js";

const FIRST = 2048; // what is asked for at first; more only when somebody looks closer
const MOST = 16384; // what a canvas can hold

/** One picture to be drawn, upright: `width` × `height` pixels, of which the bitmap may hold fewer. */
export class Layer {
  constructor(url, { width, height }, orientation) {
    Object.assign(this, turnedSize(width, height, orientation), { url, orientation, bitmap: null, errors: null, plane: 0 });
  }

  /** Load a plane, where it is not the one that is there. */
  async load(plane = 0) {
    if (this.bitmap && plane === this.plane) return this;
    this.plane = plane;
    const bitmap = await this.fetch(this.url(FIRST, plane));
    if (plane === this.plane) Object.assign(this, { bitmap, full: false });
    return this;
  }

  fetch = async (url) => turned(await api.bitmap(url), this.orientation);

  /** Load all pixels, where the bitmap is smaller than the picture. False where there is nothing to gain. */
  async sharpen() {
    const longest = Math.max(this.width, this.height);
    if (this.full || !this.bitmap || Math.max(this.bitmap.width, this.bitmap.height) >= longest) return false;
    this.full = true;
    const { plane } = this;
    const bitmap = await this.fetch(this.url(Math.min(longest, MOST), plane));
    if (plane !== this.plane) return false;
    this.bitmap = bitmap;
    return true;
  }
}

export const fileLayer = (file) =>
  new Layer((max, plane) => `/api/files/${file.file}/preview.png?max=${max}&plane=${plane}`, file, file.orientation);

export const resultLayer = (job, orientation) =>
  new Layer((max, plane) => `/api/jobs/${job.job}/preview.png?max=${max}&plane=${plane}`, job.result, orientation);

export function canvasOf(width, height) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  return canvas;
}

/** The bytes of an image, drawn at a size. */
export function pixelsOf(image, width = image.width, height = image.height) {
  const context = canvasOf(width, height).getContext("2d", { willReadFrequently: true });
  context.drawImage(image, 0, 0, width, height);
  return context.getImageData(0, 0, width, height);
}

function painted(data) {
  const canvas = canvasOf(data.width, data.height);
  canvas.getContext("2d").putImageData(data, 0, 0);
  return canvas;
}

export const GAIN = 4; // differences are shown this many times as large

/** after − before about a middle grey, enlarged. */
export function difference(before, after) {
  const result = pixelsOf(after);
  const other = pixelsOf(before, after.width, after.height).data;
  const data = result.data;
  for (let i = 0; i < data.length; i += 4) {
    data[i] = 128 + GAIN * (data[i] - other[i]); // clamped by the array
    data[i + 1] = 128 + GAIN * (data[i + 1] - other[i + 1]);
    data[i + 2] = 128 + GAIN * (data[i + 2] - other[i + 2]);
  }
  return painted(result);
}

// Black over purple and orange to pale yellow, evenly spaced to the eye (the stops of matplotlib's inferno, CC0).
const STOPS = [[0, 0, 4], [40, 11, 84], [101, 21, 110], [159, 42, 99], [212, 72, 66], [245, 125, 21], [250, 193, 39], [252, 255, 164]];

/** The colour of a share in 0 … 1. */
export function heat(share) {
  const place = Math.min(Math.max(share, 0), 1) * (STOPS.length - 1);
  const low = Math.min(Math.floor(place), STOPS.length - 2);
  return STOPS[low].map((value, channel) => Math.round(value + (place - low) * (STOPS[low + 1][channel] - value)));
}

/** A grey error map in colours; its white is `share` of the legend's end. */
export function coloured(bitmap, share = 1) {
  const result = pixelsOf(bitmap);
  const table = Array.from({ length: 256 }, (_, grey) => heat((grey / 255) * share));
  const data = result.data;
  for (let i = 0; i < data.length; i += 4) [data[i], data[i + 1], data[i + 2]] = table[data[i]];
  return painted(result);
}

/** Values in 0 … 1, (H, W) or (H, W, 3), as a small canvas. */
export function patchCanvas(values) {
  const height = values.length;
  const width = values[0].length;
  const data = new ImageData(width, height);
  for (let row = 0; row < height; row++) {
    for (let col = 0; col < width; col++) {
      const value = values[row][col];
      const colours = Array.isArray(value) ? value : [value, value, value];
      const at = 4 * (row * width + col);
      for (let channel = 0; channel < 3; channel++) data.data[at + channel] = Math.round(255 * colours[channel % colours.length]);
      data.data[at + 3] = 255;
    }
  }
  return painted(data);
}
