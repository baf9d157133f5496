// A small grid on which light is drawn: the more often the pen passes a cell, the more light it holds.

const SIDE = 264;

export class Grid extends EventTarget {
  constructor(canvas) {
    super();
    this.canvas = canvas;
    this.erase = false;
    this.size = 21;
    this.cells = new Float32Array(this.size ** 2);
    this.at = { row: 10, col: 10 };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.pen = this.#place(event);
      this.#splat(this.pen, 0.5, event.buttons === 2);
      this.#changed();
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!this.pen || !event.buttons) return;
      const place = this.#place(event);
      this.#line(this.pen, place, event.buttons === 2);
      this.pen = place;
      this.#changed();
    });
    canvas.addEventListener("pointerup", () => (this.pen = null));
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("focus", () => this.draw());
    canvas.addEventListener("blur", () => this.draw());
    this.draw();
  }

  get empty() {
    return !this.cells.some((value) => value > 0);
  }

  pixels() {
    const most = Math.max(...this.cells);
    return Array.from({ length: this.size }, (_, row) =>
      Array.from(this.cells.subarray(row * this.size, (row + 1) * this.size), (value) => value / most),
    );
  }

  /** Show a kernel that exists, in the middle of a grid that is large enough. */
  take(pixels) {
    this.size = Math.max(pixels.length, pixels[0].length) | 1;
    this.cells = new Float32Array(this.size ** 2);
    const [down, right] = [(this.size - pixels.length) >> 1, (this.size - pixels[0].length) >> 1];
    pixels.forEach((line, row) => line.forEach((value, col) => (this.cells[(row + down) * this.size + col + right] = value)));
    this.#changed();
  }

  /** A larger or smaller grid about the same middle. */
  resize(size) {
    const [before, old] = [this.size, this.cells];
    this.size = size;
    this.cells = new Float32Array(size ** 2);
    const move = (size - before) / 2;
    for (let row = 0; row < before; row++) {
      for (let col = 0; col < before; col++) {
        const [r, c] = [row + move, col + move];
        if (r >= 0 && c >= 0 && r < size && c < size) this.cells[r * size + c] = old[row * before + col];
      }
    }
    this.at = { row: size >> 1, col: size >> 1 };
    this.#changed();
  }

  clear() {
    this.cells.fill(0);
    this.#changed();
  }

  draw() {
    const context = this.canvas.getContext("2d");
    const step = SIDE / this.size;
    const most = Math.max(...this.cells) || 1;
    context.fillStyle = "#3a3a3a";
    context.fillRect(0, 0, SIDE, SIDE);
    for (let row = 0; row < this.size; row++) {
      for (let col = 0; col < this.size; col++) {
        const grey = Math.round(14 + 241 * (this.cells[row * this.size + col] / most));
        context.fillStyle = `rgb(${grey} ${grey} ${grey})`;
        const [x, y] = [Math.round(col * step), Math.round(row * step)];
        context.fillRect(x, y, Math.round((col + 1) * step) - x - 1, Math.round((row + 1) * step) - y - 1);
      }
    }
    context.strokeStyle = "#8a8a8a"; // the middle, where a point of light would have stayed
    const middle = this.size >> 1;
    context.strokeRect(middle * step - 0.5, middle * step - 0.5, step, step);
    if (this.canvas.matches(":focus-visible")) {
      context.strokeStyle = "#e9b75f";
      context.lineWidth = 2;
      context.strokeRect(this.at.col * step, this.at.row * step, step, step);
      context.lineWidth = 1;
    }
  }

  #place(event) {
    const bounds = this.canvas.getBoundingClientRect();
    return {
      col: ((event.clientX - bounds.left) / bounds.width) * this.size - 0.5,
      row: ((event.clientY - bounds.top) / bounds.height) * this.size - 0.5,
    };
  }

  #line(from, to, erase) {
    const length = Math.hypot(to.row - from.row, to.col - from.col);
    const steps = Math.max(1, Math.ceil(length * 4));
    for (let i = 1; i <= steps; i++) {
      const share = i / steps;
      const place = { row: from.row + share * (to.row - from.row), col: from.col + share * (to.col - from.col) };
      this.#splat(place, length / steps, erase);
    }
  }

  /** Light on the four cells around a place, by how near they are. */
  #splat({ row, col }, light, erase) {
    const [top, left] = [Math.floor(row), Math.floor(col)];
    for (const [r, c] of [[top, left], [top, left + 1], [top + 1, left], [top + 1, left + 1]]) {
      if (r < 0 || c < 0 || r >= this.size || c >= this.size) continue;
      const near = (1 - Math.abs(row - r)) * (1 - Math.abs(col - c));
      const cell = r * this.size + c;
      if (erase || this.erase) this.cells[cell] = near > 0.2 ? 0 : this.cells[cell];
      else this.cells[cell] += light * near;
    }
  }

  #key(event) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const move = moves[event.key];
    const cell = this.at.row * this.size + this.at.col;
    if (move) {
      this.at.row = Math.min(Math.max(this.at.row + move[0], 0), this.size - 1);
      this.at.col = Math.min(Math.max(this.at.col + move[1], 0), this.size - 1);
      this.draw();
    } else if (event.key === "Enter" || event.key === " ") {
      this.cells[cell] = this.erase ? 0 : this.cells[cell] + 0.5;
      this.#changed();
    } else if (event.key === "Delete" || event.key === "Backspace") {
      this.cells[cell] = 0;
      this.#changed();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #changed() {
    this.draw();
    this.dispatchEvent(new Event("change"));
  }
}
