// Pictures come in: chosen, pasted, or dropped anywhere on the page.

import { $ } from "./dom.js";

/** `take(files)` gets pictures; `takePsf(file)` one that is dropped onto the settings of the blur. */
export function watchForFiles(take, takePsf) {
  $("files").addEventListener("change", () => {
    take([...$("files").files]);
    $("files").value = ""; // the same file may be chosen again
  });
  for (const id of ["open", "choose"]) $(id).addEventListener("click", () => $("files").click());
  document.addEventListener("paste", (event) => take([...(event.clipboardData?.files ?? [])]));

  let inside = 0; // dragenter and dragleave come for every element on the way
  const show = (step) => {
    inside = Math.max(inside + step, 0);
    $("dropping").hidden = inside === 0;
  };
  const carries = (event) => event.dataTransfer?.types.includes("Files");
  document.addEventListener("dragenter", (event) => carries(event) && show(1));
  document.addEventListener("dragleave", (event) => carries(event) && show(-1));
  document.addEventListener("dragover", (event) => carries(event) && event.preventDefault());
  document.addEventListener("drop", (event) => {
    if (!carries(event)) return;
    event.preventDefault();
    show(-Infinity);
    const files = [...event.dataTransfer.files];
    if (event.target.closest("[data-task=deblur]") && files.length === 1) takePsf(files[0]);
    else take(files);
  });
}

const NAMES = {
  jpg: "JPEG", jpe: "JPEG", jpeg: "JPEG", jfif: "JPEG", tif: "TIFF", tiff: "TIFF", btf: "TIFF", tf8: "TIFF", webp: "WebP",
  dib: "BMP", heif: "HEIC", hif: "HEIC", fit: "FITS", fts: "FITS", fz: "FITS", zarr: "OME-Zarr",
};

/** The kinds of files, each once, as people write them. */
export function formatsInWords(endings) {
  const plain = endings.map((ending) => ending.replace(/^.*\./, "").toLowerCase());
  return [...new Set(plain.map((ending) => NAMES[ending] ?? ending.toUpperCase()))].join(", ");
}
