// A picture of the array of the page Decide: its chunks, which of them each read touches, and what
// the reads cost as the edges of the chunks are changed. Numbers are those of decide.js.
(() => { "use strict";
const WIDTH = 230, HEIGHT = 150, DEEP = [115, 70], MOST_LINES = 40, EDGES = 1000;
const AT = [0.55, 0, 0.35]; // where a read lies: time in the middle, the first row, a third of the way along
const COLOURS = ["#d55e00", "#0072b2", "#009e73", "#cc79a7"];
const product = (xs) => xs.reduce((a, b) => a * b, 1);
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);

// The three axes of a box: the first, and the last two; an axis that is missing has one element.
function axesOf(shape) {
  const n = shape.length;
  return n === 1 ? [0, null, null] : n === 2 ? [0, null, 1] : [0, n - 2, n - 1];
}
const pick = (axes, xs, missing = 1) => axes.map((axis) => (axis === null ? missing : xs[axis]));

// A corner of the box as a place in the picture; depth is the first axis, and rows go down.
const place = ([t, y, x]) => [4 + x * WIDTH + t * DEEP[0], 4 + DEEP[1] + y * HEIGHT - t * DEEP[1]];
const polygon = (corners, attributes) => `<polygon points="${corners.map((one) => place(one).map((v) => v.toFixed(1)).join(",")).join(" ")}" ${attributes}/>`;
const segment = (a, b) => { const [[x1, y1], [x2, y2]] = [place(a), place(b)]; return `M${x1.toFixed(1)} ${y1.toFixed(1)}L${x2.toFixed(1)} ${y2.toFixed(1)}`; };

// Edges of chunks along an axis as shares of it; of many only some are drawn.
function edges(n, chunk) {
  const count = Math.ceil(n / chunk), every = Math.ceil(count / MOST_LINES);
  return Array.from({ length: Math.floor((count - 1) / every) }, (_, k) => ((k + 1) * every * chunk) / n);
}
function drawGrid(shape, chunk) {
  const [ts, ys, xs] = shape.map((n, i) => edges(n, chunk[i]));
  const lines = [
    ...ys.flatMap((y) => [segment([0, y, 0], [0, y, 1]), segment([0, y, 1], [1, y, 1])]),
    ...xs.flatMap((x) => [segment([0, 0, x], [0, 1, x]), segment([0, 0, x], [1, 0, x])]),
    ...ts.flatMap((t) => [segment([t, 0, 0], [t, 0, 1]), segment([t, 0, 1], [t, 1, 1])]),
  ];
  return `<path class="grid" d="${lines.join("")}"/>`;
}
// What of a region lies on the three faces that are seen.
function drawRegion([t, y, x], attributes) {
  const faces = [];
  if (t[0] <= 0) faces.push(polygon([[0, y[0], x[0]], [0, y[0], x[1]], [0, y[1], x[1]], [0, y[1], x[0]]], attributes));
  if (y[0] <= 0) faces.push(polygon([[t[0], 0, x[0]], [t[0], 0, x[1]], [t[1], 0, x[1]], [t[1], 0, x[0]]], attributes));
  if (x[1] >= 1) faces.push(polygon([[t[0], y[0], 1], [t[1], y[0], 1], [t[1], y[1], 1], [t[0], y[1], 1]], attributes));
  return faces.join("");
}
// The chunks that a read touches, and the read itself, each as shares of the axes.
function findRegions(shape, chunk, extent) {
  const bounds = shape.map((n, i) => { const start = Math.floor((n - extent[i]) * AT[i]); return [start, start + extent[i]]; });
  const chunks = bounds.map(([start, stop], i) => [Math.floor(start / chunk[i]) * chunk[i] / shape[i], Math.min(Math.ceil(stop / chunk[i]) * chunk[i], shape[i]) / shape[i]]);
  return { chunks, read: bounds.map(([start, stop], i) => [start / shape[i], Math.max(stop, start + shape[i] / 250) / shape[i]]) };
}
function drawCube(question, chunk) {
  const axes = axesOf(question.shape), shape = pick(axes, question.shape), own = pick(axes, chunk);
  const outline = [[[0, 0, 0], [0, 0, 1], [0, 1, 1], [0, 1, 0]], [[0, 0, 0], [1, 0, 0], [1, 0, 1], [0, 0, 1]], [[0, 0, 1], [1, 0, 1], [1, 1, 1], [0, 1, 1]]];
  const reads = question.accesses.map((access, i) => {
    const { chunks, read } = findRegions(shape, own, pick(axes, access.extent)), colour = COLOURS[i % COLOURS.length];
    return drawRegion(chunks, `fill="${colour}" fill-opacity="0.35"`) + drawRegion(read, `fill="${colour}" stroke="${colour}"`);
  });
  return outline.map((face) => polygon(face, 'class="face"')).join("") + reads.join("") + drawGrid(shape, own);
}
// Edges on a logarithmic scale, so that a slider reaches chunks of one element and whole axes.
const toSlider = (edge, n) => (n === 1 ? EDGES : Math.round((EDGES * Math.log(edge)) / Math.log(n)));
const fromSlider = (value, n) => clamp(Math.round(n ** (value / EDGES)), 1, n);

function show(found) {
  const figure = document.getElementById("chunk-cube"), { ask, show: digits, time, size } = window.wireDecide, q = found.question;
  if (!figure) return;
  const layouts = found.best.layouts, dimensions = q.shape.length === 3 ? ["time", "y", "x"] : q.shape.map((_, i) => `axis ${i}`);
  let chunk = [...layouts[0].chunk];
  const choice = layouts.length > 1 ? `<p class="copies">${layouts.map((_, i) => `<button type="button" data-copy="${i}">copy ${i + 1}, for ${found.best.groups[i].map((k) => q.accesses[k].name).join(" and ")}</button>`).join(" ")}</p>` : "";
  const sliders = q.shape.map((n, i) => `<label>${dimensions[i]} <output></output><input type="range" min="0" max="${EDGES}" data-axis="${i}" aria-label="length of a chunk along ${dimensions[i]}"></label>`).join("");
  figure.innerHTML = `${choice}<div class="drawing"><svg viewBox="0 0 ${WIDTH + DEEP[0] + 8} ${HEIGHT + DEEP[1] + 8}" role="img" aria-label="The array as a box with the edges of its chunks; coloured are the chunks that each read touches."></svg>
<div class="edges">${sliders}<button type="button" class="chosen">back to the chosen chunks</button></div></div>
<div class="scrolls" tabindex="0" role="region" aria-label="what each read takes in these chunks"><table class="table"></table></div>
<figcaption>The array and its chunks. Move the sliders: a read takes every chunk that it touches, coloured, to get the few values that it wants, dark. Of many edges only some are drawn; numbers are means over all places.</figcaption>`;
  const svg = figure.querySelector("svg"), table = figure.querySelector("table"), inputs = [...figure.querySelectorAll("input")];
  const cell = (text, tag = "td") => `<${tag}>${text}</${tag}>`, prices = q.net.prices;
  const update = () => {
    svg.innerHTML = drawCube(q, chunk);
    inputs.forEach((input, i) => { input.value = toSlider(chunk[i], q.shape[i]); input.previousElementSibling.textContent = String(chunk[i]); });
    const rows = q.accesses.map((access, i) => {
      const read = ask(q, access, { chunk }), usd = prices && 1e6 * (prices.get * read.requests + prices.out * read.nbytes);
      return `<tr>${cell(`<i style="background:${COLOURS[i % COLOURS.length]}"></i>${access.name.replace(/[<&]/g, "")}`)}${[digits(read.requests), size(read.nbytes), time(read.seconds), ...(prices ? [digits(usd)] : [])].map((text) => cell(text)).join("")}</tr>`;
    });
    const heads = [`a chunk of ${size(product(chunk) * q.itemsize)}`, "requests", "moved", "time", ...(prices ? ["USD for a million"] : [])];
    table.innerHTML = `<thead><tr>${heads.map((text) => cell(text, "th")).join("")}</tr></thead><tbody>${rows.join("")}</tbody>`;
  };
  inputs.forEach((input) => input.addEventListener("input", () => { chunk[input.dataset.axis] = fromSlider(Number(input.value), q.shape[input.dataset.axis]); update(); }));
  figure.querySelectorAll("[data-copy]").forEach((button) => button.addEventListener("click", () => { chunk = [...layouts[button.dataset.copy].chunk]; update(); }));
  figure.querySelector(".chosen").addEventListener("click", () => { chunk = [...layouts[0].chunk]; update(); });
  figure.hidden = false;
  update();
  drawFront(found);
}

// Heights of labels so far apart that none lies on another: each moves down as far as it must, and all up if there is no room.
function spreadLabels(heights, apart, bottom) {
  const order = heights.map((_, i) => i).sort((a, b) => heights[a] - heights[b]), spread = [...heights];
  order.forEach((i, k) => { if (k) spread[i] = Math.max(spread[i], spread[order[k - 1]] + apart); });
  const over = Math.max(0, spread[order[order.length - 1]] - bottom);
  order.reverse().forEach((i, k) => { spread[i] = k ? Math.min(spread[i], spread[order[k - 1]] - apart) : spread[i] - over; });
  return spread;
}
// Seconds against dollars of each choice, or against bytes stored where prices are unknown.
function drawFront(found) {
  const figure = document.getElementById("decide-front"), { show: digits, time, size, words } = window.wireDecide;
  if (!figure || found.choices.length < 2) { if (figure) figure.hidden = true; return; }
  const { prices } = found.net, cost = (one) => Math.max(prices ? one.usd : one.stored, 1e-9), [wide, high, left, low] = [360, 170, 48, 30];
  const scale = (values, from, to) => {
    const [least, most] = [Math.min(...values) / 1.3, Math.max(...values) * 1.3].map(Math.log);
    return (value) => from + ((Math.log(value) - least) / (most - least || 1)) * (to - from);
  };
  const x = scale(found.choices.map(cost), left, wide - 10), y = scale(found.choices.map((one) => one.seconds), high - low, 10);
  const heights = spreadLabels(found.choices.map((one) => y(one.seconds) + 4), 11, high - low - 3);
  const points = found.choices.map((one, i) => {
    const [px, py] = [x(cost(one)), y(one.seconds)], isBest = one === found.best, end = px > wide / 2 ? "end" : "start";
    const text = `${words[one.action]}: ${time(one.seconds)}, ${prices ? `${digits(one.usd, 2)} USD` : size(one.stored)}`;
    return `<circle cx="${px.toFixed(1)}" cy="${py.toFixed(1)}" r="${isBest ? 6 : 4}" class="${isBest ? "best" : ""}"/><text x="${(px + (end === "end" ? -9 : 9)).toFixed(1)}" y="${heights[i].toFixed(1)}" text-anchor="${end}"${isBest ? ' class="best"' : ""}>${text}</text>`;
  });
  figure.innerHTML = `<svg viewBox="0 0 ${wide} ${high}" role="img" aria-label="Seconds of a read against what each choice costs."><path class="axis" d="M${left} 5V${high - low}H${wide - 5}"/><text x="${wide - 5}" y="${high - 12}" text-anchor="end">${prices ? "USD a month (log)" : "stored (log)"} →</text><text x="4" y="14">s (log)</text>${points.join("")}</svg><figcaption>Each choice: seconds of a read against ${prices ? "dollars a month" : "bytes stored"}. The large point is chosen; left and below is better.</figcaption>`;
  figure.hidden = false;
}
if (typeof window !== "undefined") window.wireDecidePictures = { show };
if (typeof module !== "undefined") module.exports = { drawCube, findRegions, edges, fromSlider, toSlider, spreadLabels };
})();
