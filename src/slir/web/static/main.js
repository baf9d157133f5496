// The page: wires the parts together.

import { api, Problem, problemOf } from "./api.js";
import { $, el } from "./dom.js";
import { commands } from "./commands.js";
import { Desk } from "./desk.js";
import { watch } from "./gestures.js";
import { Inspector } from "./inspect.js";
import { tabs } from "./keys.js";
import { inverse, turned, turnedPlace } from "./orient.js";
import { formatsInWords, watchForFiles } from "./opening.js";
import { Painting } from "./painting.js";
import { listPictures, Pictures } from "./pictures.js";
import { Preview } from "./preview.js";
import { Psf } from "./psf.js";
import { doneInWords, showResult } from "./result.js";
import { isFinal, listRuns, Runs, stateInWords } from "./runs.js";
import { Settings, TASKS } from "./settings.js";
import { sliders as allSliders } from "./sliders.js";
import { Trials } from "./trials.js";
import { Viewer } from "./viewer.js";

const sliders = allSliders();
const viewer = new Viewer($("canvas"));
const runs = new Runs();
const pictures = new Pictures(runs);
const psf = new Psf(sliders);
const settings = new Settings(sliders, psf);
const desk = new Desk(viewer, { runs, pictures, plane: sliders.plane, fail });
const painting = new Painting(desk, settings, sliders.brush, fail);
const inspector = new Inspector(viewer);
const preview = new Preview(desk, settings);
new Trials(desk, psf, preview, fail);
const tab = tabs(document.querySelector("[role=tablist]"), window.matchMedia("(max-width: 860px)"));
let ticked = []; // runs to compare

/* Messages */
function fail(problem) {
  if (problem.name === "AbortError") return;
  const known = problem instanceof Problem;
  $("alert-title").textContent = known ? problem.title : "Something went wrong on this page";
  $("alert-words").textContent = known ? problem.words : String(problem);
  $("alert").hidden = false;
  if (problem.argument === "white") {
    tab("tab-settings");
    $("white").focus();
  }
}
const calm = () => ($("alert").hidden = true);
$("alert-close").addEventListener("click", calm);

/* Opening pictures */
async function opened(adding) {
  calm();
  let shown = false;
  const entries = await adding((picture) => {
    if (!shown) open(picture);
    shown = true;
  });
  const refused = entries.filter((entry) => entry.state === "refused");
  if (refused.length && entries.length === 1) {
    pictures.remove(entries[0]);
    fail(refused[0].problem);
  }
}

function openFiles(files) {
  if (files.length === 0) return;
  if (files.length > 1) tab("tab-pictures");
  opened((ready) => pictures.add(files, ready));
}

async function open(picture) {
  settings.suit(picture);
  if (picture.suggested?.mask && picture.mask.empty) {
    await api.bitmap(`/api/masks/${picture.suggested.mask}.png`).then((image) => picture.mask.load(turned(image, picture.file.orientation)), fail);
  }
  await desk.showPicture(picture);
  $("said").textContent = "";
}

watchForFiles(openFiles, (file) => psf.take(file));

/* Restoring */
$("settings").addEventListener("submit", (event) => {
  event.preventDefault();
  restore();
});

async function restore() {
  if (!desk.picture || $("restore").disabled || !$("running").hidden) return;
  calm();
  const { picture } = desk;
  $("restore").disabled = true;
  try {
    const job = await runs.submit(await settings.collect(picture), picture.file.name);
    painting.take("move");
    if (["before", "difference"].includes(viewer.mode)) desk.setMode("slider");
    uncompare();
    $("canvas").focus({ preventScroll: true }); // so that the spacebar tells before from after
    await desk.showRun(job);
  } catch (problem) {
    fail(problem);
  }
  refresh();
}

function cancel() {
  if (desk.job && !isFinal(desk.job)) api.cancel(desk.job.job).catch(fail);
}
$("cancel").addEventListener("click", cancel);

/* Runs to compare */
function uncompare() {
  ticked = [];
}

function compare(id, on) {
  ticked = [...ticked.filter((each) => each !== id), ...(on ? [id] : [])].slice(-2);
  if (ticked.length === 2) {
    const order = runs.list.map((job) => job.job);
    const [second, first] = [...ticked].sort((a, b) => order.indexOf(a) - order.indexOf(b));
    desk.compare(runs.jobs.get(first), runs.jobs.get(second));
    } else if (desk.pair) desk.showRun(desk.job);
  refresh();
}

const runHooks = {
  open: (job) => {
    uncompare();
    desk.showRun(job);
    },
  compare,
  remove: async (id) => {
    ticked = ticked.filter((each) => each !== id);
    const shown = desk.job?.job === id || desk.pair?.some((job) => job.job === id);
    await runs.remove(id).catch(fail);
    if (shown) desk.showPicture(desk.picture);
  },
};

const pictureHooks = {
  open: (picture) => {
    const job = runs.newest(picture.file.file);
    uncompare();
    settings.suit(picture);
    if (job) desk.showRun(job);
    else desk.showPicture(picture);
    },
  remove: async (entry) => {
    await pictures.remove(entry);
    const next = pictures.entries.find((each) => each.picture)?.picture;
    if (entry.picture === desk.picture && next) pictureHooks.open(next);
  },
};

$("all-restore").addEventListener("click", async () => {
  calm();
  $("batch-words").textContent = "Restoring all with the present settings.";
  await pictures.restoreAll(
    (picture) => settings.collect(picture),
    (picture, job) => picture === desk.picture && desk.showRun(job),
  );
  const done = pictures.finished().length;
  $("batch-words").textContent = `${done} of ${pictures.entries.length} restored.`;
});
$("all-download").addEventListener("click", () => pictures.downloadAll());

/* The picture under the pointer */
const stored = (place) => turnedPlace(place, viewer.box, inverse(desk.picture.file.orientation));
watch(viewer, {
  brush: () => painting.brush(),
  painted: () => painting.refresh(),
  ask: (row, col) => {
    if (desk.job?.state !== "done") return;
    tab("tab-result");
    $("pixel").scrollIntoView();
    const place = stored({ row, col });
    inspector.ask(place.row, place.col);
  },
  hover: (place) => {
    const inBox = place && place.x >= 0 && place.y >= 0 && place.x < viewer.box.width && place.y < viewer.box.height;
    const { row, col } = inBox ? stored({ row: Math.floor(place.y), col: Math.floor(place.x) }) : {};
    $("place").textContent = inBox ? `row ${row}, column ${col}` : inspector.words;
    painting.hover(place);
  },
});

/* Keeping the page true */
function refresh() {
  const { job, picture } = desk;
  const running = Boolean(job) && !isFinal(job);
  $("restore").hidden = running;
  $("running").hidden = !running;
  $("restore").disabled = !picture;
  if (running) {
    if (job.stages) Object.assign($("progress"), { max: job.stages, value: job.stage });
    else $("progress").removeAttribute("value");
  }
  if (job) $("said").textContent = job.state === "done" ? doneInWords(job) : stateInWords(job);
  $("comparing").hidden = !desk.pair;
  $("hint").textContent = desk.pair ? "" : job?.state === "done" ? "Space: before and after · click: inspect a pixel" : "Wheel zooms, drag moves";
  showResult(job);
  inspector.use(job?.state === "done" ? job : null, picture?.file.orientation, desk.plane);
  $("psf-try").disabled = !picture || !psf.id;
  preview.pause("job", running);
  listRuns(runs, runHooks, { now: job?.job, ticked });
  listPictures(pictures, pictureHooks, picture);
  painting.refresh();
}
desk.addEventListener("change", refresh);
desk.addEventListener("uncompare", uncompare);
pictures.addEventListener("change", refresh);
runs.addEventListener("preview", (event) => desk.preview(event.detail));
runs.addEventListener("change", (event) => {
  const job = event.detail;
  if (job?.state === "failed" && job.job === desk.job?.job && desk.job.state !== "failed") fail(problemOf(job));
  desk.news(job);
  refresh();
});

commands({ desk, painting, settings, brush: sliders.brush, restore, cancel, calm });

/* Beginning */
async function begin() {
  const info = await api.info();
  if (info.formats) {
    $("files").accept = info.formats.join(",");
    $("formats").textContent = formatsInWords(info.formats);
  }
  $("examples").hidden = !info.examples?.length;
  for (const example of info.examples ?? []) {
    const picture = el("img", { src: `/api/examples/${example.name}.png`, alt: "", width: 112, height: 112 });
    const words = el("span", {}, example.title, el("small", { text: TASKS[example.task] ?? example.task }));
    $("example-list").append(
      el("button", { type: "button", click: () => opened((ready) => pictures.addExample(example, ready)) }, picture, words),
    );
  }
  await runs.restore();
}
refresh();
begin().catch(fail);
