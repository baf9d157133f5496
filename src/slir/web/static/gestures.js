// Mouse, pen, fingers and arrow keys on the picture.

const STILL = 5; // a pointer that moved less than this has clicked

/** Watch a viewer's canvas. `hooks`: ask(row, col), hover(place | null), brush() that gives the mask's brush or
 *  null, and painted() after a stroke. */
export function watch(viewer, hooks) {
  const { canvas } = viewer;
  const pointers = new Map();
  let moved = 0;
  let stroke = null;
  let pinched = false;

  const place = (event) => {
    const bounds = canvas.getBoundingClientRect();
    return { x: (event.clientX - bounds.left) * viewer.ratio, y: (event.clientY - bounds.top) * viewer.ratio };
  };

  canvas.addEventListener("pointerdown", (event) => {
    if (!viewer.left) return;
    canvas.focus({ preventScroll: true });
    viewer.cross = false;
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, place(event));
    if (pointers.size === 1) {
      moved = 0;
      pinched = false;
      const brush = hooks.brush();
      if (brush && event.button === 0 && !event.shiftKey) {
        stroke = brush;
        stroke.begin(viewer.at(...Object.values(place(event))));
        viewer.draw();
      } else canvas.classList.add("moving");
    } else if (stroke) {
      stroke.abort(); // a second finger: this is a pinch, not a stroke
      stroke = null;
      viewer.draw();
    }
    if (pointers.size > 1) pinched = true;
  });

  canvas.addEventListener("pointermove", (event) => {
    const now = place(event);
    const then = pointers.get(event.pointerId);
    if (!then) return hooks.hover(viewer.left ? viewer.at(now.x, now.y) : null);
    if (stroke) {
      for (const each of event.getCoalescedEvents?.() ?? [event]) {
        const point = place(each);
        stroke.move(viewer.at(point.x, point.y));
      }
      hooks.hover(viewer.at(now.x, now.y));
      pointers.set(event.pointerId, now);
      return viewer.draw();
    }
    moved += Math.hypot(now.x - then.x, now.y - then.y) / viewer.ratio;
    if (pointers.size === 1) {
      if (moved >= STILL) viewer.pan(now.x - then.x, now.y - then.y);
    } else {
      const [first, second] = [...pointers.keys()].slice(0, 2);
      if (event.pointerId === first || event.pointerId === second) {
        const other = pointers.get(event.pointerId === first ? second : first);
        const before = Math.hypot(then.x - other.x, then.y - other.y);
        const after = Math.hypot(now.x - other.x, now.y - other.y);
        const x = (now.x + other.x) / 2;
        const y = (now.y + other.y) / 2;
        if (before > 0) viewer.zoom({ factor: after / before, x, y });
        viewer.pan((now.x - then.x) / 2, (now.y - then.y) / 2);
      }
    }
    pointers.set(event.pointerId, now);
  });

  const lifted = (event) => {
    if (!pointers.delete(event.pointerId)) return;
    if (stroke && pointers.size === 0) {
      stroke.end();
      stroke = null;
      hooks.painted();
    } else if (event.type === "pointerup" && event.button === 0 && pointers.size === 0 && moved < STILL && !pinched) {
      const { x, y } = place(event);
      ask(viewer.at(x, y));
    }
    if (pointers.size === 0) canvas.classList.remove("moving");
  };
  canvas.addEventListener("pointerup", lifted);
  canvas.addEventListener("pointercancel", lifted);
  canvas.addEventListener("pointerleave", () => hooks.hover(null));
  canvas.addEventListener("contextmenu", (event) => hooks.brush() && event.preventDefault());

  const stage = canvas.parentElement; // the slider's thumb lies over the canvas; the wheel zooms there too
  stage.addEventListener(
    "wheel",
    (event) => {
      if (!viewer.left || event.target.closest("#alert")) return;
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 18 : event.deltaMode === 2 ? 200 : 1;
      const speed = event.ctrlKey ? 0.01 : 0.0018; // a trackpad's pinch comes as small steps with ctrl
      const step = Math.min(Math.max(-event.deltaY * lines * speed, -1), 1);
      viewer.zoom({ factor: Math.exp(step), ...place(event) });
    },
    { passive: false },
  );

  const ask = ({ x, y }) => {
    const [row, col] = [Math.floor(y), Math.floor(x)];
    if (row >= 0 && col >= 0 && row < viewer.box.height && col < viewer.box.width) hooks.ask(row, col);
  };

  const MOVES = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  canvas.addEventListener("keydown", (event) => {
    if (!viewer.left || event.ctrlKey || event.metaKey || event.altKey) return;
    if (MOVES[event.key]) {
      event.preventDefault();
      viewer.cross = true; // the middle is what Enter asks or paints
      const step = event.shiftKey ? 240 * viewer.ratio : Math.max(viewer.view.scale, 24 * viewer.ratio);
      viewer.pan(MOVES[event.key][0] * step, MOVES[event.key][1] * step);
    } else if (event.key === "Enter") {
      event.preventDefault();
      const brush = hooks.brush();
      if (brush) {
        brush.begin(viewer.view);
        brush.end();
        hooks.painted();
      } else ask(viewer.view);
    }
  });
  canvas.addEventListener("focus", () => viewer.draw());
  canvas.addEventListener("blur", () => viewer.draw());
}
