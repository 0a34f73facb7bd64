// Your network: what the requests of each client take there. The replay is that of wire.models.transfer,
// with draws that fill the distribution evenly; a test holds both equal.
"use strict";

// Inverse of the normal distribution function, algorithm AS 241 (Wichura 1988).
function quantile(p) {
  const poly = (c, x) => c.reduceRight((sum, one) => sum * x + one, 0);
  const q = p - 0.5;
  if (Math.abs(q) <= 0.425) {
    const r = 0.180625 - q * q;
    return (q * poly([3.3871328727963666080, 133.14166789178437745, 1971.5909503065514427, 13731.693765509461125,
      45921.953931549871457, 67265.770927008700853, 33430.575583588128105, 2509.0809287301226727], r)) /
      poly([1, 42.313330701600911252, 687.18700749205790830, 5394.1960214247511077, 21213.794301586595867,
        39307.895800092710610, 28729.085735721942674, 5226.4952788528545610], r);
  }
  let r = Math.sqrt(-Math.log(q < 0 ? p : 1 - p));
  let x;
  if (r <= 5) {
    r -= 1.6;
    x = poly([1.42343711074968357734, 4.63033784615654529590, 5.76949722146069140550, 3.64784832476320460504,
      1.27045825245236838258, 0.241780725177450611770, 0.0227238449892691845833, 0.000774545014278341407640], r) /
      poly([1, 2.05319162663775882187, 1.67638483018380384940, 0.689767334985100004550, 0.148103976427480074590,
        0.0151986665636164571966, 0.000547593808499534494600, 1.05075007164441684324e-9], r);
  } else {
    r -= 5;
    x = poly([6.65790464350110377720, 5.46378491116411436990, 1.78482653991729133580, 0.296560571828504891230,
      0.0265321895265761230930, 0.00124266094738807843860, 2.71155556874348757815e-5, 2.01033439929228813265e-7], r) /
      poly([1, 0.599832206555887937690, 0.136929880922735805310, 0.0148753612908506148525, 0.000786869131145613259100,
        1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15], r);
  }
  return q < 0 ? -x : x;
}

// Seconds of a sequence of requests [after, think_s, nbytes, after, ...] over a network with rates in MB/s.
// After is the index of the request that must have ended, or, below zero, -1 less the number that must have.
function replay(steps, network) {
  const n = steps.length / 3, sigma = Math.log(network.p95 / network.p50) / 1.6448536269514722;
  const after = (i) => steps[3 * i], think = (i) => steps[3 * i + 1], nbytes = (i) => steps[3 * i + 2];
  const each = network.stream * 1e6, all = network.link * 1e6;
  let now = 0, total = 0, draws = 0, end = 0, ended = 0, next = 0;
  const waiting = [], receiving = [];
  const push = (heap, time, i) => { heap.push([time, i]); heap.sort((a, b) => a[0] - b[0] || a[1] - b[1]); };
  const ask = (i) => {
    const z = quantile((0.5 + draws++ * 0.6180339887498949) % 1);
    push(waiting, now + think(i) + (network.p50 / 1e3) * Math.exp(sigma * z), i);
  };
  const queued = [...Array(n).keys()].filter((i) => after(i) < 0).sort((a, b) => after(b) - after(a) || a - b);
  const askQueued = () => { while (next < queued.length && -1 - after(queued[next]) <= ended) ask(queued[next++]); };
  askQueued();
  while (waiting.length || receiving.length) {
    const rate = receiving.length ? Math.min(each, all / receiving.length) : 0;
    const untilEnd = receiving.length ? Math.max(receiving[0][0] - total, 0) / rate : Infinity;
    const untilByte = waiting.length ? waiting[0][0] - now : Infinity;
    const seconds = Math.min(untilByte, untilEnd);
    total += receiving.length ? seconds * rate : 0;
    now += seconds;
    while (waiting.length && waiting[0][0] <= now + 1e-12) {
      const [, i] = waiting.shift();
      push(receiving, total + nbytes(i), i);
    }
    while (receiving.length && receiving[0][0] - total <= 1e-9 * Math.max(1, total)) {
      const [, done] = receiving.shift();
      end = now;
      ended += 1;
      askQueued();
      for (let i = 0; i < n; i++) if (after(i) === done) ask(i);
    }
  }
  return end;
}

const BOUNDS = { p50: [0.1, 10000], p95: [0.1, 60000], stream: [0.1, 10000], link: [0.1, 100000], get: [0, 1], put: [0, 1] };

function readNetwork(form) {
  const network = {};
  for (const [name, [low, high]] of Object.entries(BOUNDS)) {
    const value = Number(form.elements[name].value);
    if (!(value >= low && value <= high)) throw new Error(`${name}: ${form.elements[name].value}; allowed: ${low} to ${high}`);
    network[name] = value;
  }
  if (network.p95 < network.p50) throw new Error(`p95: ${network.p95}; allowed: at least p50`);
  return network;
}

function digits(x) { return x === 0 ? "0" : x >= 100 ? x.toFixed(0) : Number(x.toPrecision(2)).toString(); }

function draw(form, body, note) {
  let network;
  try { network = readNetwork(form); } catch (error) { note.textContent = error.message; return; }
  note.textContent = "";
  const operation = form.elements.operation.value;
  const lines = LEDGER.rows.filter((row) => row.operation === operation).map((row) => ({
    ...row, seconds: replay(row.steps, network),
    usd: 1e6 * (row.gets * network.get + row.puts * network.put) / 1e3,
  }));
  lines.sort((a, b) => a.seconds - b.seconds);
  body.replaceChildren(...lines.map((row) => {
    const line = document.createElement("tr");
    const cells = [row.client, row.layout, row.environment, row.n_requests, row.n_waits, digits(row.mb), digits(row.seconds), digits(row.usd)];
    for (const text of cells) line.append(Object.assign(document.createElement("td"), { textContent: text }));
    return line;
  }));
  const state = new URLSearchParams({ ...Object.fromEntries(Object.keys(BOUNDS).map((name) => [name, form.elements[name].value])), operation });
  history.replaceState(null, "", `#${state}`);
}

function start() {
  const form = document.getElementById("network-form");
  if (!form) return;
  const body = document.querySelector("#your-network-table tbody"), note = document.getElementById("your-network-note");
  for (const operation of new Set(LEDGER.rows.map((row) => row.operation))) form.elements.operation.add(new Option(operation));
  for (const name of Object.keys(LEDGER.presets)) form.elements.preset.add(new Option(name));
  const fill = (values) => { for (const [name, value] of Object.entries(values)) if (form.elements[name]) form.elements[name].value = value; };
  fill({ ...Object.values(LEDGER.presets)[0], get: 1e3 * LEDGER.prices.get, put: 1e3 * LEDGER.prices.put, operation: "whole" });
  fill(Object.fromEntries(new URLSearchParams(location.hash.slice(1))));
  form.elements.preset.addEventListener("change", () => { fill(LEDGER.presets[form.elements.preset.value]); draw(form, body, note); });
  form.elements.file.addEventListener("change", async () => {
    const text = await form.elements.file.files[0].text(), of = (key) => Number((text.match(new RegExp(`${key}: *([\\d.e+-]+)`)) || [])[1]);
    fill({ p50: 1e3 * of("median_s"), p95: 1e3 * of("p95_s"), stream: of("stream_mb_per_s"), link: of("aggregate_mb_per_s") });
    draw(form, body, note);
  });
  form.addEventListener("input", () => draw(form, body, note));
  form.addEventListener("submit", (event) => event.preventDefault());
  draw(form, body, note);
}

// The table of jumps: rows that hold every word of the filter.
function filterJumps() {
  const input = document.getElementById("jumps-filter"), table = document.getElementById("jumps-table");
  if (!input || !table) return;
  const rows = [...table.tBodies[0].rows], note = document.getElementById("jumps-count");
  const show = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    note.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
  };
  input.addEventListener("input", show);
  show();
}

if (typeof document !== "undefined") {
  document.addEventListener("DOMContentLoaded", start);
  document.addEventListener("DOMContentLoaded", filterJumps);
}
if (typeof module !== "undefined") module.exports = { replay, quantile };
