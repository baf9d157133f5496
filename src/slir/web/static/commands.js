// The buttons of the viewer, and what each key does.

import { $ } from "./dom.js";
import { shortcuts } from "./keys.js";
import { isFinal } from "./runs.js";

const both = (key) => [key, key.toUpperCase()];

export function commands({ desk, painting, settings, brush, restore, cancel, calm }) {
  const { viewer } = desk;
  const mode = (name) => desk.two && desk.setMode(name);
  const buttons = {
    "zoom-in": () => viewer.zoom({ factor: Math.SQRT2 }),
    "zoom-out": () => viewer.zoom({ factor: Math.SQRT1_2 }),
    fit: () => viewer.fit(),
    actual: () => viewer.zoom({ scale: 1 }),
    help: () => $("shortcuts").showModal(),
  };
  for (const [id, action] of Object.entries(buttons)) $(id).addEventListener("click", action);
  // After a click of the mouse the keys belong to the picture again, so that Space does not press the button anew.
  document.querySelector(".bar").addEventListener("click", (event) => event.detail > 0 && viewer.canvas.focus({ preventScroll: true }));

  /** Close or stop what is nearest. */
  function escape() {
    if (!$("alert").hidden) calm();
    else if (desk.job && !isFinal(desk.job)) cancel();
    else if (desk.pair) desk.endComparison();
    else if (painting.tool !== "move") painting.take("move");
    else if (viewer.marker) {
      viewer.marker = null;
      viewer.draw();
    } else return false;
  }

  shortcuts([
    { keys: [" "], shown: "Space", words: "Before or after", action: () => desk.flip() },
    { keys: both("s"), shown: "S", words: "Slider between before and after", action: () => mode("slider") },
    { keys: both("d"), shown: "D", words: "Difference", action: () => mode(viewer.mode === "difference" ? "slider" : "difference") },
    { keys: both("b"), shown: "B", words: "Both side by side", action: () => mode("side") },
    { keys: both("e"), shown: "E", words: "Error map", action: () => desk.toggleErrors() },
    { keys: ["+", "="], shown: "+ −", words: "Zoom in and out (or the wheel, or two fingers)", action: buttons["zoom-in"] },
    { keys: ["-", "_"], action: buttons["zoom-out"] },
    { keys: ["0", ...both("f")], shown: "0 F", words: "Fit the window", action: buttons.fit },
    { keys: ["1"], shown: "1", words: "Actual pixels", action: buttons.actual },
    { shown: "← ↑ → ↓", words: "Move the picture, once it has the focus; Enter inspects the pixel in its middle" },
    { keys: ["["], shown: "[ ]", words: "Smaller and larger brush", action: () => (brush.value -= brush.value > 20 ? 5 : 1) },
    { keys: ["]"], action: () => (brush.value += brush.value >= 20 ? 5 : 1) },
    { keys: both("p"), shown: "P X", words: "Paint or erase the mask", action: () => painting.take("paint") },
    { keys: both("x"), action: () => painting.take("erase") },
    { keys: ["Ctrl+z"], shown: "Ctrl+Z", words: "Undo a stroke of the mask", action: () => (settings.task === "inpaint" ? painting.undo() : false) },
    { keys: both("r"), shown: "R", words: "Restore", action: restore },
    { keys: both("o"), shown: "O", words: "Open pictures", action: () => $("files").click() },
    { keys: ["Escape"], shown: "Esc", words: "Cancel, or close", action: escape },
    { keys: ["?"], shown: "?", words: "This list", action: buttons.help },
  ]);
}
