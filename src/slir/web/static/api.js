// The server, in one place. Everything it refuses becomes a Problem with words for people.

import { sleep } from "./dom.js";

export class Problem extends Error {
  constructor({ title, detail = "", remedy = "", argument = "" }, status = 0, retry = 0) {
    super(title);
    Object.assign(this, { title, detail, remedy, argument, status, retry });
  }

  /** What happened and what to do, in one paragraph. */
  get words() {
    const parts = [this.detail];
    if (this.remedy && !this.detail.includes(this.remedy)) parts.push(this.remedy);
    return parts.filter(Boolean).join(" ");
  }
}

const GONE = { title: "The server does not answer", detail: "Is slir serve still running?" };

async function ask(method, path, { body, type, signal } = {}) {
  const headers = type ? { "Content-Type": type } : {};
  let response;
  try {
    response = await fetch(path, { method, body, headers, signal, credentials: "same-origin", cache: "no-cache" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(GONE);
  }
  if (response.ok) return response;
  const retry = Number(response.headers.get("Retry-After")) || 0;
  const told = await response.json().catch(() => ({}));
  const title = typeof told.title === "string" ? told.title : `The server answered ${response.status}`;
  const words = (value) => (typeof value === "string" ? value : value ? JSON.stringify(value) : "");
  throw new Problem(
    { title, detail: words(told.detail), remedy: words(told.remedy), argument: words(told.argument) },
    response.status,
    retry,
  );
}

const json = async (...request) => (await ask(...request)).json();
const post = (path, value) => json("POST", path, { body: JSON.stringify(value), type: "application/json" });
const raw = (path, body) => json("POST", path, { body, type: "application/octet-stream" });
const query = (name) => encodeURIComponent(name);

export const api = {
  info: () => json("GET", "/api/info"),
  upload: (file) => raw(`/api/files?name=${query(file.name)}`, file),
  example: (name) => json("POST", `/api/examples/${query(name)}`),
  file: (id) => json("GET", `/api/files/${id}`),
  forget: (id) => ask("DELETE", `/api/files/${id}`),
  psf: (settings) => post("/api/psf", settings),
  psfFile: (file) => raw(`/api/psf?name=${query(file.name)}`, file),
  mask: (file, blob) => json("POST", `/api/masks?file=${file}`, { body: blob, type: "image/png" }),
  submit: (settings) => post("/api/jobs", settings),
  jobs: () => json("GET", "/api/jobs"),
  job: (id) => json("GET", `/api/jobs/${id}`),
  cancel: (id) => ask("POST", `/api/jobs/${id}/cancel`),
  remove: (id) => ask("DELETE", `/api/jobs/${id}`),
  preview: (asked, signal) => json("POST", "/api/previews", { body: JSON.stringify(asked), type: "application/json", signal }),
  pixel: (id, { row, col, plane }, signal) => json("GET", `/api/jobs/${id}/pixel?row=${row}&col=${col}&plane=${plane}`, { signal }),
  explain: (id, { row, col, plane }, signal) =>
    json("GET", `/api/jobs/${id}/explain?row=${row}&col=${col}&plane=${plane}&k=16`, { signal }),
  bitmap: async (url) => createImageBitmap(await (await ask("GET", url)).blob()),
};

const TRIES = 60;

/** What `action` gives; while the server is busy it is tried again, after the time that the server asks for.
 *  waiting(problem) : told each time. */
export async function patiently(action, { signal, waiting } = {}) {
  for (let tries = 0; ; tries++) {
    try {
      return await action();
    } catch (problem) {
      if (problem.status !== 429 || tries > TRIES || signal?.aborted) throw problem;
      waiting?.(problem);
      await sleep(1000 * (problem.retry || 1));
      signal?.throwIfAborted();
    }
  }
}

/** A job's problem, as the server tells it, in words. */
export function problemOf(job) {
  const told = job.problem;
  if (!told) return new Problem({ title: "The restoration failed", detail: job.message || "" });
  return typeof told === "string" ? new Problem({ title: "The restoration failed", detail: told }) : new Problem(told);
}
