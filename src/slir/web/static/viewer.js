// The picture on the screen. One view, shared by all that is shown: before and after move in step.
//
// Lengths on the screen are in its own pixels (device pixels); lengths in the picture in pixels of the box, which is
// as large as the result. view = {scale: screen pixels a box pixel, x, y: what is in the middle of a pane}.

import { difference } from "./images.js";
import { settled } from "./dom.js";

const MARGIN = 14;
const LARGEST = 96;
const GRID = 22; // from this scale on, pixels are told apart by lines

export class Viewer extends EventTarget {
  constructor(canvas) {
    super();
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.view = { scale: 1, x: 0, y: 0 };
    this.box = { width: 1, height: 1 };
    this.left = this.right = this.mask = this.marker = this.brush = null;
    Object.assign(this, { mode: "slider", wipe: 0.5, opacity: 0.7, errors: false, fitted: true, cross: false });
    this.sharpen = settled(() => this.#sharpen(), 150);
    new ResizeObserver(() => this.#resize()).observe(canvas);
  }

  get ratio() {
    return window.devicePixelRatio || 1;
  }

  /** Show one picture, or two of the same scene; the view stays where it is on the scene unless `anew`. */
  show(left, right = null, { anew = false } = {}) {
    const shown = right ?? left;
    const grown = shown.width / this.box.width;
    this.left = left;
    this.right = right;
    this.box = { width: shown.width, height: shown.height };
    this.delta = null;
    if (anew || this.fitted) this.fit();
    else if (grown !== 1) this.view = { scale: this.view.scale / grown, x: this.view.x * grown, y: this.view.y * grown };
    this.draw();
  }

  /** The parts of the screen: what each shows, from where to where, and where its middle is. */
  panes() {
    const width = this.canvas.width;
    const half = Math.round(width / 2);
    const whole = (layer) => [{ layer, from: 0, to: width, middle: half }];
    if (!this.right || this.mode === "before") return whole(this.left);
    if (this.mode === "after") return whole(this.right);
    if (this.mode === "difference") return whole(this.#difference());
    const cut = this.mode === "side" ? half : Math.round(width * this.wipe);
    const apart = this.mode === "side" ? half / 2 : 0;
    return [
      { layer: this.left, from: 0, to: cut, middle: half - apart },
      { layer: this.right, from: cut, to: width, middle: half + apart },
    ];
  }

  /** The place in the box under a point of the screen. */
  at(x, y) {
    const pane = this.panes().find((each) => x >= each.from && x < each.to) ?? this.panes()[0];
    const { scale } = this.view;
    return { x: this.view.x + (x - pane.middle) / scale, y: this.view.y + (y - this.canvas.height / 2) / scale, pane };
  }

  fit() {
    const share = this.right && this.mode === "side" ? 2 : 1;
    const room = 2 * MARGIN * this.ratio;
    const across = Math.max(this.canvas.width / share - room, 40) / this.box.width;
    const down = Math.max(this.canvas.height - room, 40) / this.box.height;
    this.view = { scale: Math.min(across, down, 16), x: this.box.width / 2, y: this.box.height / 2 };
    this.fitted = true;
    this.draw();
  }

  /** Zoom to a scale, or by a factor, about a point of the screen: its middle by default. */
  zoom({ scale, factor, x = this.canvas.width / 2, y = this.canvas.height / 2 }) {
    const place = this.at(x, y);
    const least = 24 / Math.max(this.box.width, this.box.height);
    this.view.scale = Math.min(Math.max(scale ?? this.view.scale * factor, least), LARGEST);
    this.view.x = place.x - (x - place.pane.middle) / this.view.scale;
    this.view.y = place.y - (y - this.canvas.height / 2) / this.view.scale;
    this.#moved();
  }

  /** Move the picture by a distance on the screen. */
  pan(x, y) {
    this.view.x -= x / this.view.scale;
    this.view.y -= y / this.view.scale;
    this.#moved();
  }

  setMode(mode) {
    const aside = (this.mode === "side") !== (mode === "side");
    this.mode = mode;
    if (aside && this.fitted) this.fit();
    this.draw();
  }

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.#paint();
      this.dispatchEvent(new Event("drawn"));
      this.sharpen();
    });
  }

  #moved() {
    this.fitted = false;
    this.view.x = Math.min(Math.max(this.view.x, 0), this.box.width);
    this.view.y = Math.min(Math.max(this.view.y, 0), this.box.height);
    this.draw();
  }

  #resize() {
    const bounds = this.canvas.getBoundingClientRect();
    this.canvas.width = Math.max(Math.round(bounds.width * this.ratio), 1);
    this.canvas.height = Math.max(Math.round(bounds.height * this.ratio), 1);
    if (this.fitted) this.fit();
    this.draw();
  }

  #difference() {
    const [before, after] = [this.left.bitmap, this.right.bitmap];
    if (!before || !after) return this.right;
    if (this.delta?.before !== before || this.delta?.after !== after) {
      this.delta = { before, after, bitmap: difference(before, after), width: this.box.width, height: this.box.height };
    }
    return this.delta;
  }

  async #sharpen() {
    const wanted = this.box.width * this.view.scale;
    const near = [this.left, this.right].filter((layer) => layer?.bitmap && layer.sharpen && wanted > 1.1 * layer.bitmap.width);
    const done = await Promise.all(near.map((layer) => layer.sharpen().catch(() => false)));
    if (done.some(Boolean)) this.draw();
  }

  #paint() {
    const { context, canvas } = this;
    context.fillStyle = "#1b1b1b";
    context.fillRect(0, 0, canvas.width, canvas.height);
    if (!this.left) return;
    for (const pane of this.panes()) {
      context.save();
      context.beginPath();
      context.rect(pane.from, 0, pane.to - pane.from, canvas.height);
      context.clip();
      this.#paintPane(pane);
      context.restore();
    }
    if (this.right && this.mode === "side") {
      context.fillStyle = "#3a3a3a";
      context.fillRect(Math.round(canvas.width / 2) - 1, 0, 2, canvas.height);
    }
  }

  #paintPane({ layer, middle, from, to }) {
    const { context, canvas, view, box } = this;
    const width = box.width * view.scale;
    const height = box.height * view.scale;
    const x = Math.round(middle - view.x * view.scale);
    const y = Math.round(canvas.height / 2 - view.y * view.scale);
    const place = (image, alpha = 1) => {
      const scale = width / image.width;
      context.globalAlpha = alpha;
      context.imageSmoothingEnabled = scale < 2; // from twice on, pixels are shown as they are
      context.imageSmoothingQuality = "high";
      context.drawImage(image, x, y, width, height);
      context.globalAlpha = 1;
    };
    if (layer.bitmap) place(layer.bitmap);
    if (this.errors && layer.errors && !layer.plane) place(layer.errors, this.opacity); // of the first plane
    if (this.mask && layer === this.left) place(this.mask, 0.55);
    if (view.scale >= GRID) this.#grid(x, y, from, to);
    if (this.marker && this.right && !this.brush) this.#mark(x, y);
    if (this.brush && layer === this.left) this.#circle(x, y);
    if (this.cross && document.activeElement === canvas) this.#cross(middle);
  }

  #grid(x, y, from, to) {
    const { context, canvas, view } = this;
    context.fillStyle = "rgb(128 128 128 / 0.35)";
    for (let col = Math.ceil((from - x) / view.scale); col <= this.box.width && x + col * view.scale < to; col++) {
      if (col >= 0) context.fillRect(Math.round(x + col * view.scale), Math.max(y, 0), 1, Math.min(y + this.box.height * view.scale, canvas.height) - Math.max(y, 0));
    }
    for (let row = Math.max(Math.ceil(-y / view.scale), 0); row <= this.box.height && y + row * view.scale < canvas.height; row++) {
      context.fillRect(Math.max(x, from), Math.round(y + row * view.scale), Math.min(x + this.box.width * view.scale, to) - Math.max(x, from), 1);
    }
  }

  /** The pixel that was asked for: a square of dark and light, so that it shows on anything. */
  #mark(x, y) {
    const { scale } = this.view;
    const side = Math.max(scale, 9 * this.ratio);
    const left = x + (this.marker.col + 0.5) * scale - side / 2;
    const top = y + (this.marker.row + 0.5) * scale - side / 2;
    this.#outline((grow) => this.context.rect(left - grow, top - grow, side + 2 * grow, side + 2 * grow), "#e9b75f");
  }

  #circle(x, y) {
    const { scale } = this.view;
    const radius = Math.max((this.brush.size * scale) / 2, 2);
    this.#outline((grow) => this.context.arc(x + this.brush.x * scale, y + this.brush.y * scale, radius + grow, 0, 7), "#ffffff");
  }

  #cross(middle) {
    const reach = 9 * this.ratio;
    const down = this.canvas.height / 2;
    this.#outline(() => {
      this.context.moveTo(middle - reach, down);
      this.context.lineTo(middle + reach, down);
      this.context.moveTo(middle, down - reach);
      this.context.lineTo(middle, down + reach);
    }, "#ffffff");
  }

  #outline(path, colour) {
    const { context } = this;
    for (const [style, width, grow] of [["#000000", 3, 1], [colour, 1.5, 1]]) {
      context.beginPath();
      path(grow);
      context.strokeStyle = style;
      context.lineWidth = width * this.ratio;
      context.stroke();
    }
  }
}
