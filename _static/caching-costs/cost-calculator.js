// The calculator's page. The formulas are those of src/wire/costs (bill.py), by hand in
// JavaScript; a test holds both to the same digits.
(function () {
  "use strict";

  const HOURS_PER_MONTH = 720;
  const SECONDS_PER_MONTH = HOURS_PER_MONTH * 3600;
  const [TARGET_UTILISATION, LIFETIME_S, N_EDGES] = [0.7, 7200, 10];
  const [REDIS_GB, REDIS_MB_PER_S] = [1.1, 16];
  const [LEAST_SAVING, LEAST_RATE, N_ROUNDS] = [0.05, 0.01, 50];
  const OPTIONS = ["process", "none", "redis", "cdn"];

  const sum = (values) => values.reduce((total, value) => total + value, 0);

  const zipfs = new Map();
  function zipf(nItems, exponent) {
    const key = `${nItems} ${exponent}`;
    if (!zipfs.has(key)) zipfs.set(key, makeZipf(nItems, exponent));
    return zipfs.get(key);
  }

  function makeZipf(nItems, exponent) {
    const edges = Array.from({ length: Math.min(nItems, 200) + 1 }, (_, k) => k + 1);
    while (edges.at(-1) <= nItems) edges.push(Math.min(Math.floor(edges.at(-1) * 1.05), nItems + 1));
    const isHarmonic = Math.abs(1 - exponent) < 1e-9;
    const integral = (x) => (isHarmonic ? Math.log(x - 0.5) : (x - 0.5) ** (1 - exponent) / (1 - exponent));
    const counts = edges.slice(1).map((edge, k) => edge - edges[k]);
    const weights = counts.map((n, k) => (n === 1 ? edges[k] ** -exponent : (integral(edges[k + 1]) - integral(edges[k])) / n));
    const whole = sum(counts.map((n, k) => n * weights[k]));
    return { counts, shares: weights.map((weight) => weight / whole) };
  }

  function hitRatio({ counts, shares }, perS, { nItems = Infinity, ttlS = Infinity, lifetimeS = Infinity, nReplicas = 1 }) {
    const rates = shares.map((share) => (share * perS) / nReplicas);
    const keptS = lifetimeS < Infinity ? lifetimeS * -Math.expm1(-ttlS / lifetimeS) : ttlS;
    let kept = rates.map((rate) => (keptS === Infinity ? 1 : (rate * keptS) / (1 + rate * keptS)));
    if (sum(counts.map((n, k) => n * kept[k])) > nItems) kept = evict(counts, rates, kept, nItems);
    return sum(counts.map((n, k) => n * shares[k] * kept[k]));
  }

  function evict(counts, rates, kept, nItems) {
    const hold = (logS) => rates.map((rate, k) => Math.min(kept[k], -Math.expm1(-rate * Math.exp(logS))));
    let [low, high] = [-Math.log(Math.max(...rates)) - 60, -Math.log(Math.min(...rates)) + 60];
    for (let step = 0; step < 60; step += 1) {
      const middle = (low + high) / 2;
      const held = hold(middle);
      if (sum(counts.map((n, k) => n * held[k])) > nItems) high = middle;
      else low = middle;
    }
    return hold(low);
  }

  function countRedisNodes(a) {
    const mbPerS = (a.requests_per_s * a.peak_ratio * a.metadata_nbytes) / 1e6;
    const heldGb = (a.n_datasets * a.metadata_nbytes) / 1e9;
    return Math.max(1, Math.ceil(Math.max(mbPerS / REDIS_MB_PER_S, heldGb / REDIS_GB) - 1e-9));
  }

  const durationS = (a, option, hit) => a.make_s + (option === "redis" ? a.fetch_s : 0) + (1 - hit) * a.open_s;

  function settle(a, option, madePerS) {
    const isInstance = a.billing === "instance";
    const datasets = zipf(Math.round(a.n_datasets), a.zipf);
    const memoryGb = isInstance ? a.instance_gb / a.instance_vcpus : a.memory_gb;
    const nItems = (Math.max(0, memoryGb - a.service_gb) * 1e9) / a.metadata_nbytes;
    let [hit, nInstances] = [0, 0];
    for (let round = 0; round < N_ROUNDS; round += 1) {
      const before = hit;
      let nReplicas = Math.max(1, madePerS * durationS(a, option, hit));
      if (isInstance) {
        const busyCpus = madePerS * a.peak_ratio * (a.make_cpu_s + (1 - hit) * a.open_cpu_s);
        nInstances = Math.max(1, Math.ceil(busyCpus / (a.instance_vcpus * TARGET_UTILISATION) - 1e-9));
        nReplicas = nInstances * a.instance_vcpus;
      }
      if (option === "process" || option === "cdn") hit = hitRatio(datasets, madePerS, { nItems, ttlS: a.ttl_s, lifetimeS: LIFETIME_S, nReplicas });
      else if (option === "redis") hit = hitRatio(datasets, madePerS, { ttlS: a.ttl_s });
      if (Math.abs(hit - before) < 1e-12) break;
    }
    return [hit, nInstances];
  }

  function priceOption(a, p, option) {
    const [isCdn, isRedis] = [option === "cdn", option === "redis"];
    const tiles = () => zipf(Math.round(a.n_datasets) * Math.round(a.tiles_per_dataset), a.zipf);
    const edge = isCdn ? hitRatio(tiles(), a.requests_per_s, { ttlS: a.ttl_s, nReplicas: N_EDGES }) : 0;
    const madePerS = a.requests_per_s * (1 - edge);
    const [hit, nInstances] = settle(a, option, madePerS);
    const [requests, made] = [a.requests_per_s, madePerS].map((rate) => SECONDS_PER_MONTH * rate);
    const seconds = durationS(a, option, hit);
    const storeGets = made * (a.tile_gets + (1 - hit) * a.open_gets);
    const instanceUsd = HOURS_PER_MONTH * (a.instance_vcpus * p.instance_vcpu_hour + a.instance_gb * p.instance_gb_hour);
    const computing =
      a.billing === "instance"
        ? { computing: nInstances * instanceUsd }
        : { computing: made * seconds * a.memory_gb * p.invocation_gb_s, "calls of functions": (made / 1e6) * p.invocations_1e6 };
    const lines = {
      ...computing,
      Redis: isRedis * countRedisNodes(a) * HOURS_PER_MONTH * p.redis_node_hour,
      "NAT gateway": isRedis * HOURS_PER_MONTH * p.nat_hour,
      "data out": ((requests * a.tile_nbytes) / 2 ** 30) * (isCdn ? p.cdn_gb : p.data_out_gb),
      "CDN requests": ((isCdn * requests) / 1e4) * p.cdn_requests_1e4,
      "store requests": (storeGets / 1e3) * p.store_gets_1e3,
    };
    return { option, lines, usd: sum(Object.values(lines)), hit_ratio: hit, edge_hit_ratio: edge, duration_s: seconds, n_instances: nInstances };
  }

  function listLevers(a, oneProcessorGb) {
    const neededGb = a.service_gb + (a.n_datasets * a.metadata_nbytes) / 1e9;
    const fitting = Math.max(oneProcessorGb, Math.ceil(10 * neededGb - 1e-9) / 10);
    const sizes = new Set([fitting, 10, ...(a.billing === "function" ? [a.memory_gb] : [])]);
    const levers = [[`instances of ${a.instance_vcpus} CPUs and ${a.instance_gb} GB`, { ...a, billing: "instance" }]];
    [...sizes].sort((x, y) => x - y).forEach((gb) => levers.push([`functions of ${gb} GB`, { ...a, billing: "function", memory_gb: gb }]));
    return levers;
  }

  function findBreakEven(a, p, option) {
    const saves = (rate) => {
      const [mine, shipped] = [option, OPTIONS[0]].map((one) => priceOption({ ...a, requests_per_s: rate }, p, one).usd);
      return mine <= (1 - LEAST_SAVING) * shipped;
    };
    const rates = Array.from({ length: 25 }, (_, step) => LEAST_RATE * 10 ** (step / 4));
    const last = rates.map(saves).lastIndexOf(false);
    if (last < 0) return LEAST_RATE;
    if (last === rates.length - 1) return null;
    let [low, high] = [rates[last], rates[last + 1]];
    for (let step = 0; step < 30; step += 1) {
      const middle = Math.sqrt(low * high);
      if (saves(middle)) high = middle;
      else low = middle;
    }
    return high;
  }

  const A_NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
  const digits = (value, n) => Number(value.toPrecision(n)).toLocaleString("en-US", { maximumSignificantDigits: n });
  const usd = (value) => digits(value, 3);

  // The cheapest that never shows an old tile comes first; what is cheaper still says how it does.
  function describeLeast(a, p, data) {
    const bills = listLevers(a, data.one_processor_gb).flatMap(([lever, at]) =>
      OPTIONS.map((option) => ({ lever, option, cost: priceOption(at, p, option).usd }))
    );
    const findLeast = (some) => some.reduce((best, bill) => (bill.cost < best.cost ? bill : best));
    const describe = ({ lever, option, cost }) => `${usd(cost)} USD a month on ${lever}, ${data.names[option]}`;
    const fresh = findLeast(bills.filter(({ option }) => !(option in data.stale)));
    const least = findLeast(bills);
    const first = `Never an old tile: ${describe(fresh)}.`;
    return least.cost < fresh.cost ? `${first} Cheapest: ${describe(least)}, which ${data.stale[least.option]}.` : first;
  }

  // For the test of parity, which has no page.
  if (typeof module !== "undefined") module.exports = { OPTIONS, priceOption, listLevers, findBreakEven, describeLeast };
  if (typeof document === "undefined") return;

  function make(tag, attributes, ...children) {
    const node = document.createElement(tag);
    Object.entries(attributes || {}).forEach(([name, value]) => node.setAttribute(name, value));
    node.append(...children);
    return node;
  }

  // What is wrong with a number as it was typed; empty if nothing is. A browser's own field of
  // numbers would drop a comma and read 185,5 as 1855.
  function findFault(text, [low, high]) {
    if (text.includes(",")) return "write a point for decimals, as in 185.5, and no commas";
    if (!A_NUMBER.test(text)) return "write a number, as in 185.5";
    return Number(text) >= low && Number(text) <= high ? "" : `allowed: ${low} to ${high}`;
  }

  function makeControl({ name, label, bounds, choices }, onChange) {
    const id = `cc-${name}`;
    const input = choices
      ? make("select", { id }, ...choices.map((choice) => make("option", { value: choice }, choice)))
      : make("input", { id, type: "text", inputmode: "decimal", autocomplete: "off", "aria-describedby": `${id}-error` });
    const error = make("span", { id: `${id}-error`, class: "cc-error", role: "alert" });
    const read = () => {
      if (choices) return input.value;
      const fault = findFault(input.value.trim(), bounds);
      error.textContent = fault;
      input.setAttribute("aria-invalid", String(fault !== ""));
      return fault ? null : Number(input.value);
    };
    const write = (value) => { if (!choices || choices.includes(value)) input.value = value; };
    input.addEventListener("input", onChange);
    return { name, read, write, node: make("div", { class: "cc-control" }, make("label", { for: id }, label), input, error) };
  }

  function makeTable(caption, head, rows) {
    const lines = rows.map(([name, ...cells]) =>
      make("tr", {}, make("th", { scope: "row" }, name), ...cells.map((text, k) => make("td", { "data-label": head[k + 1] }, text)))
    );
    const top = make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)));
    return make("table", { class: "cc-table" }, make("caption", {}, caption), make("thead", {}, top), make("tbody", {}, ...lines));
  }

  function showLevers(a, p, data) {
    const head = ["billing", ...OPTIONS.map((option) => data.names[option])];
    const rows = listLevers(a, data.one_processor_gb).map(([name, at]) => [name, ...OPTIONS.map((option) => usd(priceOption(at, p, option).usd))]);
    return makeTable("A month of 30 days (USD) by how computing is billed and where opened datasets are kept", head, rows);
  }

  function showOptions(a, p, data) {
    const costs = OPTIONS.map((option) => priceOption(a, p, option));
    const lines = [...new Set(costs.flatMap((cost) => Object.keys(cost.lines)))];
    const share = (value) => `${(100 * value).toFixed(1)}\u00a0%`;
    const head = [`billed by ${a.billing}`, ...OPTIONS.map((option) => data.names[option])];
    const rows = lines.map((line) => [`${line} (USD)`, ...costs.map((cost) => (cost.lines[line] ? usd(cost.lines[line]) : "–"))]);
    rows.push(["in all (USD)", ...costs.map((cost) => usd(cost.usd))]);
    rows.push(["datasets found in a cache", ...costs.map((cost) => share(cost.hit_ratio))]);
    rows.push(["tiles found in the CDN", ...costs.map((cost) => share(cost.edge_hit_ratio))]);
    rows.push(["mean time to make a tile (s)", ...costs.map((cost) => digits(cost.duration_s, 3))]);
    if (a.billing === "instance") rows.push(["instances", ...costs.map((cost) => String(cost.n_instances))]);
    const evens = OPTIONS.slice(1).map((option) => findBreakEven(a, p, option));
    rows.push(["saves a twentieth over titiler's default from (tiles/s)", "", ...evens.map((rate) => (rate === null ? "never" : digits(rate, 2)))]);
    return makeTable("What it is made of", head, rows);
  }

  // One bar for each option, with a part for each line of its bill; the table below has the numbers.
  function drawBars(a, p, data) {
    const costs = OPTIONS.map((option) => priceOption(a, p, option));
    const most = Math.max(...costs.map((cost) => cost.usd));
    const names = [...new Set(costs.flatMap((cost) => Object.keys(cost.lines)))].filter((name) => costs.some((cost) => cost.lines[name]));
    const colour = (name) => `cc-part cc-part-${names.indexOf(name)}`;
    const bars = costs.map((cost) => {
      const parts = names.map((name) => {
        const part = make("i", { class: colour(name) });
        part.style.width = `${(100 * (cost.lines[name] || 0)) / most}%`;
        return part;
      });
      return make("div", { class: "cc-bar" }, make("span", {}, data.names[cost.option]), make("span", { class: "cc-parts", "aria-hidden": "true" }, ...parts), make("b", {}, `${usd(cost.usd)} USD`));
    });
    const key = make("p", { class: "cc-key" }, ...names.map((name) => make("span", {}, make("i", { class: colour(name), "aria-hidden": "true" }), name)));
    const caption = `A month billed by ${a.billing}: what each place of a cache costs, and what for.`;
    return make("figure", { class: "cc-bars" }, ...bars, key, make("figcaption", {}, caption));
  }

  // What a reader knows of their own service; all else stays folded.
  const FIRST = ["requests_per_s", "n_datasets", "ttl_s", "make_s", "open_s"];

  function start(root, data) {
    const results = make("div", { class: "cc-results" });
    const status = make("p", { class: "cc-status", role: "status", "aria-live": "polite" });
    let timer = 0;
    const later = () => { clearTimeout(timer); timer = setTimeout(update, 150); };
    const set = makeControl({ name: "price-set", label: "price set", choices: Object.keys(data.sets) }, () => { writeAll(pricesOf(), ""); later(); });
    const assumed = data.assumptions.map((entry) => makeControl(entry, later));
    const priced = data.items.map(({ item, label, unit }) => makeControl({ name: `price-${item}`, label: `${label} (${unit})`, bounds: [0, 1e6] }, later));
    const all = [...assumed, ...priced];
    const pricesOf = () => Object.fromEntries(Object.entries(data.sets[set.read()].values).map(([item, value]) => [`price-${item}`, value]));
    const usual = () => ({ ...Object.fromEntries(data.assumptions.map((entry) => [entry.name, entry.default])), ...pricesOf() });
    const writeAll = (values, address) => {
      all.forEach((control) => { if (control.name in values) control.write(values[control.name]); });
      if (address !== "") new URLSearchParams(address).forEach((value, name) => all.find((control) => control.name === name)?.write(value));
    };

    // The address of the page keeps what differs from the defaults.
    function readAddress() {
      const given = new URLSearchParams(location.hash.slice(1));
      set.write(given.get("price-set") || data.set);
      writeAll(usual(), location.hash.slice(1));
    }

    function update() {
      const a = Object.fromEntries(assumed.map((control) => [control.name, control.read()]));
      const p = Object.fromEntries(priced.map((control) => [control.name.slice(6), control.read()]));
      if ([...Object.values(a), ...Object.values(p)].includes(null)) {
        status.textContent = "Some value is out of its bounds; the results below are the last good ones.";
        return;
      }
      const differs = all.filter((control) => String(control.read()) !== String(usual()[control.name])).map((control) => [control.name, control.read()]);
      if (set.read() !== data.set) differs.unshift(["price-set", set.read()]);
      history.replaceState(null, "", differs.length ? `#${new URLSearchParams(differs)}` : location.pathname);
      const { date, region } = data.sets[set.read()];
      status.textContent = `${describeLeast(a, p, data)} Prices of ${date}, ${region}, before discounts.`;
      const tables = make("details", {}, make("summary", {}, "As tables"), showLevers(a, p, data), showOptions(a, p, data));
      tables.open = results.querySelector("details")?.open || false;
      results.replaceChildren(drawBars(a, p, data), tables);
    }

    const reset = make("button", { type: "button", class: "cc-reset" }, "Reset");
    reset.addEventListener("click", () => { set.write(data.set); writeAll(usual(), ""); update(); });
    window.addEventListener("hashchange", () => { if (location.hash.includes("=")) { readAddress(); update(); } });
    const form = make("form", { class: "cc-form", "aria-label": "assumptions and prices" });
    form.addEventListener("submit", (event) => event.preventDefault());
    const group = (title, members, open) => make("details", open ? { open: "" } : {}, make("summary", {}, title), ...members);
    const nodes = (controls) => controls.map((control) => control.node);
    const isFirst = (control) => FIRST.includes(control.name);
    form.append(reset, group("Your service", nodes(assumed.filter(isFirst)), true));
    form.append(group("Everything else that is assumed", nodes(assumed.filter((control) => !isFirst(control))), false), group("Prices", nodes([set, ...priced]), false));
    readAddress();
    root.replaceChildren(make("div", { class: "cc-output" }, status, results), form);
    update();
  }

  document.addEventListener("DOMContentLoaded", () => {
    const [root, data] = ["cost-calculator", "cost-calculator-data"].map((id) => document.getElementById(id));
    if (root && data) start(root, JSON.parse(data.textContent));
  });
})();
