// The legend, below the picture: the error map's colours, or the difference's greys, with their units.

import { $, number } from "./dom.js";
import { coloured, GAIN, heat } from "./images.js";

/** Load the error maps of finished jobs onto their layers, all on one scale; gives the legend's end, its unit, and whether it is not calibrated. */
export async function loadErrors(pairs) {
  const known = pairs.filter(([job]) => job?.result?.error);
  if (known.length === 0) return null;
  const top = Math.max(...known.map(([job]) => job.result.max_error));
  await Promise.all(
    known.map(async ([job, layer]) => {
      if (layer.errors && layer.errorsTop === top) return;
      layer.errorMap ??= await layer.fetch(`/api/jobs/${job.job}/error.png?max=2048`);
      layer.errors = coloured(layer.errorMap, job.result.max_error / top);
      layer.errorsTop = top;
    }),
  );
  const rough = known.some(([job]) => job.result.interval_reason);
  return { top, unit: known[0][0].result.unit_text || "in pixel values", rough };
}

const WIDE = 150;

/** kind: "errors" with {top, unit, rough}, "difference", or null for none. */
export function showLegend(kind, scale) {
  $("legend").hidden = !kind;
  if (!kind) return;
  const errors = kind === "errors";
  const bar = $("legend-bar").getContext("2d");
  for (let x = 0; x < WIDE; x++) {
    const share = x / (WIDE - 1);
    const grey = Math.round(255 * share);
    bar.fillStyle = `rgb(${(errors ? heat(share) : [grey, grey, grey]).join(" ")})`;
    bar.fillRect(x, 0, 1, 8);
  }
  const most = Math.round(100 / 2 / GAIN);
  const marks = errors ? [0, scale.top / 2, scale.top].map((value) => number(value, 3)) : [`−${most} %`, "same", `+${most} %`];
  $("legend-ticks").replaceChildren(...marks.map((text) => Object.assign(document.createElement("span"), { textContent: text })));
  $("legend-words").textContent = errors ? `Expected error${scale.rough ? ", not calibrated" : ""}\n${scale.unit}` : "After minus before\nshare of the range";
  $("legend-opacity").hidden = !errors;
}
