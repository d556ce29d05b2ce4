// Models whose states are a product of variables: the last axis changes fastest.

const STRIP = 40; // the longest strip of one axis in one row; longer ones continue on the next row

/** The values of the axes in state s, or null for the absorbing state after the product. */
function axisValues(s) {
  const values = [];
  for (const { size } of [...data.axes].reverse()) {
    values.unshift(s % size);
    s = Math.floor(s / size);
  }
  return s === 0 ? values : null;
}

function axisName(s) {
  const values = axisValues(s);
  return values ? data.axes.map(({ name }, i) => `${name} ${values[i]}`).join(", ") : "end";
}

/** One map of rows and columns for two axes, one for each value of the first of three axes, a strip for one axis. */
function layersOfAxes() {
  const [first, second, third] = data.axes;
  const block = (from, rows, columns) =>
    Array.from({ length: rows }, (_, r) => Array.from({ length: columns }, (_, c) => from + r * columns + c));
  if (third) {
    return Array.from({ length: first.size }, (_, i) => ({ name: `${first.name} ${i}`,
      states: block(i * second.size * third.size, second.size, third.size), frame: { row: second.name, column: third.name } }));
  }
  if (second) {
    return [{ name: "", states: block(0, first.size, second.size), frame: { row: first.name, column: second.name } }];
  }
  const width = first.size > STRIP ? 25 : first.size;
  const states = block(0, Math.ceil(first.size / width), width).map((line) => line.map((s) => (s < first.size ? s : null)));
  const wrapped = { row: first.name, column: `+ 0 to ${width - 1}`, rowStep: width };
  return [{ name: "", states, frame: first.size > STRIP ? wrapped : { row: "", column: first.name } }];
}

/** Puts the names and the values of the axes around a map. */
function framed(grid, { row, column, rowStep = 1 }, states) {
  const [rows, columns] = [states.length, states[0].length];
  const tallest = data.axes.length > 2 ? 220 : 480; // pixels
  const height = rows === 1 ? 40 : Math.min(Math.max(tallest / rows, 3), 34);
  grid.style.setProperty("--cell-height", `${height}px`);
  const ticks = (count, most, side, scale) => {
    const every = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].find((n) => count / n <= most) ?? count;
    const box = make("div", { class: `ticks ${side}`, "aria-hidden": "true" });
    for (let i = 0; i < count; i += every) {
      const tick = make("span", {}, String(i * scale));
      tick.style.setProperty("--at", `${(100 * (i + 0.5)) / count}%`);
      box.append(tick);
    }
    box.style.setProperty("--digits", String((count - 1) * scale).length);
    return box;
  };
  const frame = make("div", { class: "frame" });
  if (row) {
    frame.append(make("span", { class: "row-name" }, row), ticks(rows, Math.min(20, (rows * height) / 16), "beside", rowStep));
  }
  frame.append(grid, ticks(columns, data.axes.length > 2 ? 6 : 12, "below", 1), make("span", { class: "column-name" }, column));
  return frame;
}
