// The cost model of advisors/costs, rule by rule, for the calculator's page.
// Prices and assumptions come with the page, made from prices.yaml and assumptions.py;
// tests/advisors/costs/test_calculator.py holds the two implementations to the same cent.
(function () {
  "use strict";

  const HOURS_PER_MONTH = 720;
  const SECONDS_PER_MONTH = HOURS_PER_MONTH * 3600;
  const GB = 1e9;
  const READS_PER_METERED = 3; // a shared file system meters reads by a third
  const OPTIONS = ["none", "process", "disk", "shared", "redis", "cdn", "cdn-process"];
  const NAMES = {
    none: "no cache",
    process: "memory of each process",
    "cdn-process": "CDN, then memory of each process",
    disk: "disk of each instance",
    shared: "shared file system",
    redis: "Redis",
    cdn: "CDN in front, no cache behind",
  };

  const sum = (values) => values.reduce((total, value) => total + value, 0);

  // Long jobs pause after each hour of a day, so that a page stays at its reader's hand.
  function finish(job) {
    let next = job.next();
    while (!next.done) next = job.next();
    return next.value;
  }

  function roundHalfEven(value) {
    const below = Math.floor(value);
    if (value - below !== 0.5) return Math.round(value);
    return below % 2 === 0 ? below : below + 1;
  }

  // Popularity and hit ratios: helpers/models/hits.py

  function groupBounds(nItems) {
    const bounds = [];
    for (let rank = 1; rank <= Math.min(nItems, 200) + 1; rank += 1) bounds.push(rank);
    while (bounds[bounds.length - 1] <= nItems) {
      bounds.push(Math.min(Math.floor(bounds[bounds.length - 1] * 1.05), nItems + 1));
    }
    return bounds;
  }

  function groupWeight(low, high, exponent) {
    if (high - low === 1) return Math.pow(low, -exponent);
    const start = low - 0.5;
    const stop = high - 0.5;
    if (Math.abs(1 - exponent) < 1e-9) return Math.log(stop / start) / (high - low);
    const power = 1 - exponent;
    return (Math.pow(stop, power) - Math.pow(start, power)) / power / (high - low);
  }

  function zipf(nItems, exponent) {
    const bounds = groupBounds(nItems);
    const counts = bounds.slice(1).map((bound, k) => bound - bounds[k]);
    const weights = counts.map((_, k) => groupWeight(bounds[k], bounds[k + 1], exponent));
    const total = sum(weights.map((weight, k) => weight * counts[k]));
    return { counts, shares: weights.map((weight) => weight / total) };
  }

  function decayed(decay, time) {
    if (time === Infinity) return 1 / decay;
    const exponent = decay * time;
    return exponent > 1e-9 ? -Math.expm1(-exponent) / decay : time * (1 - exponent / 2);
  }

  function held(rate, time, cache) {
    const loss = 1 / cache.lifetime;
    let hits = rate * decayed(loss, Math.min(cache.ttl, time));
    if (cache.ttl > time) {
      const x = Math.min(rate * time, 700);
      const goingOn = rate * -Math.expm1(-x);
      const rest = x < 1e-3 ? x ** 2 / 2 + x ** 3 / 6 + x ** 4 / 24 : Math.expm1(x) - x;
      hits += goingOn * Math.exp(-loss * time) * decayed(goingOn / rest + loss, cache.ttl - time);
    }
    return 1 - 1 / (1 + hits);
  }

  // Where a function that is below zero at one end is above it at the other:
  // Chandrupatla's method, which takes a fifth of the steps of halving.
  const solve = (f, ...rest) =>
    finish(
      seek(function* (x) {
        return f(x);
      }, ...rest)
    );

  function* seek(f, from, to, tolerance) {
    let [a, b, c] = [to, from, to];
    let [fa, fb, fc] = [yield* f(a), yield* f(b), 0];
    let t = 0.5;
    for (let round = 0; round < 200; round += 1) {
      const x = a + t * (b - a);
      const fx = yield* f(x);
      if (fx > 0 === fa > 0) [c, fc] = [a, fa];
      else [c, b, fc, fb] = [b, a, fb, fa];
      [a, fa] = [x, fx];
      const least = tolerance / Math.abs(b - a);
      const isNear = Math.abs(fa) < Math.abs(fb);
      if (least > 0.5 || fa === 0) return isNear || fa === 0 ? a : b;
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

  function characteristicTime(counts, rates, given) {
    const cache = { ...given, lifetime: Infinity };
    const nHeld = cache.capacity / cache.item;
    const content = (time) => {
      let total = 0;
      for (let k = 0; k < rates.length; k += 1) total += counts[k] * held(rates[k], time, cache);
      return total;
    };
    const excess = (log) => content(Math.exp(log)) - nHeld;
    if (nHeld >= content(Infinity)) return Infinity;
    let low = -Math.log(sum(rates.map((rate, k) => counts[k] * rate)));
    let high = low;
    while (excess(low) > 0) low -= 2;
    while (excess(high) < 0) {
      low = high;
      high += 2;
      if (high > 700) return Infinity;
    }
    return Math.exp(solve(excess, low, high, 1e-13));
  }

  function hitRatio(popularity, requestsPerS, cache) {
    if (cache.capacity < cache.item) return 0;
    const { counts, shares } = popularity;
    const rates = shares.map((share) => (share * requestsPerS) / cache.replicas);
    const time = characteristicTime(counts, rates, cache);
    return sum(rates.map((rate, k) => counts[k] * shares[k] * held(rate, time, cache)));
  }

  // The day and its credits: advisors/costs/demand.py

  function hump(k) {
    const weights = [];
    for (let hour = 0; hour < 24; hour += 1) {
      weights.push(Math.exp(k * (Math.cos((2 * Math.PI * hour) / 24) - 1)));
    }
    const total = sum(weights);
    return weights.map((weight) => (weight * 24) / total);
  }

  function diurnalCurve(peakRatio) {
    if (peakRatio === 1) return new Array(24).fill(1);
    let low = 0;
    let high = 500;
    for (let round = 0; round < 100; round += 1) {
      const middle = (low + high) / 2;
      if (hump(middle)[0] < peakRatio) low = middle;
      else high = middle;
    }
    return hump(low);
  }

  function creditBalances(storedGb, metered) {
    const earned = Math.max(1, 0.05 * storedGb);
    const full = Math.max(2100, 2.1 * storedGb);
    let balance = full;
    return metered.map((rate) => {
      balance = Math.min(full, balance + (earned - rate) * 3.6);
      return balance;
    });
  }

  function isEnough(storedGb, metered) {
    if (Math.max(...metered) > Math.max(100, 0.1 * storedGb)) return false;
    const balances = creditBalances(storedGb, [...metered, ...metered]);
    const isLasting = balances[balances.length - 1] >= balances[23] * (1 - 1e-12);
    return isLasting && Math.min(...balances) >= 0;
  }

  function leastStoredGb(metered, dataGb) {
    let low = dataGb;
    let high = 1 + dataGb;
    if (isEnough(low, metered)) return low;
    while (!isEnough(high, metered)) high *= 2;
    for (let round = 0; round < 100; round += 1) {
      const middle = (low + high) / 2;
      if (isEnough(middle, metered)) high = middle;
      else low = middle;
    }
    return high;
  }

  // What reaches the service: advisors/costs/demand.py

  function meanDuration(a, option, hit) {
    if (option === "none" || option === "cdn") return a.make_s + a.open_s;
    const fetch = option.endsWith("process") ? 0 : a[`${option}_fetch_s`];
    return a.make_s + fetch + (1 - hit) * a.open_s;
  }

  const meanCpu = (a, hit) => a.make_cpu_s + (1 - hit) * a.open_cpu_s;

  function countRedisNodes(a) {
    const peakMbPerS = (a.requests_per_s * a.peak_ratio * a.metadata_nbytes) / 1e6;
    return Math.max(roundHalfEven(a.redis_nodes), Math.ceil(peakMbPerS / a.redis_mb_per_s - 1e-9));
  }

  // Caches that each instance has for itself.
  function settle(a, option, made, datasets, nReplicas) {
    const usable = a.instance_vcpus * a.target_utilisation;
    let hit = 0;
    for (let round = 0; round < 200; round += 1) {
      const isAlwaysOn = a.billing === "instance";
      const busy = made * (isAlwaysOn ? meanCpu(a, hit) / usable : meanDuration(a, option, hit));
      const cache = {
        capacity: (option === "disk" ? a.disk_gb : a.process_gb) * 1e9,
        item: a.metadata_nbytes,
        ttl: a.ttl_s,
        lifetime: a.lifetime_s,
        replicas: nReplicas || Math.max(1, busy),
      };
      const before = hit;
      hit = hitRatio(datasets, made, cache);
      if (nReplicas || Math.abs(hit - before) < 1e-12) break;
    }
    return hit;
  }

  function datasetHitRatio(a, option, made, datasets, nReplicas) {
    if (option === "disk" || option.endsWith("process")) return settle(a, option, made, datasets, nReplicas);
    const cache = { item: a.metadata_nbytes, ttl: a.ttl_s, lifetime: Infinity, replicas: 1 };
    if (option === "redis") {
      return hitRatio(datasets, made, { ...cache, capacity: countRedisNodes(a) * a.redis_gb * 1e9 });
    }
    if (option === "shared") return hitRatio(datasets, made, { ...cache, capacity: Infinity });
    return 0;
  }

  function flow(a, option, rate, datasets, tiles, nReplicas) {
    const edge = tiles
      ? hitRatio(tiles, rate, { capacity: Infinity, item: a.tile_nbytes, ttl: a.cdn_ttl_s, lifetime: Infinity, replicas: a.n_edges })
      : 0;
    const made = rate * (1 - edge);
    const hit = datasetHitRatio(a, option, made, datasets, nReplicas);
    const duration = meanDuration(a, option, hit);
    return { rate, made, edge, hit, duration, busy: made * duration, busyCpus: made * meanCpu(a, hit) };
  }

  function* followDay(a, option) {
    const datasets = zipf(roundHalfEven(a.n_datasets), a.dataset_zipf);
    const nTiles = roundHalfEven(a.n_datasets) * roundHalfEven(a.tiles_per_dataset);
    const tiles = option.startsWith("cdn") ? zipf(nTiles, a.tile_zipf) : null;
    const rates = diurnalCurve(a.peak_ratio).map((ratio) => a.requests_per_s * ratio);
    const peak = flow(a, option, rates[0], datasets, tiles, 0);
    const usable = a.instance_vcpus * a.target_utilisation;
    const nInstances = a.billing === "instance" ? Math.max(1, Math.ceil(peak.busyCpus / usable - 1e-9)) : 0;
    const half = [];
    for (const rate of rates.slice(0, 13)) {
      half.push(flow(a, option, rate, datasets, tiles, nInstances));
      yield;
    }
    return { flows: rates.map((_, hour) => half[Math.min(hour, 24 - hour)]), nInstances };
  }

  // What it costs: advisors/costs/bill.py

  function computing(a, p, option, day, month) {
    if (a.billing === "instance") {
      const anHour = a.instance_vcpus * p.instance_vcpu_hour + a.instance_gb * p.instance_gb_hour;
      return { computing: day.nInstances * HOURS_PER_MONTH * anHour, invocations: 0, disk: 0 };
    }
    const paidGb = option === "disk" ? Math.max(0, a.disk_gb - 0.5) : 0;
    return {
      computing: month.busyS * a.memory_gb * p.invocation_gb_s,
      invocations: (month.made / 1e6) * p.invocations_1e6,
      disk: month.busyS * paidGb * p.invocation_disk_gb_s,
    };
  }

  function caching(a, p, option, day, month) {
    const lines = { Redis: 0, "shared storage": 0, "shared throughput": 0 };
    if (option === "redis") lines.Redis = countRedisNodes(a) * HOURS_PER_MONTH * p.redis_node_hour;
    if (option === "shared") {
      let storedGb = (a.n_datasets * a.metadata_nbytes) / GB;
      if (a.shared_mode === "bursting") {
        const read = a.shared_read_nbytes / READS_PER_METERED / 1e6;
        const written = a.metadata_nbytes / 1e6;
        const metered = day.flows.map((f) => f.made * (f.hit * read + (1 - f.hit) * written));
        storedGb = leastStoredGb(metered, storedGb);
      } else {
        const readGb = (month.hits * a.shared_read_nbytes) / GB;
        const writtenGb = ((month.made - month.hits) * a.metadata_nbytes) / GB;
        lines["shared throughput"] = readGb * p.shared_read_gb + writtenGb * p.shared_write_gb;
      }
      lines["shared storage"] = storedGb * p.shared_gb_month;
    }
    return lines;
  }

  function network(a, p, option, month) {
    const opened = (month.made - month.hits) * a.metadata_nbytes;
    const readGb = (month.made * a.tile_read_nbytes + opened) / GB;
    const isPrivate = option === "shared" || option === "redis" || a.nat_share > 0;
    const sentGb = (month.requests * a.tile_nbytes) / GB;
    const isCdn = option.startsWith("cdn");
    return {
      "NAT gateways": isPrivate ? a.n_nat_gateways * HOURS_PER_MONTH * p.nat_hour : 0,
      "NAT data": a.nat_share * readGb * p.nat_gb,
      "data out": sentGb * (isCdn ? p.cdn_gb : p.data_out_gb),
      "CDN requests": isCdn ? (month.requests / 1e4) * p.cdn_requests_1e4 : 0,
    };
  }

  function* priceSteps(a, p, option) {
    const day = yield* followDay(a, option);
    const seconds = SECONDS_PER_MONTH / 24;
    const month = {
      requests: seconds * sum(day.flows.map((f) => f.rate)),
      made: seconds * sum(day.flows.map((f) => f.made)),
      hits: seconds * sum(day.flows.map((f) => f.made * f.hit)),
      busyS: seconds * sum(day.flows.map((f) => f.busy)),
    };
    const isShared = option === "shared";
    const opened = (month.made - month.hits) * a.open_gets;
    const still = isShared ? month.hits * a.shared_gets : 0;
    const gets = month.made * a.tile_gets + opened + still;
    const lists = isShared ? month.made * a.shared_lists : 0;
    const lines = {
      ...computing(a, p, option, day, month),
      ...caching(a, p, option, day, month),
      ...network(a, p, option, month),
      "store requests": (gets / 1e3) * p.store_gets_1e3,
      "store listings": (lists / 1e3) * p.store_lists_1e3,
    };
    return {
      option,
      lines,
      usd: sum(Object.values(lines)),
      hitRatio: month.made ? month.hits / month.made : 0,
      edgeHitRatio: 1 - month.made / month.requests,
      duration: month.made ? month.busyS / month.made : 0,
      nInstances: day.nInstances,
    };
  }

  function* compareSteps(a, p) {
    const costs = [];
    for (const option of OPTIONS) costs.push(yield* priceSteps(a, p, option));
    return costs;
  }

  const compareOptions = (a, p) => finish(compareSteps(a, p));

  // How much more an option costs than another at a rate, by its logarithm.
  const excessOf = (a, p, first, second) =>
    function* (log) {
      const at = { ...a, requests_per_s: Math.exp(log) };
      return (yield* priceSteps(at, p, first)).usd - (yield* priceSteps(at, p, second)).usd;
    };

  // Rates at which two options change places: advisors/costs/bill.py.
  function* seekBreakEven(a, p, first, second) {
    const low = Math.log(0.01);
    const high = Math.log(10000);
    const nSteps = Math.ceil(((high - low) / Math.log(10)) * 4);
    const excess = excessOf(a, p, first, second);
    const grid = [];
    const values = [];
    for (let step = 0; step <= nSteps; step += 1) {
      grid.push(low + ((high - low) * step) / nSteps);
      values.push(yield* excess(grid[step]));
    }
    const found = [];
    for (let k = 0; k < nSteps; k += 1) {
      if (values[k] > 0 === values[k + 1] > 0) continue;
      const crossing = yield* seek(excess, grid[k], grid[k + 1], 1e-12);
      found.push([Math.exp(crossing), values[k + 1] > 0 ? second : first]);
    }
    return found;
  }

  const breakEvenRates = (...given) => finish(seekBreakEven(...given));

  window.CostCalculator = { compareOptions, compareSteps, breakEvenRates };

  // The page.

  const SVG = "http://www.w3.org/2000/svg";
  const GROUPS = {
    load: "Load",
    service: "Service, to be measured",
    computing: "Computing",
    caches: "Caches",
    network: "Network",
    prices: "Prices",
  };
  const OPEN_GROUPS = ["load", "service"];
  const STARTS = {
    measured: "what this book measured in region",
    published: "the latencies assumed for the published study",
  };
  const A_NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

  function make(tag, attributes, ...children) {
    const node = document.createElement(tag);
    Object.entries(attributes || {}).forEach(([name, value]) => node.setAttribute(name, value));
    children.forEach((child) => node.append(child));
    return node;
  }

  const usd = (value) => value.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
  const digits = (value, n) => Number(value.toPrecision(n)).toLocaleString("en-US", { maximumSignificantDigits: n });

  // A slider runs over a thousand steps, in the logarithm where the range is wide;
  // from zero on it is even up to a tenth of the default.
  function scaleOf(low, high, given) {
    const unit = low > 0 ? 1 : given / 10;
    const isLog = low > 0 ? high / low > 50 : unit > 0 && high / given > 50;
    let to = (value) => value;
    let from = to;
    if (isLog) {
      to = low > 0 ? Math.log : (value) => Math.log1p(value / unit);
      from = low > 0 ? Math.exp : (log) => unit * Math.expm1(log);
    }
    const span = to(high) - to(low);
    return {
      toStep: (value) => (1000 * (to(Math.min(high, Math.max(low, value))) - to(low))) / span,
      toValue: (step) => from(to(low) + (span * step) / 1000),
    };
  }

  // What is wrong with a number as it was typed; empty if nothing is. A browser's own field of
  // numbers would drop a comma and read 185,5 as 1855.
  function findFault(text, entry) {
    const [low, high] = entry.bounds;
    if (text.includes(",")) return "write a point for decimals, as in 185.5, and no commas";
    if (!A_NUMBER.test(text)) return "write a number, as in 185.5";
    const value = Number(text);
    if (!(value >= low && value <= high)) return `allowed: ${low} to ${high}`;
    return entry.whole && value !== Math.round(value) ? `allowed: whole numbers from ${low} to ${high}` : "";
  }

  function makeNumber(entry, onChange) {
    const id = `cc-${entry.name}`;
    const [low, high] = entry.bounds;
    const scale = scaleOf(low, high, entry.value);
    const input = make("input", { id, type: "text", inputmode: "decimal", autocomplete: "off", value: entry.value, "aria-describedby": `${id}-error` });
    const slider = make("input", { type: "range", min: 0, max: 1000, step: 1, value: scale.toStep(entry.value), "aria-label": `${entry.label}, slider` });
    const error = make("span", { id: `${id}-error`, class: "cc-error", role: "alert" });
    const show = () => slider.setAttribute("aria-valuetext", input.value);
    slider.addEventListener("input", () => {
      const value = scale.toValue(Number(slider.value));
      input.value = entry.whole ? Math.max(low, Math.round(value)) : Number(value.toPrecision(3));
      show();
      onChange();
    });
    input.addEventListener("input", () => {
      if (!findFault(input.value.trim(), entry)) slider.value = scale.toStep(Number(input.value));
      show();
      onChange();
    });
    show();
    const read = () => {
      const fault = findFault(input.value.trim(), entry);
      error.textContent = fault;
      input.setAttribute("aria-invalid", String(fault !== ""));
      return fault ? null : Number(input.value);
    };
    const write = (value) => {
      input.value = value;
      if (!findFault(String(value), entry)) slider.value = scale.toStep(Number(value));
      show();
    };
    const node = make("div", { class: "cc-control" }, make("label", { for: id }, entry.label), slider, input, error);
    return { name: entry.name, node, read, write };
  }

  function makeChoice(entry, onChange) {
    const id = `cc-${entry.name}`;
    const select = make("select", { id });
    entry.choices.forEach((choice) => select.append(make("option", { value: choice }, (entry.labels || {})[choice] || choice)));
    select.value = entry.default;
    select.addEventListener("change", onChange);
    const node = make("div", { class: "cc-control" }, make("label", { for: id }, entry.label), select);
    const write = (value) => { if (entry.choices.includes(value)) select.value = value; };
    return { name: entry.name, node, read: () => select.value, write };
  }

  function makeControls(data, onChange) {
    const assumptions = data.assumptions.map((entry) =>
      entry.choices ? makeChoice(entry, onChange) : makeNumber({ ...entry, value: entry.default }, onChange)
    );
    const prices = data.items.map((item) =>
      makeNumber({ name: `price-${item.item}`, label: `${item.label} (${item.unit})`, bounds: item.bounds, value: item.value }, onChange)
    );
    return { assumptions, prices };
  }

  function makeForm(data, controls, sets) {
    const form = make("form", { class: "cc-form", "aria-label": "assumptions and prices" });
    form.addEventListener("submit", (event) => event.preventDefault());
    Object.entries(GROUPS).forEach(([group, title]) => {
      const isPrices = group === "prices";
      const members = isPrices
        ? controls.prices
        : controls.assumptions.filter((_, k) => data.assumptions[k].group === group);
      const fieldset = make("details", OPEN_GROUPS.includes(group) ? { open: "" } : {}, make("summary", {}, title));
      if (isPrices) fieldset.append(sets);
      members.forEach((control) => fieldset.append(control.node));
      form.append(fieldset);
    });
    return form;
  }

  function drawBars(costs) {
    const [width, rowHeight, top] = [360, 40, 4];
    const most = Math.max(...costs.map((cost) => cost.usd)) || 1;
    const cheapest = Math.min(...costs.map((cost) => cost.usd));
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", `0 0 ${width} ${rowHeight * costs.length + top}`);
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `Bars of the cost of a month: ${costs.map((cost) => `${NAMES[cost.option]} ${usd(cost.usd)} USD`).join(", ")}`);
    const put = (tag, attributes, text) => {
      const node = document.createElementNS(SVG, tag);
      Object.entries(attributes).forEach(([name, value]) => node.setAttribute(name, value));
      if (text) node.textContent = text;
      svg.append(node);
    };
    costs.forEach((cost, k) => {
      const y = top + k * rowHeight;
      const isCheapest = cost.usd === cheapest;
      put("text", { x: 0, y: y + 12, "font-size": 12, class: "cc-name", "font-weight": isCheapest ? 700 : 400 }, `${NAMES[cost.option]}: ${digits(cost.usd, 3)} USD`);
      put("rect", { x: 0, y: y + 18, width: Math.max(1, (width * cost.usd) / most), height: 14, class: isCheapest ? "cc-cheapest" : "cc-dearer" });
    });
    return svg;
  }

  // Cost against the rate, a line an option; marks are where two of the cheapest change places.
  const CHART = { width: 640, height: 300, left: 64, right: 24, top: 8, bottom: 40, from: 0.01, to: 1000, n: 26 };
  const DASHES = { none: "", process: "8 3", disk: "2 3", shared: "6 3 2 3", redis: "12 4", cdn: "4 4", "cdn-process": "1 2" };

  function* followCurves(a, p) {
    const { from, to, n } = CHART;
    const rates = Array.from({ length: n }, (_, k) => from * Math.pow(to / from, k / (n - 1)));
    const usdOf = Object.fromEntries(OPTIONS.map((option) => [option, []]));
    for (const rate of rates) {
      for (const option of OPTIONS) {
        usdOf[option].push((yield* priceSteps({ ...a, requests_per_s: rate }, p, option)).usd);
      }
    }
    const cheapest = rates.map((_, k) => OPTIONS.reduce((one, other) => (usdOf[other][k] < usdOf[one][k] ? other : one)));
    const changes = [];
    for (let k = 1; k < n; k += 1) {
      const [before, after] = [cheapest[k - 1], cheapest[k]];
      if (before === after) continue;
      const excess = excessOf(a, p, before, after);
      const rate = Math.exp(yield* seek(excess, Math.log(rates[k - 1]), Math.log(rates[k]), 1e-9));
      const { usd } = yield* priceSteps({ ...a, requests_per_s: rate }, p, after);
      changes.push({ rate, usd, before, after });
    }
    return { rates, usdOf, changes };
  }

  // It is as wide as the room that it has, so that a phone shows letters of the same size.
  function drawCurves({ rates, usdOf, changes }, a, room) {
    const { height, left, right, top, bottom, from, to } = CHART;
    const width = Math.max(280, Math.min(CHART.width, room));
    const all = OPTIONS.flatMap((option) => usdOf[option]).filter((value) => value > 0);
    const [low, high] = [Math.min(...all, 1), Math.max(...all, 10)].map(Math.log10);
    const x = (rate) => left + ((width - left - right) * Math.log(rate / from)) / Math.log(to / from);
    const y = (value) => height - bottom - ((height - top - bottom) * (Math.log10(Math.max(value, 1e-9)) - low)) / (high - low);
    const svg = document.createElementNS(SVG, "svg");
    const told = changes.map((one) => `from ${digits(one.rate, 2)} tiles a second on ${NAMES[one.after]}`).join(", ");
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("role", "img");
    svg.setAttribute("class", "cc-chart");
    svg.setAttribute("aria-label", `Cost of a month against the rate. Cheapest at few tiles: ${NAMES[cheapestAt(usdOf, 0)]}${told ? `; ${told}` : ""}`);
    const put = (tag, attributes, text) => {
      const node = document.createElementNS(SVG, tag);
      Object.entries(attributes).forEach(([name, value]) => node.setAttribute(name, value));
      if (text) node.textContent = text;
      svg.append(node);
    };
    for (let power = Math.ceil(low); power <= high; power += 1) {
      put("line", { x1: left, x2: width - right, y1: y(10 ** power), y2: y(10 ** power), class: "cc-grid" });
      put("text", { x: left - 6, y: y(10 ** power) + 4, "text-anchor": "end", "font-size": 12 }, (10 ** power).toLocaleString("en-US", { maximumSignificantDigits: 1 }));
    }
    [0.01, 0.1, 1, 10, 100, 1000].forEach((rate) => {
      put("text", { x: x(rate), y: height - bottom + 16, "text-anchor": "middle", "font-size": 12 }, String(rate));
    });
    put("text", { x: (width + left) / 2, y: height - 6, "text-anchor": "middle", "font-size": 12 }, "tiles a second; USD a month");
    if (a.requests_per_s >= from && a.requests_per_s <= to) {
      put("line", { x1: x(a.requests_per_s), x2: x(a.requests_per_s), y1: top, y2: height - bottom, class: "cc-yours" });
    }
    OPTIONS.forEach((option) => {
      const points = rates.map((rate, k) => `${x(rate).toFixed(1)},${y(usdOf[option][k]).toFixed(1)}`).join(" ");
      put("polyline", { points, class: "cc-curve", "stroke-dasharray": DASHES[option], "data-option": option });
    });
    changes.forEach((one) => put("circle", { cx: x(one.rate), cy: y(one.usd), r: 4, class: "cc-change" }));
    const key = make("ul", { class: "cc-key" });
    OPTIONS.forEach((option) => {
      const line = document.createElementNS(SVG, "svg");
      line.setAttribute("viewBox", "0 0 36 8");
      line.setAttribute("aria-hidden", "true");
      const path = document.createElementNS(SVG, "line");
      Object.entries({ x1: 0, x2: 36, y1: 4, y2: 4, class: "cc-curve", "stroke-dasharray": DASHES[option], "data-option": option }).forEach(([name, value]) => path.setAttribute(name, value));
      line.append(path);
      key.append(make("li", {}, line, NAMES[option]));
    });
    const cheapest = [`Cheapest: ${NAMES[cheapestAt(usdOf, 0)]}`, ...(told ? [told] : [])].join("; ");
    return make("figure", {}, svg, key, make("figcaption", {}, `${cheapest}.`));
  }

  const cheapestAt = (usdOf, k) => OPTIONS.reduce((one, other) => (usdOf[other][k] < usdOf[one][k] ? other : one));

  // What stands on the page as a file: assumptions, prices and every line of every bill.
  function exportBill(costs, a, p) {
    const quote = (value) => `"${String(value).replaceAll('"', '""')}"`;
    const rows = [["kind", "option", "item", "value"]];
    Object.entries(a).forEach(([name, value]) => rows.push(["assumption", "", name, value]));
    Object.entries(p).forEach(([name, value]) => rows.push(["price (USD)", "", name, value]));
    costs.forEach((cost) => {
      Object.entries(cost.lines).forEach(([name, value]) => rows.push(["USD a month", cost.option, name, value]));
      rows.push(["USD a month", cost.option, "in all", cost.usd]);
    });
    return rows.map((row) => row.map(quote).join(",")).join("\r\n") + "\r\n";
  }

  function describeRates(rates, option) {
    if (option === "none") return "";
    if (!rates.found.length) return rates.isCheaper ? "every rate" : "no rate";
    return rates.found
      .map(([rate, winner]) => `${winner === option ? "above" : "below"} ${digits(rate, 2)}`)
      .join(", ");
  }

  function makeTable(costs, a, rates) {
    const head = ["option", "USD a month", "USD a million tiles", "hits", "mean time (s)", "cheaper than no cache at (tiles/s)"];
    const table = make("table", { class: "cc-table" }, make("caption", {}, "A month of 30 days with each choice of cache"));
    table.append(make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)))));
    const body = make("tbody", {});
    const millions = (a.requests_per_s * SECONDS_PER_MONTH) / 1e6;
    costs.forEach((cost) => {
      const found = rates[cost.option];
      const told = found ? describeRates({ found, isCheaper: cost.usd < costs[0].usd }, cost.option) : "…";
      const hits = cost.option.startsWith("cdn") ? cost.edgeHitRatio : cost.hitRatio;
      const cells = [usd(cost.usd), usd(cost.usd / millions), cost.option === "none" ? "" : `${(100 * hits).toFixed(1)}\u00a0%`, digits(cost.duration, 3), cost.option === "none" ? "" : told];
      body.append(
        make("tr", {}, make("th", { scope: "row" }, NAMES[cost.option]), ...cells.map((text, k) => make("td", { "data-label": head[k + 1] }, text)))
      );
    });
    table.append(body);
    return table;
  }

  function makeBill(costs) {
    const names = Object.keys(costs[0].lines).filter((name) => costs.some((cost) => cost.lines[name] > 0));
    const bill = make("details", {}, make("summary", {}, "The bill line by line"));
    costs.forEach((cost) => {
      const list = make("dl", {});
      names.filter((name) => cost.lines[name] > 0).forEach((name) => {
        list.append(make("dt", {}, name), make("dd", {}, usd(cost.lines[name])));
      });
      bill.append(make("h3", {}, NAMES[cost.option]), list);
    });
    return bill;
  }

  // What a reader has changed stands in the address, so that it can be sent to others.
  function writeAddress(changed) {
    const hash = new URLSearchParams(changed).toString();
    try {
      history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
    } catch {
      // A page inside a page has no address of its own.
    }
  }

  function start(root, data) {
    const results = make("div", { class: "cc-results" });
    const status = make("p", { class: "cc-status", role: "status", "aria-live": "polite" });
    const dated = make("p", { class: "cc-dated" });
    const starts = Object.keys(STARTS).filter((name) => name === "published" || Object.keys(data.measured).length);
    let timer = 0;
    let latest = 0;
    const later = () => {
      clearTimeout(timer);
      timer = setTimeout(update, 150);
    };
    const from = makeChoice({ name: "start", label: "start from", choices: starts, default: starts[0], labels: STARTS }, () => restart());
    const set = makeChoice({ name: "price-set", label: "price set", choices: Object.keys(data.sets), default: data.set }, () => {
      writePrices();
      later();
    });
    const controls = makeControls(data, later);
    const all = [...controls.assumptions, ...controls.prices];
    const reset = make("button", { type: "button", class: "cc-reset" }, "Reset");
    reset.addEventListener("click", () => {
      from.write(starts[0]);
      set.write(data.set);
      restart();
    });
    const form = makeForm(data, controls, set.node);
    form.prepend(from.node, reset);

    // What every control has before anything is changed.
    function defaults() {
      const measured = from.read() === "measured" ? data.measured : {};
      const a = data.assumptions.map((entry) => [entry.name, entry.name in measured ? measured[entry.name] : entry.default]);
      const p = Object.entries(data.sets[set.read()].values).map(([item, value]) => [`price-${item}`, value]);
      return Object.fromEntries([...a, ...p]);
    }

    function writePrices() {
      const values = defaults();
      controls.prices.forEach((control) => control.write(values[control.name]));
    }

    function restart() {
      const values = defaults();
      all.forEach((control) => control.write(values[control.name]));
      later();
    }

    function readAddress() {
      const given = new URLSearchParams(location.hash.slice(1));
      from.write(given.get("start") || starts[0]);
      set.write(given.get("price-set") || data.set);
      const values = { ...defaults(), ...Object.fromEntries(given) };
      all.forEach((control) => control.write(values[control.name]));
    }

    function update() {
      latest += 1;
      const a = Object.fromEntries(controls.assumptions.map((control) => [control.name, control.read()]));
      const p = Object.fromEntries(controls.prices.map((control) => [control.name.slice(6), control.read()]));
      const usual = defaults();
      const differs = all.filter((control) => String(control.read()) !== String(usual[control.name]));
      const isOwn = differs.some((control) => control.name.startsWith("price-"));
      const chosen = data.sets[set.read()];
      dated.textContent = `Prices: set ${set.read()} of ${chosen.date}, region ${chosen.region}${isOwn ? ", some changed by you" : ""}; before discounts and free allowances.`;
      if ([...Object.values(a), ...Object.values(p)].includes(null)) {
        status.textContent = `Some value is out of its bounds; ${results.firstChild ? "the results below are the last good ones" : "results come once it is mended"}.`;
        return;
      }
      writeAddress([
        ...(from.read() === starts[0] ? [] : [["start", from.read()]]),
        ...(set.read() === data.set ? [] : [["price-set", set.read()]]),
        ...differs.map((control) => [control.name, control.read()]),
      ]);
      show(a, p, latest);
    }

    function show(a, p, mine) {
      work(compareSteps(a, p), () => mine === latest, (costs) => showCosts(costs, a, p, mine));
    }

    function showCosts(costs, a, p, mine) {
      const best = costs.reduce((one, other) => (other.usd < one.usd ? other : one));
      const saved = costs[0].usd ? 100 * (1 - best.usd / costs[0].usd) : 0;
      status.textContent =
        best.option === "none"
          ? `No cache costs least: ${usd(best.usd)} USD a month.`
          : `Cheapest: ${NAMES[best.option]}, ${usd(best.usd)} USD a month, ${digits(saved, 2)} % less than no cache.`;
      const rates = {};
      const chart = make("div", { class: "cc-curves" });
      const link = make("a", { class: "cc-export", download: "tile-service-costs.csv", href: `data:text/csv;charset=utf-8,${encodeURIComponent(exportBill(costs, a, p))}` }, "Download as CSV");
      results.replaceChildren(drawBars(costs), makeTable(costs, a, rates), link, chart, makeBill(costs));
      const isWanted = () => mine === latest;
      work(followCurves(a, p), isWanted, (curves) => {
        chart.replaceChildren(drawCurves(curves, a, chart.clientWidth));
        work(fillRates(a, p, rates), isWanted, () => results.querySelector(".cc-table").replaceWith(makeTable(costs, a, rates)));
      });
    }

    readAddress();
    window.addEventListener("hashchange", () => {
      if (!location.hash || location.hash.includes("=")) {
        readAddress();
        later();
      }
    });
    root.replaceChildren(make("div", { class: "cc-output" }, status, results, dated), form);
    update();
  }

  function* fillRates(a, p, rates) {
    for (const option of OPTIONS.slice(1)) rates[option] = yield* seekBreakEven(a, p, "none", option);
  }

  // Do a long job in short pieces, so that typing goes on; it ends when another is asked for.
  function work(job, isWanted, onEnd) {
    const piece = () => {
      if (!isWanted()) return;
      const until = performance.now() + 20;
      let next = job.next();
      while (!next.done && performance.now() < until) next = job.next();
      if (next.done) onEnd(next.value);
      else setTimeout(piece, 0);
    };
    setTimeout(piece, 0);
  }

  document.addEventListener("DOMContentLoaded", () => {
    const root = document.getElementById("cost-calculator");
    const data = document.getElementById("cost-calculator-data");
    if (root && data) start(root, JSON.parse(data.textContent));
  });
})();
