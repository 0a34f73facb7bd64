// The calculator's page. What it computes is advisors/costs itself: its Python, as JavaScript, comes
// with the page in #cost-worker and runs in a worker, so that no keystroke waits for it.
(function () {
  "use strict";

  // In the order in which they are shown.
  const NAMES = {
    none: "no cache",
    process: "memory of each process",
    disk: "disk of each instance",
    shared: "shared file system",
    redis: "Redis",
    cdn: "CDN in front, no cache behind",
    "cdn-process": "CDN, then memory of each process",
  };
  const OPTIONS = Object.keys(NAMES);

  const SVG = "http://www.w3.org/2000/svg";
  const GROUPS = {
    load: "Load",
    computing: "Computing: memory and how it is billed, to be turned first",
    service: "Service, to be measured",
    caches: "Caches",
    network: "Network",
    prices: "Prices",
  };
  const OPEN_GROUPS = ["load", "computing", "service"];
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

  const digits = (value, n) => Number(value.toPrecision(n)).toLocaleString("en-US", { maximumSignificantDigits: n });
  const usd = (value) => digits(value, 3); // the file has every digit

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
    return { name: entry.name, node, read: () => select.value, write, choices: entry.choices };
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
      put("text", { x: 0, y: y + 12, "font-size": 12, class: "cc-name", "font-weight": isCheapest ? 700 : 400 }, `${NAMES[cost.option]}: ${usd(cost.usd)} USD`);
      put("rect", { x: 0, y: y + 18, width: Math.max(1, (width * cost.usd) / most), height: 14, class: isCheapest ? "cc-cheapest" : "cc-dearer" });
    });
    return svg;
  }

  // Cost against the rate, a line an option; marks are where two of the cheapest change places.
  const CHART = { width: 640, height: 300, left: 64, right: 24, top: 22, bottom: 40, from: 0.01, to: 1000, n: 26 };
  const DASHES = { none: "", process: "8 3", disk: "2 3", shared: "6 3 2 3", redis: "12 4", cdn: "4 4", "cdn-process": "1 2" };

  // It is as wide as the room that it has, so that a phone shows letters of the same size.
  function drawCurves({ rates, usdOf, changes }, a, room) {
    const { height, left, right, top, bottom, from, to } = CHART;
    const width = Math.max(280, Math.min(CHART.width, room));
    const all = OPTIONS.flatMap((option) => usdOf[option]).filter((value) => value > 0);
    const [low, high] = [Math.min(...all, 1), Math.max(...all, 10)].map(Math.log10);
    const x = (rate) => left + ((width - left - right) * Math.log(rate / from)) / Math.log(to / from);
    const y = (value) => height - bottom - ((height - top - bottom) * (Math.log10(Math.max(value, 1e-9)) - low)) / (high - low);
    const svg = document.createElementNS(SVG, "svg");
    const told = changes.map((one) => `from ${digits(one.rate, 2)} tiles a second: ${NAMES[one.after]}`).join("; ");
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
    put("text", { x: (width + left) / 2, y: height - 6, "text-anchor": "middle", "font-size": 12 }, "tiles a second");
    put("text", { x: 4, y: 12, "font-size": 12 }, "USD a month");
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

  function makeTable(costs, millions, evens) {
    const head = ["option", "USD a month", "USD a million tiles", "found in a cache", "mean time to make a tile (s)", "cheaper than no cache at (tiles/s)"];
    const table = make("table", { class: "cc-table" }, make("caption", {}, "A month of 30 days with each choice of cache"));
    table.append(make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)))));
    const body = make("tbody", {});
    costs.forEach((cost) => {
      const found = evens[cost.option];
      const told = found ? describeRates({ found, isCheaper: cost.usd < costs[0].usd }, cost.option) : "…";
      // A CDN holds tiles, a cache behind it opened datasets: two shares, not one.
      const shares = [
        ...(cost.option.startsWith("cdn") ? [[cost.edge_hit_ratio, "tiles"]] : []),
        ...(["none", "cdn"].includes(cost.option) ? [] : [[cost.hit_ratio, "datasets"]]),
      ];
      const hits = shares.map(([share, what]) => `${(100 * share).toFixed(1)}\u00a0% of ${what}`).join(", ");
      const cells = [usd(cost.usd), usd(cost.usd / millions), hits, digits(cost.duration_s, 3), cost.option === "none" ? "" : told];
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

  function start(root, data, source) {
    // An address of its own, since a page that is opened as a file may start no script beside it.
    const script = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    const results = make("div", { class: "cc-results" });
    const status = make("p", { class: "cc-status", role: "status", "aria-live": "polite" });
    const dated = make("p", { class: "cc-dated" });
    const unknown = make("p", { class: "cc-unknown cc-error", role: "alert" });
    const starts = Object.keys(STARTS).filter((name) => name === "published" || Object.keys(data.measured).length);
    let timer = 0;
    let worker = null;
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
      unknown.textContent = "";
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
      const known = Object.fromEntries([from, set, ...all].map((control) => [control.name, control.choices || []]));
      const isKnown = ([name, value]) => Object.hasOwn(known, name) && (!known[name].length || known[name].includes(value));
      const strange = location.hash.includes("=") ? [...given].filter((pair) => !isKnown(pair)).map((pair) => pair.join("=")) : [];
      unknown.textContent = strange.length ? `The address has what is not known here, and is left out: ${strange.join(", ")}.` : "";
    }

    // What is still at work for older numbers is dropped, and with it all that it would answer.
    function update() {
      if (worker) worker.terminate();
      const a = Object.fromEntries(controls.assumptions.map((control) => [control.name, control.read()]));
      const p = Object.fromEntries(controls.prices.map((control) => [control.name.slice(6), control.read()]));
      const usual = defaults();
      const differs = all.filter((control) => String(control.read()) !== String(usual[control.name]));
      const isOwn = differs.some((control) => control.name.startsWith("price-"));
      const chosen = data.sets[set.read()];
      dated.textContent = `Prices: set ${set.read()} of ${chosen.date}, region ${chosen.region}${isOwn ? ", some changed by you" : ""}; before discounts and free allowances.`;
      if ([...Object.values(a), ...Object.values(p)].includes(null)) {
        results.setAttribute("aria-busy", "false");
        status.textContent = `Some value is out of its bounds; ${results.firstChild ? "the results below are the last good ones" : "results come once it is mended"}.`;
        return;
      }
      writeAddress([
        ...(from.read() === starts[0] ? [] : [["start", from.read()]]),
        ...(set.read() === data.set ? [] : [["price-set", set.read()]]),
        ...differs.map((control) => [control.name, control.read()]),
      ]);
      show(a, p);
    }

    function show(a, p) {
      worker = new Worker(script);
      status.textContent = results.firstChild ? "Computing: the results below are of what was given before." : "Computing.";
      results.setAttribute("aria-busy", "true");
      const chart = make("div", { class: "cc-curves" });
      let shown;
      worker.onmessage = ({ data: told }) => {
        if (told.costs) showCosts((shown = told), a, p, chart);
        if (told.curves) chart.replaceChildren(drawCurves(told.curves, a, chart.clientWidth));
        if (told.evens) results.querySelector(".cc-table").replaceWith(makeTable(shown.costs, shown.millions, told.evens));
      };
      worker.onerror = (fault) => {
        status.textContent = `The calculator failed: ${fault.message}`;
      };
      const { from: first, to, n } = CHART;
      const rates = Array.from({ length: n }, (_, k) => first * Math.pow(to / first, k / (n - 1)));
      worker.postMessage({ a, p, rates });
    }

    function showCosts({ costs, millions }, a, p, chart) {
      const best = costs.reduce((one, other) => (other.usd < one.usd ? other : one));
      const saved = costs[0].usd ? 100 * (1 - best.usd / costs[0].usd) : 0;
      status.textContent =
        best.option === "none"
          ? `No cache costs least: ${usd(best.usd)} USD a month.`
          : `Cheapest: ${NAMES[best.option]}, ${usd(best.usd)} USD a month, ${digits(saved, 2)} % less than no cache.`;
      const link = make("a", { class: "cc-export", download: "tile-service-costs.csv", href: `data:text/csv;charset=utf-8,${encodeURIComponent(exportBill(costs, a, p))}` }, "Download as CSV");
      results.setAttribute("aria-busy", "false");
      results.replaceChildren(drawBars(costs), makeTable(costs, millions, {}), link, chart, makeBill(costs));
    }

    readAddress();
    window.addEventListener("hashchange", () => {
      if (!location.hash || location.hash.includes("=")) {
        readAddress();
        later();
      }
    });
    root.replaceChildren(make("div", { class: "cc-output" }, unknown, status, results, dated), form);
    update();
  }

  document.addEventListener("DOMContentLoaded", () => {
    const root = document.getElementById("cost-calculator");
    const [data, source] = ["data", "worker"].map((part) => document.getElementById(`cost-calculator-${part}`));
    if (root && data && source) start(root, JSON.parse(data.textContent), source.textContent);
  });
})();
