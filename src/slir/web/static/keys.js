// Keyboard shortcuts: one table, from which the help is written too.

import { $, el } from "./dom.js";

const STORE = "slir-keys";
const TYPING = "input:not([type=range], [type=radio], [type=checkbox]), textarea, select, dialog *";
const PRESSING = "button, a, summary, input[type=checkbox]";

/** `table`: rows of {keys: ["d", "D"], shown: "D", words, action}. Rows without an action only stand in the help,
 *  rows without words are not in it. */
export function shortcuts(table) {
  const actions = new Map(table.flatMap((row) => (row.keys ?? []).map((key) => [key, row.action])));
  $("shortcut-list").replaceChildren(
    ...table.filter((row) => row.words).flatMap((row) => [
      el("dt", {}, ...row.shown.split(" ").flatMap((key) => [el("kbd", { text: key }), " "])),
      el("dd", { text: row.words }),
    ]),
  );
  const box = $("keys-on");
  try {
    box.checked = localStorage.getItem(STORE) !== "off";
  } catch {
    box.checked = true; // no storage here: on, as from the start
  }
  box.addEventListener("change", () => {
    try {
      localStorage.setItem(STORE, box.checked ? "on" : "off");
    } catch {
      // kept for this visit only
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.altKey || event.isComposing) return;
    const chord = event.ctrlKey || event.metaKey ? `Ctrl+${event.key}` : event.key;
    const action = actions.get(chord);
    if (!action) return;
    if (chord.length === 1 && !box.checked) return;
    if (chord !== "Escape" && event.target.closest(TYPING)) return;
    if (event.key === " " && event.target.closest(PRESSING)) return;
    if (document.querySelector("dialog[open]")) return; // a dialog closes itself on Esc
    if (action(event) !== false) event.preventDefault();
  });
}

/** Tabs by arrow keys, as people with a screen reader expect. The settings are a tab on a phone alone; elsewhere they
 *  are always there, beside the other panes. */
export function tabs(list, phone) {
  const every = [...list.querySelectorAll("[role=tab]")];
  const panes = every.filter((tab) => tab.id !== "tab-settings");
  let all = every;
  let pane = panes[0];
  const select = (tab, focus = false) => {
    for (const each of every) {
      each.setAttribute("aria-selected", String(each === tab));
      each.tabIndex = each === tab ? 0 : -1;
    }
    if (panes.includes(tab)) pane = tab;
    for (const each of panes) $(each.getAttribute("aria-controls")).hidden = each !== pane;
    list.parentElement.dataset.sheet = tab === pane ? "side" : "settings";
    if (focus) tab.focus();
  };
  const fold = () => {
    all = phone.matches ? every : panes;
    select(phone.matches ? $("tab-settings") : pane);
  };
  phone.addEventListener("change", fold);
  fold();
  for (const tab of every) tab.addEventListener("click", () => select(tab));
  list.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    select(all[(all.indexOf(document.activeElement) + step + all.length) % all.length], true);
  });
  return (id) => select($(id));
}
