// Small helpers around the document. Texts that come from files or the server only ever become textContent.

export const $ = (id) => document.getElementById(id);

/** Make an element: el("p", {class: "muted", text: name, click: handler}, child, …). */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "text") element.textContent = value;
    else if (key === "class") element.className = value;
    else if (typeof value === "function") element.addEventListener(key, value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter(Boolean));
  return element;
}

/** The value of the radio buttons called `name`. */
export const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`)?.value;

export function choose(name, value) {
  const input = document.querySelector(`input[name="${name}"][value="${CSS.escape(value)}"]`);
  if (input) input.checked = true;
}

/** A number as people read it: four digits that matter, no exponent where it can be helped. */
export function number(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) return value.toExponential(2);
  return String(Number(value.toPrecision(digits)));
}

/** One number, or as many as there are channels where any of them differ. */
export function numbers(value, digits = 3) {
  const all = [value].flat().map((each) => number(each, digits));
  return new Set(all).size === 1 ? all[0] : all.join(", ");
}

/** The root mean square of one number, or one a channel. */
export const overall = (value) => Math.sqrt([value].flat().reduce((sum, each, _, all) => sum + each ** 2 / all.length, 0));

/** Call `action` once the calls have stopped for `pause` milliseconds. */
export function settled(action, pause) {
  let timer;
  return (...parameters) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...parameters), pause);
  };
}

export const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** Save a file of the server's under the name that the server gives it. */
export function save(url) {
  const link = el("a", { href: url, download: "" });
  document.body.append(link);
  link.click();
  link.remove();
}
