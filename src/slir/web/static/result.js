// What is shown of a finished run: plain words, facts, warnings, downloads.

import { $, el, number, numbers } from "./dom.js";
import { inWords, TASKS } from "./settings.js";

export function showResult(job) {
  const done = job?.state === "done";
  $("result").hidden = !done;
  $("no-result").hidden = done;
  if (!done) return;
  const { result, settings } = job;
  $("result-title").textContent = TASKS[settings.task] ?? settings.task;
  $("result-words").textContent = `${noiseInWords(job)}${nextInWords(job)}`;
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
  const { result, settings, blur } = job;
  const found = [["Size", `${result.width} × ${result.height}`], ["Time", `${number(job.seconds, 3)} s`]];
  if (blur) found.push(["Blur (PSF)", inWords({ ...job, settings: { task: "", sigma: 0 } }).replace(/^, /, "")]);
  const { sigma, residual } = result;
  const label = result.forward?.psf_error ? "Noise and PSF error (σ)" : settings.sigma === "auto" ? "Noise found (σ)" : "Noise (σ)";
  if (sigma !== null && sigma !== undefined) found.push([label, numbers(sigma)]);
  if (residual !== null && residual !== undefined) found.push(["Residual", numbers(residual)]);
  return found;
}

/** What was found: "Little noise of about 2.6 grey levels was found. ". */
function noiseInWords({ result: { noise } }) {
  return noise ? `${noise[0].toUpperCase()}${noise.slice(1)} was found. ` : "";
}

/** What to try next. */
function nextInWords(job) {
  const little = /^(no|faint|little) /.test(job.result.noise);
  return NEXT[job.settings.task]({ little, jpeg: /\.jpe?g$/i.test(job.name), misfit: job.result.forward?.right === false });
}

const NEXT = {
  denoise: ({ little, jpeg }) =>
    little && jpeg
      ? "This is a JPEG, whose compression hides noise. If grain is left, increase the strength."
      : "If grain is left, increase the strength. If detail is lost, decrease it.",
  deblur: ({ misfit }) =>
    misfit
      ? "The blur or the noise does not fit the picture. Try several blurs, or increase the strength."
      : "If edges have rings, increase the strength or try a smaller blur. If the picture is still soft, try a larger one.",
  upsample: () => "If the picture is noisy, denoise it before you enlarge it. If it is soft, deblur it first.",
  inpaint: () => "Known pixels are unchanged. If a trace of the damage is left, paint a little wider.",
};

const download = (text, href, id, title) => el("a", { text, href, id, title, download: "" });

/** The line below the button once a run has ended. */
export const doneInWords = (job) => `${inWords(job)}: done in ${number(job.seconds, 2)} s. ${noiseInWords(job)}`;
