// The explorer: draws medians that the build has computed, and keeps what is chosen in the address.
(function () {
  "use strict";

  const FILTERS = {
    source: "Case", network: "Network", contender: "Client or contender",
    access: "What is read", layout: "Format or layout", chunks: "Bytes of a chunk", workers: "Workers", date: "Date", conditions: "Conditions",
  };
  const BY = { contender: "contender", access: "what is read", layout: "format or layout", network: "network", source: "case", chunks: "bytes of a chunk", workers: "workers", conditions: "conditions", date: "date" };
  const START = { quantity: "throughput_mb_per_s", rows: "contender", colour: "layout", source: "formats/in-region", access: "whole", log: "1" };
  // Okabe and Ito's colours, distinguished without seeing red or green.
  const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#000000", "#7a7a7a"];
  const MOST_ROWS = 60, A_PAGE = 50;

  function make(tag, text, parent, given) {
    const node = Object.assign(document.createElement(tag), given);
    if (text) node.textContent = text;
    if (parent) parent.appendChild(node);
    return node;
  }

  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).json();
  }

  function listPoints(data) {
    return data.group.map((group, i) => {
      const point = { quantity: data.quantities[data.quantity[i]], n: data.n[i], median: data.median[i], low: data.low[i], high: data.high[i] };
      Object.keys(data.words).forEach((name) => (point[name] = data.words[name][data.groups[name][group]]));
      point.access = (/^(?:access|task|part) ([^,]+)/.exec(point.conditions) || ["", ""])[1];
      return point;
    });
  }

  function tell(value) {
    return value === null ? "–" : Number(value).toLocaleString("en", { maximumSignificantDigits: 4 });
  }

  function tellInterval(point) {
    return point.low === null ? "none" : tell(point.low) + " to " + tell(point.high);
  }

  function describe(point, label) {
    const facts = [point.contender + ": " + tell(point.median) + ", " + label];
    facts.push("n " + point.n + ", 95 % interval " + tellInterval(point));
    ["layout", "network", "conditions", "source"].forEach((name) => point[name] && facts.push(point[name]));
    if (point.workers) facts.push(point.workers + " workers");
    if (point.chunk_nbytes) facts.push("chunks of " + tell(point.chunk_nbytes) + " bytes");
    facts.push(point.date);
    if (point.machine) facts.push("machine: " + point.machine);
    if (point.commit) facts.push("commit: " + point.commit.slice(0, 10));
    return facts;
  }

  // Lines from the low to the high end of each interval.
  const whiskers = {
    id: "whiskers",
    beforeDatasetsDraw(chart) {
      const { ctx, chartArea, scales } = chart;
      ctx.save();
      ctx.beginPath();
      ctx.rect(chartArea.left, chartArea.top, chartArea.width, chartArea.height);
      ctx.clip();
      chart.data.datasets.forEach((set) => set.data.forEach((one) => {
        if (one.point.low === null) return;
        const y = scales.y.getPixelForValue(one.y);
        ctx.strokeStyle = set.backgroundColor;
        ctx.lineWidth = 2;
        ctx.beginPath();
        ctx.moveTo(scales.x.getPixelForValue(one.point.low), y);
        ctx.lineTo(scales.x.getPixelForValue(one.point.high), y);
        ctx.stroke();
      }));
      ctx.restore();
    },
  };

  function start(data, place) {
    const points = listPoints(data);
    const labels = Object.fromEntries(data.quantities.map((name, i) => [name, data.labels[i]]));
    const read = () => {
      const asked = Object.fromEntries(new URLSearchParams(window.location.hash.slice(1)));
      return "quantity" in asked || "source" in asked ? asked : { ...START };
    };
    const state = read();
    let chart = null, shown = A_PAGE, at = -1;

    place.replaceChildren();
    const form = make("form", "", place);
    const selects = {};
    const addSelect = (name, title) => {
      const label = make("label", title, form);
      selects[name] = make("select", "", label, { name });
    };
    addSelect("quantity", "Quantity");
    addSelect("rows", "A row for each");
    addSelect("colour", "A colour for each");
    Object.entries(FILTERS).forEach(([name, title]) => addSelect(name, title));
    const label = make("label", "Logarithmic ", form, { className: "check" });
    const log = make("input", "", label, { type: "checkbox", name: "log" });
    const reset = make("button", "Reset", form, { type: "button" });
    const told = make("p", "", place, { className: "told" });
    told.setAttribute("role", "status");
    const legend = make("ul", "", place, { className: "legend" });
    const frame = make("div", "", place, { className: "frame" });
    const canvas = make("canvas", "", frame, { tabIndex: 0 });
    canvas.setAttribute("role", "img");
    const hint = make("p", "Left and right arrow keys go from point to point.", place, { className: "hint" });
    const detail = make("p", "", place, { className: "detail" });
    detail.setAttribute("aria-live", "polite");
    const region = make("div", "", place, { className: "rows", tabIndex: 0 });
    region.setAttribute("role", "region");
    region.setAttribute("aria-label", "What is drawn, as a table");
    const more = make("button", "Show more rows", place, { type: "button" });

    function fill(name, options, chosen) {
      selects[name].replaceChildren(...options.map(([value, text]) => {
        const option = make("option", text);
        option.value = value;
        option.selected = value === chosen;
        return option;
      }));
    }

    // Of a case alone: throughput where it has any, else what most of its points tell.
    function findUsual() {
      const counts = {};
      points.filter((one) => one.source === state.source).forEach((one) => (counts[one.quantity] = (counts[one.quantity] || 0) + 1));
      const usual = Object.keys(counts).sort((a, b) => counts[b] - counts[a])[0];
      return counts[START.quantity] || !usual ? START.quantity : usual;
    }

    // A filter offers what is left by all the others.
    function choose() {
      if (!labels[state.quantity]) state.quantity = findUsual();
      if (!BY[state.rows]) state.rows = START.rows;
      if (!BY[state.colour]) state.colour = START.colour;
      fill("quantity", data.quantities.map((name) => [name, labels[name]]), state.quantity);
      ["rows", "colour"].forEach((name) => fill(name, Object.entries(BY), state[name]));
      const here = points.filter((one) => one.quantity === state.quantity);
      const passes = (one, but) => Object.keys(FILTERS).every((name) => name === but || !state[name] || one[name] === state[name]);
      Object.keys(FILTERS).forEach((name) => {
        const found = [...new Set(here.filter((one) => passes(one, name)).map((one) => one[name]))].filter(Boolean);
        if (state[name] && !found.includes(state[name])) found.push(state[name]);
        found.sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
        fill(name, [["", "all"], ...found.map((one) => [one, one])], state[name] || "");
      });
      log.checked = state.log === "1";
      return here.filter((one) => passes(one)).sort((a, b) => b.median - a.median);
    }

    // What tells marks apart that share row and colour.
    function tellApart(drawn) {
      const first = {}, apart = new Set();
      drawn.forEach((one) => {
        const other = (first[one[state.rows] + "|" + one[state.colour]] ||= one);
        Object.keys(BY).filter((name) => one[name] !== other[name]).forEach((name) => apart.add(BY[name]));
      });
      return [...apart].join(", ");
    }

    function draw(chosen) {
      const rows = [...new Set(chosen.map((one) => one[state.rows] || "not told"))];
      const kept = rows.slice(0, MOST_ROWS);
      const colours = [...new Set(chosen.map((one) => one[state.colour] || "not told"))];
      const drawn = chosen.filter((one) => kept.includes(one[state.rows] || "not told") && (state.log !== "1" || one.median > 0));
      // Colours of one row stand below each other.
      const ofRow = {};
      drawn.forEach((one) => (ofRow[one[state.rows]] ||= new Set()).add(one[state.colour]));
      const shift = (one) => {
        const names = [...ofRow[one[state.rows]]];
        return names.length > 1 ? (names.indexOf(one[state.colour]) / (names.length - 1) - 0.5) * 0.6 : 0;
      };
      const ends = drawn.flatMap((one) => [one.median, one.low ?? one.median, one.high ?? one.median]).filter((one) => state.log !== "1" || one > 0);
      const sets = colours.map((name, i) => {
        const mine = drawn.filter((one) => (one[state.colour] || "not told") === name);
        return {
          label: name, backgroundColor: COLOURS[Math.min(i, COLOURS.length - 1)], pointRadius: 4, pointHoverRadius: 7,
          data: mine.map((one) => ({ x: one.median, y: kept.indexOf(one[state.rows] || "not told") + shift(one), point: one })),
        };
      });
      const notes = [chosen.length + " medians of " + labels[state.quantity]];
      const apart = tellApart(drawn);
      if (apart) notes.push("several marks in one row and colour differ in " + apart);
      if (rows.length > kept.length) notes.push("drawn are the " + kept.length + " rows with the largest of " + rows.length);
      if (colours.length > COLOURS.length) notes.push("further colours are grey");
      told.textContent = notes.join("; ") + ".";
      legend.replaceChildren();
      sets.slice(0, COLOURS.length).forEach((set) => {
        const item = make("li", "", legend);
        make("span", "", item).style.background = set.backgroundColor;
        item.append(set.label);
      });
      const crowd = Math.max(1, ...Object.values(ofRow).map((names) => names.size));
      frame.style.height = Math.max(180, 70 + Math.max(24, 9 * crowd) * kept.length) + "px";
      const narrow = frame.clientWidth < 500;
      const cut = (text) => (text.length > (narrow ? 18 : 44) ? text.slice(0, narrow ? 17 : 43) + "…" : text);
      const unit = labels[state.quantity];
      canvas.setAttribute("aria-label", "Medians of " + unit + " for each " + BY[state.rows] + "; the table below has the same.");
      if (chart) chart.destroy();
      at = -1;
      detail.textContent = "";
      chart = new Chart(canvas, {
        type: "scatter",
        data: { datasets: sets },
        plugins: [whiskers],
        options: {
          animation: false, responsive: true, maintainAspectRatio: false,
          scales: {
            x: { type: state.log === "1" ? "logarithmic" : "linear", min: state.log === "1" ? 0.85 * Math.min(...ends) : undefined, max: state.log === "1" ? 1.15 * Math.max(...ends) : undefined, beginAtZero: state.log !== "1", title: { display: true, text: unit, font: { size: 13 } }, ticks: { font: { size: 12 }, maxRotation: 0, callback: (value) => (state.log !== "1" || /^[125]e/.test(Number(value).toExponential()) ? tell(value) : "") } },
            y: { type: "linear", reverse: true, min: -0.6, max: kept.length - 0.4, afterBuildTicks: (axis) => (axis.ticks = kept.map((_, value) => ({ value }))), ticks: { font: { size: 12 }, autoSkip: false, callback: (value) => cut(kept[value] || "") } },
          },
          // On a phone the facts stand below: over the drawing they would hide it.
          onHover: (_, items) => narrow && items.length && tellPoint(sets[items[0].datasetIndex].data[items[0].index].point),
          plugins: { legend: { display: false }, tooltip: { enabled: !narrow, callbacks: { label: (item) => describe(item.raw.point, unit) } } },
        },
      });
    }

    function tellPoint(point) {
      detail.textContent = describe(point, labels[state.quantity]).join("; ");
    }

    // Columns in which all rows are alike stand above the table once.
    function list(chosen) {
      const hasPage = (one) => document.querySelector(`.bd-article a[href="notebooks/${one.source}.html"]`);
      const columns = [
        ["contender", (one) => one.contender], [labels[state.quantity], (one) => tell(one.median)], ["95 % interval", tellInterval], ["n", (one) => String(one.n)],
        ...["conditions", "layout", "network", "workers"].map((name) => [BY[name], (one) => one[name]]),
        ["bytes of a chunk", (one) => one.chunk_nbytes && tell(one.chunk_nbytes)], ["date", (one) => one.date], [BY.source, (one) => one.source], ["machine", (one) => one.machine], ["commit", (one) => one.commit.slice(0, 10)],
      ];
      const isSame = ([, read], i) => i > 3 && chosen.length > 1 && chosen.every((one) => read(one) === read(chosen[0]));
      const same = columns.filter(isSame), varied = columns.filter((column) => !same.includes(column));
      const table = make("table", "");
      const known = same.filter(([, read]) => read(chosen[0])).map(([head, read]) => head + " " + read(chosen[0]));
      const head = make("tr", "", make("thead", "", table));
      varied.forEach(([text]) => (make("th", text, head).scope = "col"));
      const body = make("tbody", "", table);
      chosen.slice(0, shown).forEach((one) => {
        const row = make("tr", "", body);
        varied.forEach(([text, read], i) => {
          const isLink = text === BY.source && hasPage(one);
          const cell = make(i ? "td" : "th", isLink ? "" : read(one) || "–", row);
          if (isLink) make("a", one.source, cell).href = `notebooks/${one.source}.html`;
          if (i) cell.dataset.head = text;
          else cell.scope = "row";
        });
      });
      region.replaceChildren(table);
      if (known.length) region.prepend(make("p", "The same in all rows: " + known.join("; ") + "."));
      more.hidden = chosen.length <= shown;
      more.textContent = "Show more rows: " + Math.min(shown, chosen.length) + " of " + chosen.length;
    }

    let chosen = [];
    function update() {
      chosen = choose();
      draw(chosen);
      list(chosen);
    }

    function keep() {
      const told = Object.entries(state).filter(([, value]) => value);
      window.history.replaceState(null, "", "#" + new URLSearchParams(told));
      shown = A_PAGE;
      update();
    }

    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("change", (event) => {
      const { name, value, checked } = event.target;
      state[name] = name === "log" ? (checked ? "1" : "") : value;
      keep();
    });
    reset.addEventListener("click", () => {
      Object.keys(state).forEach((name) => delete state[name]);
      Object.assign(state, START);
      keep();
    });
    more.addEventListener("click", () => {
      shown += A_PAGE;
      list(chosen);
    });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const all = chart.data.datasets.flatMap((set, datasetIndex) => set.data.map((one, index) => ({ datasetIndex, index, one })));
      if (!step || !all.length) return;
      event.preventDefault();
      all.sort((a, b) => a.one.y - b.one.y || a.one.x - b.one.x);
      at = (at + step + all.length) % all.length;
      const { datasetIndex, index, one } = all[at];
      chart.setActiveElements([{ datasetIndex, index }]);
      chart.tooltip.setActiveElements([{ datasetIndex, index }], { x: 0, y: 0 });
      chart.update();
      tellPoint(one.point);
    });
    window.addEventListener("hashchange", () => {
      Object.keys(state).forEach((name) => delete state[name]);
      Object.assign(state, read());
      update();
    });
    update();
  }

  function begin() {
    const place = document.getElementById("explorer-place");
    if (!place || !globalThis.EXPLORER) return;
    unpack(globalThis.EXPLORER).then((data) => start(data, place));
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
