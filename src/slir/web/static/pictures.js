// The pictures of this session: one, or a batch whose files each have their own state.

import { api, patiently, Problem } from "./api.js";
import { $, el, save, sleep } from "./dom.js";
import { fileLayer } from "./images.js";
import { Mask } from "./mask.js";
import { inverse, turnedSize } from "./orient.js";
import { isFinal, stateInWords, thumbnail } from "./runs.js";

const ABREAST = 3; // jobs of a batch that wait or run at a time; the server's queue is everybody's

/** A picture that the server holds: {file, name, width, …}, how it is drawn, what is missing in it. */
export class Picture {
  constructor(file) {
    this.file = file;
    this.suggested = file.settings ?? null;
    this.layer = fileLayer(file);
    this.mask = new Mask(this.layer.width, this.layer.height);
  }

  /** The mask on the server, sent when it has changed. */
  async maskId() {
    if (this.mask.empty) throw new Problem({ title: "Nothing is painted yet", detail: "Choose Paint and brush over what is to be filled in." });
    if (this.mask.sent !== this.mask.version) {
      const { version } = this.mask;
      const { blob, share } = await this.mask.png(inverse(this.file.orientation));
      if (share === 0) throw new Problem({ title: "Nothing is painted yet", detail: "All of the mask is erased." });
      this.mask.id = (await api.mask(this.file.file, blob)).mask;
      this.mask.sent = version;
    }
    return this.mask.id;
  }
}

/** "change" when the list has; entries are {name, picture?, state: uploading | ready | refused, problem?}. */
export class Pictures extends EventTarget {
  constructor(runs) {
    super();
    this.runs = runs;
    this.entries = [];
  }

  find(id) {
    return this.entries.find((entry) => entry.picture?.file.file === id)?.picture;
  }

  /** Upload files, one after the other; give each picture to `ready` as it arrives. */
  async add(files, ready) {
    const entries = [...files].map((source) => ({ name: source.name, source, state: "uploading" }));
    this.entries.push(...entries);
    this.#changed();
    for (const entry of entries) await this.#take(entry, () => api.upload(entry.source), ready);
    return entries;
  }

  async addExample({ name, title }, ready) {
    const entry = { name: title ?? name, state: "uploading" };
    this.entries.push(entry);
    this.#changed();
    await this.#take(entry, () => api.example(name), ready);
    return [entry];
  }

  /** A picture that an older run was made from. */
  async recall(id) {
    const known = this.find(id);
    if (known) return known;
    const picture = new Picture(await api.file(id));
    this.entries.push({ name: picture.file.name, picture, state: "ready" });
    this.#changed();
    return picture;
  }

  async remove(entry) {
    this.entries = this.entries.filter((each) => each !== entry);
    this.#changed();
    const id = entry.picture?.file.file;
    if (id && !this.runs.newest(id)) await api.forget(id).catch(() => {}); // runs need it; it expires by itself
  }

  /** Submit all that are ready with the same settings; a full queue is waited for. */
  async restoreAll(collect, started) {
    for (const entry of this.entries.filter((each) => each.picture)) {
      entry.problem = null;
      while (this.#pending() >= ABREAST) await sleep(200);
      try {
        const settings = await collect(entry.picture);
        const job = await patiently(() => this.runs.submit(settings, entry.name));
        entry.job = job.job;
        started(entry.picture, job);
      } catch (problem) {
        entry.problem = problem;
      }
      this.#changed();
    }
    while (this.#pending() > 0) await sleep(200);
    this.#changed();
  }

  /** The finished jobs of the list, newest of each picture. */
  finished() {
    const jobs = this.entries.map((entry) => entry.picture && this.runs.newest(entry.picture.file.file));
    return jobs.filter((job) => job?.state === "done");
  }

  /** All results in one file. */
  downloadAll() {
    save(`/api/results.zip?${this.finished().map((job) => `job=${job.job}`).join("&")}`);
  }

  #pending() {
    return this.entries.filter((entry) => entry.job && !isFinal(this.runs.jobs.get(entry.job) ?? { state: "done" })).length;
  }

  async #take(entry, action, ready) {
    try {
      entry.picture = new Picture(await action());
      entry.name = entry.picture.file.name ?? entry.name;
      entry.state = "ready";
      ready?.(entry.picture);
    } catch (problem) {
      Object.assign(entry, { state: "refused", problem });
    }
    this.#changed();
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }
}

/** Draw the list. `hooks`: open(picture), remove(entry); `now` is the shown picture. */
export function listPictures(pictures, hooks, now) {
  const { entries, runs } = pictures;
  $("pictures").replaceChildren(...entries.map((entry) => row(entry, runs, hooks, now)));
  $("pictures-count").textContent = entries.length > 1 ? entries.length : "";
  const ready = entries.filter((entry) => entry.picture).length;
  $("all-restore").disabled = ready === 0;
  $("all-restore").textContent = ready > 1 ? `Restore all ${ready}` : "Restore all";
  $("all-download").disabled = pictures.finished().length === 0;
}

function row(entry, runs, hooks, now) {
  const { picture, problem } = entry;
  const job = picture && runs.newest(picture.file.file);
  const bad = problem ?? (job?.state === "failed" ? { title: stateInWords(job), words: job.problem?.detail ?? "" } : null);
  const words = bad ? [bad.title, bad.words].filter(Boolean).join(": ") : job ? stateInWords(job) : entry.state === "uploading" ? "Uploading…" : facts(picture.file);
  const running = job && !isFinal(job) && !problem;
  return el(
    "li",
    { class: picture && picture === now ? "now" : undefined, "data-state": bad ? "refused" : job?.state ?? entry.state },
    picture
      ? thumbnail(`/api/files/${picture.file.file}/preview.png?max=96`, picture.file.orientation)
      : el("span", { class: "blank" }),
    el("button", { type: "button", class: "open", text: entry.name, disabled: !picture, click: () => hooks.open(picture) }),
    el("span", { class: bad ? "what bad" : "what", text: words, title: words }),
    el("span", { class: "tools" },
      job?.state === "done" && el("a", { href: `/api/jobs/${job.job}/result`, download: "", text: "Save", "aria-label": `Download the result of ${entry.name}` }),
      el("button", { type: "button", text: "×", "aria-label": `Remove ${entry.name}`, click: () => hooks.remove(entry) })),
    running && el("progress", { max: job.stages || 1, value: job.stage || 0, "aria-label": `Progress of ${entry.name}` }),
  );
}

/** "512 × 384, colour, 8-bit". */
export function facts(file) {
  const [, kind, bits] = /^([a-z]+)(\d+)$/.exec(file.dtype) ?? [];
  const depth = bits ? `${bits}-bit${kind === "float" ? " floats" : ""}` : file.dtype;
  const { width, height } = turnedSize(file.width, file.height, file.orientation);
  const parts = [`${width} × ${height}`, file.colour ? "colour" : "grey", depth];
  if (file.planes > 1) parts.push(`${file.planes} planes`);
  return parts.join(", ");
}
