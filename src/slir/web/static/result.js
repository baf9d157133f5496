// What a finished run tells: facts, warnings, downloads.

import { $, el, number, numbers } from "./dom.js";
import { inWords, TASKS } from "./settings.js";

export function showResult(job) {
  const done = job?.state === "done";
  $("result").hidden = !done;
  $("no-result").hidden = done;
  if (!done) return;
  const { result, settings } = job;
  $("result-title").textContent = TASKS[settings.task] ?? settings.task;
  $("result-facts").replaceChildren(...rows(job).flatMap(([name, value]) => [el("dt", { text: name }), el("dd", { text: value })]));
  const notes = [];
  if (result.forward?.words) notes.push(note(result.forward.words, result.forward.right === false));
  for (const words of result.warnings ?? []) notes.push(note(words, true));
  if (!result.error && result.error_reason) notes.push(note(`No error map: ${result.error_reason}`, false));
  $("result-notes").replaceChildren(...notes);
  const base = `/api/jobs/${job.job}`;
  $("downloads").replaceChildren(
    download("Download the result", `${base}/result`, "download-result"),
    download("Settings file", `${base}/sidecar`, "download-sidecar", "The sidecar: all settings, to make the same file again"),
    ...(result.error ? [download("Error map", `${base}/error.tif`, "download-error", "Expected error of each pixel, as a TIFF of floats")] : []),
  );
}

function rows(job) {
  const { result, settings } = job;
  const found = [["Size", `${result.width} × ${result.height}`], ["Time", `${number(job.seconds, 3)} s`]];
  if (result.sigma !== null && result.sigma !== undefined) {
    found.push([settings.sigma === "auto" ? "Noise found (σ)" : "Noise (σ)", numbers(result.sigma)]);
  }
  if (result.residual !== null && result.residual !== undefined) found.push(["Left unexplained", numbers(result.residual)]);
  return found;
}

const note = (words, warn) => el("p", { class: warn ? "note warn" : "note", text: words });
const download = (text, href, id, title) => el("a", { text, href, id, title, download: "" });

/** The line below the button once a run has ended. */
export const doneInWords = (job) => `${inWords(job.settings)}: done in ${number(job.seconds, 2)} s`;
