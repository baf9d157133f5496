// The mask's tools: what the pointer does to the picture when the task is to inpaint.

import { Problem } from "./api.js";
import { $, choose, chosen } from "./dom.js";

export class Painting {
  constructor(desk, settings, size, fail) {
    Object.assign(this, { desk, settings, size });
    $("tools").addEventListener("change", () => this.take(chosen("tool")));
    $("mask-undo").addEventListener("click", () => this.undo());
    $("mask-clear").addEventListener("click", () => {
      desk.picture?.mask.clear();
      this.refresh();
    });
    $("mask-choose").addEventListener("click", () => $("mask-file").click());
    $("mask-file").addEventListener("change", () => this.#load().catch(fail));
    settings.addEventListener("task", () => {
      if (settings.task === "inpaint" && desk.picture && desk.job?.settings.task !== "inpaint") this.take("paint");
      this.refresh();
    });
  }

  get tool() {
    return this.settings.task === "inpaint" ? chosen("tool") : "move";
  }

  /** What paints, or null where the pointer moves the picture. */
  brush() {
    const { picture } = this.desk;
    return this.tool === "move" || !picture ? null : picture.mask.brush(this.size.value, this.tool === "erase");
  }

  take(tool) {
    if (this.settings.task !== "inpaint") return;
    choose("tool", tool);
    if (tool !== "move" && this.desk.two) this.desk.setMode("before");
    this.refresh();
  }

  undo() {
    this.desk.picture?.mask.undo();
    this.refresh();
  }

  /** The circle that shows the brush. */
  hover(place) {
    const { viewer } = this.desk;
    const shown = this.tool !== "move" && place;
    if (!shown && !viewer.brush) return;
    viewer.brush = shown ? { x: place.x, y: place.y, size: this.size.value } : null;
    viewer.draw();
  }

  refresh() {
    const { viewer, picture, job, pair, two } = this.desk;
    const painting = this.tool !== "move";
    const shown = this.settings.task === "inpaint" && picture && !pair && (painting || !two); // else the red would hide what is compared
    viewer.mask = shown ? picture.mask.canvas : null;
    viewer.canvas.classList.toggle("painting", painting);
    viewer.canvas.classList.toggle("asking", !painting && job?.state === "done");
    if (!painting) viewer.brush = null;
    $("mask-undo").disabled = $("mask-clear").disabled = !picture || picture.mask.empty;
    viewer.draw();
  }

  async #load() {
    const [file] = $("mask-file").files;
    $("mask-file").value = "";
    if (!file || !this.desk.picture) return;
    const image = await createImageBitmap(file).catch(() => {
      const detail = "Choose a PNG, JPEG or WebP picture that is white where pixels are missing.";
      throw new Problem({ title: "This file is not a mask", detail });
    });
    const { width, height } = this.desk.picture.layer;
    if (image.width !== width || image.height !== height) {
      const detail = `It has ${image.width} × ${image.height} pixels, the picture ${width} × ${height}.`;
      throw new Problem({ title: "The mask and the picture differ in size", detail });
    }
    this.desk.picture.mask.load(image);
    this.take("move");
  }
}
