// What is missing in a picture, painted by strokes that can be undone.

import { canvasOf, pixelsOf } from "./images.js";
import { turned } from "./orient.js";

const RUBY = "#ff3b3b"; // the red film that retouchers cut their masks from

export class Mask {
  constructor(width, height) {
    Object.assign(this, { width, height, strokes: [], version: 0, id: null });
    this.canvas = canvasOf(width, height);
    this.context = this.canvas.getContext("2d");
  }

  get empty() {
    return this.strokes.length === 0;
  }

  /** A brush `size` pixels wide, to be moved over the picture. */
  brush(size, erase) {
    // A thin brush in between two pixels would cover neither by half.
    const point = ({ x, y }) => (size < 4 ? [Math.floor(x) + 0.5, Math.floor(y) + 0.5] : [x, y]);
    return {
      begin: (place) => {
        this.stroke = { size, erase, points: [point(place)] };
        this.#draw(this.stroke, 0);
      },
      move: (place) => {
        this.stroke.points.push(point(place));
        this.#draw(this.stroke, this.stroke.points.length - 2);
      },
      end: () => this.#keep(this.stroke),
      abort: () => this.#redraw(),
    };
  }

  /** Begin with an image that is white where pixels are missing. */
  load(image) {
    const data = pixelsOf(image, this.width, this.height);
    for (let i = 0; i < data.data.length; i += 4) {
      const missing = data.data[i + 3] > 127 && data.data[i] > 127;
      data.data.set(missing ? [255, 59, 59, 255] : [0, 0, 0, 0], i);
    }
    const canvas = canvasOf(this.width, this.height);
    canvas.getContext("2d").putImageData(data, 0, 0);
    this.#keep({ canvas });
    this.#redraw();
  }

  undo() {
    this.strokes.pop();
    this.version++;
    this.#redraw();
  }

  clear() {
    this.strokes = [];
    this.version++;
    this.#redraw();
  }

  /** White where a pixel is missing, black elsewhere, nothing between, turned: {blob, share}. */
  async png(orientation) {
    const data = pixelsOf(this.canvas);
    let missing = 0;
    for (let i = 0; i < data.data.length; i += 4) {
      const white = data.data[i + 3] > 127 ? 255 : 0;
      missing += white ? 1 : 0;
      data.data.set([white, white, white, 255], i);
    }
    const canvas = canvasOf(this.width, this.height);
    canvas.getContext("2d").putImageData(data, 0, 0);
    const blob = await new Promise((done) => turned(canvas, orientation).toBlob(done, "image/png"));
    return { blob, share: missing / (this.width * this.height) };
  }

  #keep(stroke) {
    this.strokes.push(stroke);
    this.version++;
  }

  #redraw() {
    this.context.globalCompositeOperation = "source-over";
    this.context.clearRect(0, 0, this.width, this.height);
    for (const stroke of this.strokes) this.#draw(stroke, 0);
  }

  #draw(stroke, from) {
    const { context } = this;
    if (stroke.canvas) {
      context.globalCompositeOperation = "source-over";
      return context.drawImage(stroke.canvas, 0, 0);
    }
    context.globalCompositeOperation = stroke.erase ? "destination-out" : "source-over";
    context.strokeStyle = context.fillStyle = RUBY;
    context.lineWidth = stroke.size;
    context.lineCap = context.lineJoin = "round";
    context.beginPath();
    context.moveTo(stroke.points[from][0] + 0.01, stroke.points[from][1]); // a line of no length is not drawn
    for (const point of stroke.points.slice(from)) context.lineTo(...point);
    context.stroke();
  }
}
