// What runs beside the calculator's page, so that no keystroke waits for it. Below stand the formulas
// of advisors/costs, written by its script.py from their Python; above them what Python brings along:
// numpy of one number, sums, and a search for a root in the place of scipy's.
"use strict";

const fsum = (values) => values.reduce((total, value) => total + value, 0);
const all = (values) => (values.length === 1 && Array.isArray(values[0]) ? values[0] : values);

const { abs } = Math;
const [float, sum] = [Number, fsum];
const len = (list) => list.length;
const max = (...values) => Math.max(...all(values));
const min = (...values) => Math.min(...all(values));
const range = (first, end) => (end === undefined ? range(0, first) : Array.from({ length: Math.max(0, end - first) }, (_, k) => first + k));
const tuple = (list) => [...list];
const zip = (...lists) => range(min(lists.map(len))).map((k) => lists.map((list) => list[k]));

function round(value) {
  const below = Math.floor(value);
  return value - below === 0.5 ? below + (below % 2) : Math.round(value);
}

const math = { ...Object.fromEntries(["ceil", "cos", "exp", "floor", "log", "pow"].map((name) => [name, Math[name]])), fsum, inf: Infinity, isinf: (x) => Math.abs(x) === Infinity, pi: Math.PI };
const np = { array: (x) => x, asarray: (x) => x, expm1: Math.expm1, minimum: Math.min, where: (is, one, other) => (is ? one : other) };
const itertools = { pairwise: (list) => zip(list.slice(0, -1), list.slice(1)) };

const change = (given, changes) => ({ ...given, ...changes });
const check_prices = () => {}; // the page refuses them before

function _total(counts, values, of) {
  let total = 0;
  for (let k = 0; k < counts.length; k += 1) total += counts[k] * of(values[k]);
  return total;
}

// Where a function that is below zero at one end is above it at the other: Chandrupatla's method.
function brentq(f, from, to) {
  let [a, b, c] = [to, from, to];
  let [fa, fb, fc] = [f(a), f(b), 0];
  let t = 0.5;
  for (let step = 0; step < 200; step += 1) {
    const x = a + t * (b - a);
    const fx = f(x);
    if (fx > 0 === fa > 0) [c, fc] = [a, fa];
    else [c, b, fc, fb] = [b, a, fb, fa];
    [a, fa] = [x, fx];
    const best = Math.abs(fa) < Math.abs(fb) ? a : b;
    const least = (1e-13 + 1e-15 * Math.abs(best)) / Math.abs(b - a);
    if (least > 0.5 || fa === 0) return fa === 0 ? a : best;
    const xi = (a - b) / (c - b);
    const phi = (fa - fb) / (fc - fb);
    t = 0.5;
    if (phi * phi < xi && (1 - phi) * (1 - phi) < 1 - xi) {
      t = (fa / (fb - fa)) * (fc / (fb - fc)) + ((c - a) / (b - a)) * (fa / (fc - fa)) * (fb / (fc - fb));
    }
    t = Math.min(1 - least, Math.max(least, t));
  }
  return a;
}

// Cost against the rate, and where the cheapest option changes.
function followCurves(a, p, rates) {
  const usdOf = cost_curves(a, p, rates);
  const cheapest = rates.map((_, k) => OPTIONS.reduce((one, other) => (usdOf[other][k] < usdOf[one][k] ? other : one)));
  const changes = [];
  for (let k = 1; k < rates.length; k += 1) {
    const pair = [cheapest[k - 1], cheapest[k]];
    if (pair[0] === pair[1]) continue;
    const found = break_even_rates(a, p, pair, [rates[k - 1], rates[k]]);
    found.forEach(([rate]) => changes.push({ rate, usd: price_option(change(a, { requests_per_s: rate }), p, pair[1]).usd, after: pair[1] }));
  }
  return { rates, usdOf, changes };
}

self.onmessage = ({ data: { a, p, rates } }) => {
  const millions = (a.requests_per_s * SECONDS_PER_MONTH) / 1e6;
  self.postMessage({ costs: OPTIONS.map((option) => price_option(a, p, option)), millions });
  self.postMessage({ curves: followCurves(a, p, rates) });
  const evens = OPTIONS.slice(1).map((option) => [option, break_even_rates(a, p, ["none", option])]);
  self.postMessage({ evens: Object.fromEntries(evens) });
};
