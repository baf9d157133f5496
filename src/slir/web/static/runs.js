// The runs of this session: their states, and the list that shows them.

import { api, problemOf } from "./api.js";
import { $, el, number, sleep } from "./dom.js";
import { resultLayer } from "./images.js";
import { cssTurn } from "./orient.js";
import { inWords } from "./settings.js";

const FINAL = ["done", "failed", "cancelled"];
export const isFinal = (job) => FINAL.includes(job.state);

/** Where a job stands, in words. */
export function stateInWords(job) {
  if (job.state === "queued") return job.position > 1 ? `Waiting, ${job.position - 1} ahead of it` : "Waiting";
  if (job.state === "running") return job.message || (job.stages ? `Stage ${job.stage} of ${job.stages}` : "Running");
  if (job.state === "failed") return problemOf(job).title;
  return job.state === "cancelled" ? "Cancelled" : `Done in ${number(job.seconds, 2)} s`;
}

/** "change" after a job changed, "preview" (detail {job, url, stage}) with an estimate of the followed one. */
export class Runs extends EventTarget {
  constructor() {
    super();
    this.jobs = new Map(); // newest first
    this.layers = new Map();
  }

  get list() {
    return [...this.jobs.values()];
  }

  newest(file) {
    return this.list.find((job) => job.file === file);
  }

  /** The jobs that the server still knows, after a reload of the page. */
  async restore() {
    for (const job of (await api.jobs()).reverse()) this.put(job);
    this.#poll();
  }

  async submit(settings, name) {
    const { job } = await api.submit(settings);
    this.put({ job, state: "queued", stage: 0, stages: 0, file: settings.file, name, settings });
    return this.jobs.get(job);
  }

  put(job) {
    const known = this.jobs.get(job.job);
    if (known && isFinal(known)) return known; // an older answer that arrives late
    const merged = { ...known, ...job };
    if (known) this.jobs.set(job.job, merged);
    else this.jobs = new Map([[job.job, merged], ...this.jobs]);
    this.dispatchEvent(new CustomEvent("change", { detail: merged }));
    if (!isFinal(merged) && merged.job !== this.followed) this.#poll();
    return merged;
  }

  /** The result's picture, kept. orientation : of the picture that it was made from. */
  layer(job, orientation) {
    if (!this.layers.has(job.job)) this.layers.set(job.job, resultLayer(job, orientation));
    return this.layers.get(job.job);
  }

  /** Live news of one job, by server-sent events. A browser has few connections: of one at a time. */
  follow(id) {
    this.source?.close();
    this.followed = id;
    if (!id || isFinal(this.jobs.get(id))) return;
    const source = (this.source = new EventSource(`/api/jobs/${id}/events`));
    source.addEventListener("state", (event) => {
      const job = this.put(JSON.parse(event.data));
      if (isFinal(job)) source.close();
    });
    source.addEventListener("preview", (event) => {
      this.dispatchEvent(new CustomEvent("preview", { detail: { job: id, ...JSON.parse(event.data) } }));
    });
    source.addEventListener("error", () => {
      if (source.readyState === EventSource.CLOSED && this.followed === id) this.#lost(id);
    });
  }

  async remove(id) {
    await api.remove(id).catch((problem) => {
      if (problem.status !== 404) throw problem;
    });
    this.jobs.delete(id);
    this.layers.delete(id);
    this.dispatchEvent(new CustomEvent("change", { detail: null }));
  }

  /** The events stopped for good: ask in the plain way, until it is over. */
  #lost(id) {
    this.followed = null;
    if (this.jobs.has(id) && !isFinal(this.jobs.get(id))) this.#poll();
  }

  /** News of all jobs that are not followed. */
  async #poll() {
    if (this.polling) return;
    this.polling = true;
    let misses = 0;
    while (this.list.some((job) => !isFinal(job) && job.job !== this.followed) && misses < 20) {
      await sleep(600);
      try {
        const told = new Map((await api.jobs()).map((job) => [job.job, job]));
        for (const job of this.list) {
          if (isFinal(job) || job.job === this.followed) continue;
          const gone = { ...job, state: "failed", problem: { title: "The server no longer has this run" } };
          this.put(told.get(job.job) ?? gone);
        }
        misses = 0;
      } catch {
        misses++; // the server may come back
      }
    }
    this.polling = false;
  }
}

/** Draw the list. `hooks`: open(job), compare(id, on), remove(id); `now` the shown job's id, `ticked` the compared ones. */
export function listRuns(runs, hooks, { now, ticked }) {
  const focused = document.activeElement?.closest("#runs [data-key]")?.dataset.key;
  $("runs").replaceChildren(...runs.list.map((job) => row(job, hooks, { now, ticked })));
  if (focused) document.querySelector(`#runs [data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  $("runs-count").textContent = runs.jobs.size || "";
}

/** A small picture of one on the server. */
export function thumbnail(src, orientation) {
  const image = el("img", { src, alt: "", loading: "lazy", width: 48, height: 48 });
  image.style.transform = cssTurn(orientation);
  return image;
}

function row(job, hooks, { now, ticked }) {
  const done = job.state === "done";
  const words = `${inWords(job)} · ${done ? `${number(job.seconds, 2)} s` : stateInWords(job)}`;
  const picture = done
    ? thumbnail(`/api/jobs/${job.job}/preview.png?max=96`, job.orientation)
    : el("span", { class: "blank" });
  const tick = el("input", {
    type: "checkbox",
    checked: ticked.includes(job.job),
    "aria-label": `Compare ${job.name}, ${inWords(job)}`,
    title: "Compare",
    "data-key": `tick-${job.job}`,
    change: (event) => hooks.compare(job.job, event.target.checked),
  });
  const remove = el("button", {
    type: "button", text: "×", title: "Remove", "aria-label": `Remove the run of ${job.name}`, "data-key": `x-${job.job}`,
    click: () => hooks.remove(job.job),
  });
  const running = ["queued", "running"].includes(job.state);
  return el(
    "li",
    { class: job.job === now ? "now" : undefined, "data-state": job.state },
    picture,
    el("button", { type: "button", class: "open", text: job.name, "data-key": `open-${job.job}`, "aria-current": job.job === now ? "true" : undefined, click: () => hooks.open(job) }),
    el("span", { class: job.state === "failed" ? "what bad" : "what", text: words, title: words }),
    el("span", { class: "tools" }, done && tick, remove),
    running && el("progress", { max: job.stages || 1, value: job.stage || 0, "aria-label": `Progress of ${job.name}` }),
  );
}
