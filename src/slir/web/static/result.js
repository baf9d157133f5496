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
  const warned = new Set([result.forward?.right === false && result.forward.words, ...(result.warnings ?? [])]); // often the same
  const told = [
    !result.error && result.error_reason && `No error map: ${result.error_reason}`,
    result.interval_reason && `No intervals: ${result.interval_reason}`,
    ...(result.notes ?? []),
  ];
  $("result-notes").replaceChildren(
    ...[...warned].filter(Boolean).map((words) => el("p", { class: "note warn", text: words })),
    ...told.filter(Boolean).map((words) => el("p", { class: "note", text: words })),
  );
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
  if (result.residual !== null && result.residual !== undefined) found.push(["Left over (residual)", numbers(result.residual)]);
  return found;
}

const download = (text, href, id, title) => el("a", { text, href, id, title, download: "" });

/** The line below the button once a run has ended. */
export const doneInWords = (job) => `${inWords(job.settings)}: done in ${number(job.seconds, 2)} s`;
