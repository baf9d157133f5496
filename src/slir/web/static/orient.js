// Pictures of cameras that were held upright are often stored lying on their side, with a note of how to turn them
// (EXIF's orientation, 1 to 8). The page shows them upright; the server counts pixels as they are stored.

// orientation: are rows and columns exchanged, and which of them are then mirrored
const TURNS = {
  1: [false, false, false], 2: [false, false, true], 3: [false, true, true], 4: [false, true, false],
  5: [true, false, false], 6: [true, false, true], 7: [true, true, true], 8: [true, true, false],
};
const turn = (orientation) => TURNS[orientation] ?? TURNS[1];

/** The orientation that undoes another. */
export const inverse = (orientation) => ({ 6: 8, 8: 6 })[orientation] ?? orientation;

/** {width, height} once turned. */
export const turnedSize = (width, height, orientation) =>
  turn(orientation)[0] ? { width: height, height: width } : { width, height };

/** The linear part, as a canvas and CSS have it: [a, b, c, d]. */
function matrix(orientation) {
  const [swap, rows, cols] = turn(orientation);
  const [right, down] = [cols ? -1 : 1, rows ? -1 : 1];
  return swap ? [0, down, right, 0] : [right, 0, 0, down];
}

export const cssTurn = (orientation) => (orientation > 1 ? `matrix(${matrix(orientation).join(", ")}, 0, 0)` : "");

/** An image turned; the image itself where there is nothing to turn. */
export function turned(image, orientation) {
  if (!(orientation > 1)) return image;
  const [, rows, cols] = turn(orientation);
  const canvas = Object.assign(document.createElement("canvas"), turnedSize(image.width, image.height, orientation));
  const context = canvas.getContext("2d");
  context.setTransform(...matrix(orientation), cols ? canvas.width : 0, rows ? canvas.height : 0);
  context.drawImage(image, 0, 0);
  return canvas;
}

/** Where a pixel of a picture of that size (before turning) comes to lie. */
export function turnedPlace({ row, col }, { width, height }, orientation) {
  const [swap, rows, cols] = turn(orientation);
  const size = turnedSize(width, height, orientation);
  const [r, c] = swap ? [col, row] : [row, col];
  return { row: rows ? size.height - 1 - r : r, col: cols ? size.width - 1 - c : c };
}

/** The angle of a line, in degrees counter-clockwise from "to the right", once turned: 0 … 180. */
export function turnedAngle(angle, orientation) {
  const [swap, rows, cols] = turn(orientation);
  const [up, right] = [Math.sin((angle * Math.PI) / 180), Math.cos((angle * Math.PI) / 180)];
  const [row, col] = swap ? [right, -up] : [-up, right];
  const found = (Math.atan2(rows ? row : -row, cols ? -col : col) * 180) / Math.PI;
  return Number((((found % 180) + 180) % 180).toFixed(6));
}

/** Rows of numbers, turned. */
export function turnedRows(values, orientation) {
  const size = { width: values[0].length, height: values.length };
  const { width, height } = turnedSize(size.width, size.height, orientation);
  const result = Array.from({ length: height }, () => new Array(width));
  values.forEach((line, row) =>
    line.forEach((value, col) => {
      const place = turnedPlace({ row, col }, size, orientation);
      result[place.row][place.col] = value;
    }),
  );
  return result;
}
