/* The waterfall of a trace: one row a request, from the columns that `wire.trace.page` writes.

It needs nothing but a browser. `wireWaterfall.mount(element, trace)` puts it into any element, under
a shadow root, so that the style sheets of a notebook or a book do not reach it. An element
with `data-wire-waterfall` that holds its trace as JSON is mounted by itself; what else is in
that element, a table, is what a reader without scripts sees. */
(() => {
"use strict";

const STYLE = `
:host{display:block;--paper:#fff;--ink:#1f2328;--soft:#59636e;--rule:#d1d9e0;--plate:#f6f8fa;--accent:#0969da;
--setup:#8250df;--wait:#d99100;--body:#0a6db8;--fail:#c6262e;
font:15px/1.45 system-ui,-apple-system,"Segoe UI",sans-serif;color:var(--ink);background:var(--paper)}
:host([data-dark]){--paper:#0f1419;--ink:#e6edf3;--soft:#9da7b3;--rule:#39424c;--plate:#1a2129;--accent:#58a6ff;
--setup:#bc8cff;--wait:#e3a72f;--body:#4fa9ec;--fail:#ff7b72}
*{box-sizing:border-box}
button,select,input{font:inherit;color:inherit;background:var(--paper);border:1px solid var(--rule);border-radius:6px;padding:.2rem .5rem;min-height:2rem}
button{cursor:pointer}button:hover{background:var(--plate)}
button[aria-pressed=true]{border-color:var(--accent);box-shadow:inset 0 0 0 1px var(--accent)}
:focus-visible{outline:2px solid var(--accent);outline-offset:1px}
h3{font-size:.95rem;margin:1rem 0 .3rem}
.bar{display:flex;flex-wrap:wrap;gap:.35rem;align-items:center;margin:.5rem 0}
.bar input{flex:1 1 11rem;min-width:8rem}.bar select{max-width:14rem}
.keys{display:flex;flex-wrap:wrap;gap:.1rem 1rem;list-style:none;margin:.3rem 0;padding:0;font-size:.85rem;color:var(--soft)}
.keys i{display:inline-block;width:1.2em;height:.7em;margin-right:.35em;vertical-align:baseline}
.keys i.thin{height:.28em;vertical-align:.2em}
ol.sites,ol.causes{list-style:none;margin:.3rem 0;padding:0;display:grid;gap:.25rem}
.sites button,.causes button{width:100%;text-align:left;display:grid;gap:.1rem .6rem;align-items:center;grid-template-columns:.8rem minmax(9rem,26rem) minmax(4rem,1fr) 15rem}
.causes button{grid-template-columns:auto 1fr auto}
.sites .name{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.sites .name code{color:var(--soft)}
.sites .swatch{width:.8rem;height:1.1rem;border-radius:2px}
.sites .time{display:flex;height:.7rem;background:var(--plate)}
.sites .time i{height:100%}
.sites .sum{text-align:right}.sites .sum,.causes .sum{font-variant-numeric:tabular-nums;color:var(--soft);white-space:nowrap}
code{font-family:ui-monospace,SFMono-Regular,Menlo,monospace;font-size:.88em}
.plot{position:relative;border:1px solid var(--rule);border-radius:6px;overflow:hidden}
canvas{display:block;width:100%;touch-action:pan-y;cursor:crosshair}
canvas.map{cursor:grab;border-bottom:1px solid var(--rule)}
.tip{position:absolute;z-index:2;max-width:min(28rem,94%);background:var(--paper);border:1px solid var(--rule);border-radius:6px;padding:.35rem .55rem;font-size:.82rem;pointer-events:none;box-shadow:0 2px 10px #0004;overflow-wrap:anywhere}
.tip b{display:block}
.note{font-size:.85rem;color:var(--soft);margin:.2rem 0}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.85rem;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .5rem;border-bottom:1px solid var(--rule);text-align:right;white-space:nowrap}
th button{border:0;padding:0;min-height:0;font-weight:600;background:none}
td.text,th.text{text-align:left}td.key{text-align:left;white-space:normal;overflow-wrap:anywhere;min-width:14rem}
tr[aria-selected=true]{background:var(--plate);outline:1px solid var(--accent)}
.hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
summary{cursor:pointer;padding:.3rem 0}
@media (max-width:640px){
.sites button{grid-template-columns:.8rem 1fr}.sites .time,.sites .sum{grid-column:2}.sites .sum{white-space:normal;text-align:left}.sites .name{white-space:normal;overflow-wrap:anywhere}
.causes button{grid-template-columns:auto 1fr}.causes .sum{grid-column:2}
.bar select{max-width:none;flex:1 1 8rem}}
@media print{.bar,.tip{display:none}}
`;
const HUES = [["#1b7f79", "#3fbfb6"], ["#a3446f", "#e08bb0"], ["#5a6c1e", "#a8bd5c"], ["#7a4b9d", "#c09be0"], ["#94561c", "#dca066"], ["#2f5fa8", "#85aef0"], ["#6b6b6b", "#b0b0b0"]];
const AXIS = 22, MAP = 30, READABLE = 13, MOST_ROWS = 150, PAGE = 100;

const seconds = (us) => us >= 1e9 ? `${count(Math.round(us / 1e6))} s` : us >= 1e6 ? `${(us / 1e6).toPrecision(3)} s` : us >= 1e3 ? `${(us / 1e3).toPrecision(3)} ms` : `${Math.round(us)} µs`;
const plain = (value) => value >= 100 ? Math.round(value).toLocaleString("en") : value.toPrecision(3).replace(/\.?0+$/, "");
const size = (n) => n >= 1e9 ? `${plain(n / 1e9)} GB` : n >= 1e6 ? `${plain(n / 1e6)} MB` : n >= 1e3 ? `${plain(n / 1e3)} kB` : `${n} B`;
const count = (n) => n.toLocaleString("en");

/* Columns as they are sent become arrays: a column of one value is sent as that value. */
function unpack(trace) {
  const n = trace.n, whole = (column) => typeof column === "object" ? column : new Array(n).fill(column);
  const begin = new Float64Array(n), setup = Float64Array.from(whole(trace.setup)), wait = Float64Array.from(whole(trace.wait));
  const body = Float64Array.from(whole(trace.body)), end = new Float64Array(n), steps = whole(trace.start);
  for (let i = 0, now = 0; i < n; i++) { now += steps[i]; begin[i] = now; end[i] = now + setup[i] + wait[i] + body[i]; }
  const table = {n, begin, setup, wait, body, end};
  for (const name of ["method", "kind", "host", "status", "bytes", "line", "cause", "from"]) table[name] = Float64Array.from(whole(trace[name] ?? (name === "cause" ? 0 : -1)));
  const shared = whole(trace.shared), rest = whole(trace.rest);
  const keys = table.keys = new Array(n);
  for (let i = 0, last = ""; i < n; i++) keys[i] = last = last.slice(0, shared[i]) + rest[i];
  return table;
}

/* Sum up each line of the program: the time in which any of its requests was under way, by what it was. */
function sumUp(table, nLines) {
  const rows = Array.from({length: nLines + 1}, () => []);
  for (let i = 0; i < table.n; i++) rows[table.line[i] < 0 ? nLines : table.line[i]].push(i);
  return rows.map((places, line) => {
    const events = [];
    let bytes = 0;
    for (const i of places) {
      const a = table.begin[i], b = a + table.setup[i], c = b + table.wait[i], d = table.end[i];
      bytes += table.bytes[i];
      if (b > a) events.push([a, 0, 1], [b, 0, -1]);
      if (c > b) events.push([b, 1, 1], [c, 1, -1]);
      if (d > c) events.push([c, 2, 1], [d, 2, -1]);
    }
    events.sort((x, y) => x[0] - y[0]);
    const active = [0, 0, 0], spent = [0, 0, 0];
    let last = 0;
    for (const [time, what, step] of events) {
      const turn = active[2] ? 2 : active[1] ? 1 : active[0] ? 0 : -1;
      if (turn >= 0) spent[turn] += time - last;
      active[what] += step;
      last = time;
    }
    return {line, n: places.length, bytes, spent, total: spent[0] + spent[1] + spent[2], first: places.length ? table.begin[places[0]] : 0};
  }).filter((sum) => sum.n).sort((x, y) => y.total - x.total);
}

/* Put the requests of each line of the program into as few lanes as hold them without overlap. */
function packLanes(table, nLines) {
  const lane = new Int32Array(table.n), ends = Array.from({length: nLines + 1}, () => []);
  for (let i = 0; i < table.n; i++) {
    const free = ends[table.line[i] < 0 ? nLines : table.line[i]];
    let at = 0;
    while (at < free.length && free[at] > table.begin[i]) at++;
    free[at] = table.end[i];
    lane[i] = at;
  }
  return {lane, nLanes: ends.map((free) => free.length)};
}

function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key in element && key !== "list") element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

function isDark() {
  const root = document.documentElement, theme = root.dataset.theme || root.dataset.mode;
  if (theme === "dark" || theme === "light") return theme === "dark";
  if (document.body?.dataset.jpThemeLight) return document.body.dataset.jpThemeLight === "false";
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

function mount(host, trace) {
  const table = unpack(trace), n = table.n, lines = trace.lines ?? [], causes = trace.causes ?? [];
  const {lane, nLanes} = packLanes(table, lines.length), lineOf = (i) => table.line[i] < 0 ? lines.length : table.line[i];
  const concerns = (i, cause) => (table.cause[i] >> cause) & 1;
  const sums = sumUp(table, lines.length), rankOf = new Map(sums.map((sum, rank) => [sum.line, rank]));
  const lineName = (line) => line < 0 || line >= lines.length ? "line not known" : lines[line].name;
  let whole = Math.max(trace.wall ?? 0, 1);
  for (let i = 0; i < n; i++) whole = Math.max(whole, table.end[i]);
  const state = {from: 0, until: whole, line: null, cause: null, kind: "", text: "", view: "auto", scroll: 0, chosen: -1, page: 0, sort: "begin", isDown: false};
  const low = table.keys.map((key) => key.toLowerCase());

  const root = host.shadowRoot ?? host.attachShadow({mode: "open"});
  const say = make("div", {className: "hidden", "aria-live": "polite"});
  const map = make("canvas", {className: "map", "aria-hidden": "true"});
  const canvas = make("canvas", {tabIndex: 0, role: "img", "aria-describedby": "help"});
  const tip = make("div", {className: "tip", hidden: true});
  const note = make("p", {className: "note"});
  const button = (text, label, act) => make("button", {type: "button", textContent: text, title: label, "aria-label": label, onclick: act});
  const views = make("select", {"aria-label": "how requests are drawn", onchange: () => { state.view = views.value; state.scroll = 0; draw(); }},
    ...[["auto", "rows or lanes, as fits"], ["rows", "one row a request"], ["tall", "tall rows, to scroll"], ["lanes", "lanes by line"]].map(([value, textContent]) => make("option", {value, textContent})));
  const search = make("input", {type: "search", placeholder: "filter: part of a key, a method, a status", "aria-label": "filter requests", oninput: () => { state.text = search.value.trim().toLowerCase(); select(); }});
  const kinds = make("select", {"aria-label": "kind of object", onchange: () => { state.kind = kinds.value; select(); }},
    make("option", {value: "", textContent: "all kinds"}), ...trace.kinds.map((kind, i) => make("option", {value: String(i), textContent: kind})));
  const body = make("tbody"), head = make("tr"), pages = make("div", {className: "bar"});
  const sites = make("ol", {className: "sites"}), marks = make("ol", {className: "causes"});

  for (const sum of sums) {
    const name = make("span", {className: "name", title: lineName(sum.line)}, lineName(sum.line));
    if (lines[sum.line]?.code) name.append(" ", make("code", {textContent: lines[sum.line].code}));
    const bar = make("span", {className: "time"});
    ["setup", "wait", "body"].forEach((kind, i) => bar.append(make("i", {style: `width:${100 * sum.spent[i] / sums[0].total || 0}%;background:var(--${kind})`})));
    const swatch = make("span", {className: "swatch"});
    swatch.dataset.rank = rankOf.get(sum.line);
    sites.append(make("li", {}, make("button", {type: "button", "aria-pressed": "false", onclick: (event) => {
      state.line = state.line === sum.line ? null : sum.line;
      for (const other of sites.querySelectorAll("button")) other.setAttribute("aria-pressed", other === event.currentTarget && state.line !== null);
      select();
    }}, swatch, name, bar, make("span", {className: "sum", textContent: `${seconds(sum.total)}, ${count(sum.n)} requests, ${size(sum.bytes)}`}))));
  }
  causes.forEach((cause, number) => {
    let nMarked = 0;
    for (let i = 0; i < n; i++) nMarked += concerns(i, number);
    if (!nMarked) return;
    marks.append(make("li", {}, make("button", {type: "button", "aria-pressed": "false", onclick: (event) => {
      state.cause = state.cause === number ? null : number;
      for (const other of marks.querySelectorAll("button")) other.setAttribute("aria-pressed", other === event.currentTarget && state.cause !== null);
      draw();
    }}, make("b", {textContent: String(number + 1)}), make("span", {textContent: cause.title}), make("span", {className: "sum", textContent: `${count(nMarked)} requests marked`}))));
  });

  const details = make("details", {open: n <= 200}, make("summary", {textContent: "Table of the requests"}),
    make("div", {className: "wide"}, make("table", {}, make("thead", {}, head), body)), pages);
  details.addEventListener("toggle", () => fill());
  root.replaceChildren(
    make("style", {textContent: STYLE}),
    ...(lines.length ? [make("h3", {textContent: "Lines of the program"}), sites] : []),
    ...(marks.children.length ? [make("h3", {textContent: "Causes: choose one to mark its requests"}), marks] : []),
    make("div", {className: "bar"}, search, kinds,
      button("−", "zoom out", () => zoom(2)), button("+", "zoom in", () => zoom(0.5)), button("◀", "earlier", () => pan(-0.25)), button("▶", "later", () => pan(0.25)),
      button("Fit", "Fit: show all", fit), views),
    make("ul", {className: "keys"}, ...[["setup", "connection set up"], ["wait", "latency: waiting for the first byte"], ["body", "body arriving"], ["fail", "failed"]].map(([name, text]) => make("li", {}, make("i", {style: `background:var(--${name})`}), text)),
      make("li", {}, make("i", {className: "thin", style: "background:var(--wait)"}), "HEAD")),
    make("div", {className: "plot"}, map, canvas, tip), note,
    make("p", {className: "note", id: "help", textContent: "Drag to move, Ctrl and wheel or two fingers to zoom. Keys: + and − zoom, left and right move, up and down read one request after the other, 0 shows all, Enter finds it in the table. In lanes, height is the share of time."}),
    say, details);

  /* what is shown */
  let order = new Uint32Array(0), shown = new Uint32Array(0), nShown = 0;
  function select() {
    const fits = new Uint32Array(n), kind = state.kind === "" ? -1 : Number(state.kind), text = state.text;
    let m = 0;
    for (let i = 0; i < n; i++) {
      if (kind >= 0 && table.kind[i] !== kind) continue;
      if (state.line !== null && (table.line[i] < 0 ? lines.length : table.line[i]) !== state.line) continue;
      if (text && !low[i].includes(text) && String(table.status[i]) !== text && trace.methods[table.method[i]].toLowerCase() !== text && !lineName(table.line[i]).toLowerCase().includes(text)) continue;
      fits[m++] = i;
    }
    order = fits.subarray(0, m);
    state.page = state.scroll = 0;
    state.chosen = -1;
    tip.hidden = true;
    draw();
  }

  function look() {
    if (shown.length < order.length) shown = new Uint32Array(order.length);
    nShown = 0;
    for (const i of order) if (table.end[i] >= state.from && table.begin[i] <= state.until) shown[nShown++] = i;
  }

  /* the picture */
  const colours = {};
  let width = 0, height = 0, scale = 1, gutter = 8, rowHeight = 1, isLanes = false, sections = [];
  function measure() {
    const dark = isDark();
    host.toggleAttribute("data-dark", dark);
    const style = getComputedStyle(host);
    for (const name of ["paper", "ink", "soft", "rule", "plate", "accent", "setup", "wait", "body", "fail"]) colours[name] = style.getPropertyValue(`--${name}`).trim();
    colours.hue = (line) => HUES[(rankOf.get(line < 0 ? lines.length : line) ?? 6) % HUES.length][dark ? 1 : 0];
    for (const swatch of sites.querySelectorAll(".swatch")) swatch.style.background = HUES[swatch.dataset.rank % HUES.length][dark ? 1 : 0];
    scale = Math.min(devicePixelRatio || 1, 2);
    width = Math.max(canvas.parentElement.clientWidth, 200);
    height = AXIS + Math.min(width < 640 ? 380 : 520, Math.max(120, Math.min(n, 60) * 10));
    gutter = lines.length ? (width > 560 ? Math.min(190, width / 4.5) : 8) : 0;
    for (const [one, tall] of [[canvas, height], [map, MAP]]) {
      one.width = Math.round(width * scale);
      one.height = Math.round(tall * scale);
      one.style.height = `${tall}px`;
    }
  }
  const x = (time) => gutter + (time - state.from) / (state.until - state.from) * (width - gutter);
  const timeAt = (px) => state.from + (px - gutter) / (width - gutter) * (state.until - state.from);

  let pending = 0;
  function draw() {
    if (pending) return;
    pending = requestAnimationFrame(() => { pending = 0; paint(); fill(); });
  }

  function paint() {
    measure();
    look();
    const pen = canvas.getContext("2d"), tall = height - AXIS;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.fillStyle = colours.paper;
    pen.fillRect(0, 0, width, height);
    isLanes = state.view === "lanes" || (state.view === "auto" && nShown > MOST_ROWS);
    rowHeight = Math.min(18, tall / Math.max(nShown, 1));
    if (state.view === "tall") rowHeight = Math.max(rowHeight, READABLE);
    state.scroll = isLanes ? 0 : Math.max(0, Math.min(state.scroll, nShown * rowHeight - tall));
    paintAxis(pen);
    if (isLanes) paintLanes(pen, tall);
    else if (rowHeight * scale < 1.5) paintBins(pen, tall);
    else paintRows(pen, tall);
    if (!isLanes) paintBands(pen, tall);
    paintMap();
    canvas.setAttribute("aria-label", `Waterfall of ${count(nShown)} of ${count(n)} requests, from ${seconds(state.from)} to ${seconds(state.until)}`);
    const rest = order.length < n ? `, ${count(n - order.length)} filtered out` : "";
    const left = trace.total > n ? ` The page holds ${count(n)} of ${count(trace.total)} requests.` : "";
    note.textContent = `${count(nShown)} of ${count(n)} requests in this window${rest}.${left}`;
  }

  function paintAxis(pen) {
    const span = state.until - state.from, most = Math.max(2, Math.floor((width - gutter) / 90));
    let step = 10 ** Math.ceil(Math.log10(span / most));
    for (const part of [5, 2]) if (span / (step / part) <= most) { step /= part; break; }
    pen.font = "11px system-ui,sans-serif";
    pen.textBaseline = "middle";
    const unit = step >= 1e6 || state.until >= 1e7 ? [1e6, " s"] : [1e3, " ms"];
    const digits = Math.max(0, -Math.floor(Math.log10(step / unit[0]) + 1e-9));
    for (let tick = Math.ceil(state.from / step) * step; tick <= state.until; tick += step) {
      const px = x(tick);
      pen.fillStyle = colours.rule;
      pen.fillRect(px, AXIS - 5, 1, height);
      pen.fillStyle = colours.soft;
      const text = (tick / unit[0]).toFixed(digits) + unit[1], wide = pen.measureText(text).width;
      if (px + 3 + wide < width) pen.fillText(text, px + 3, AXIS / 2);
    }
  }

  function paintRows(pen, tall) {
    const first = Math.floor(state.scroll / rowHeight), last = Math.min(nShown, Math.ceil((state.scroll + tall) / rowHeight));
    const gap = rowHeight > 4 ? 1 : 0;
    pen.save();
    pen.beginPath();
    pen.rect(gutter, AXIS, width - gutter, tall);
    pen.clip();
    for (let place = first; place < last; place++) {
      const i = shown[place], top = AXIS + place * rowHeight - state.scroll, isHead = trace.methods[table.method[i]] === "HEAD";
      const thick = Math.max(rowHeight - gap, 1 / scale), bar = isHead ? Math.max(thick * 0.45, 1 / scale) : thick, y = top + (thick - bar) / 2;
      pen.globalAlpha = state.cause !== null && !concerns(i, state.cause) ? 0.18 : 1;
      let time = table.begin[i];
      for (const kind of ["setup", "wait", "body"]) {
        const span = table[kind][i];
        if (span > 0) {
          const a = x(time), wide = Math.max(x(time + span) - a, 0.75);
          if (a < width && a + wide > gutter) { pen.fillStyle = colours[kind]; pen.fillRect(a, y, wide, bar); }
        }
        time += span;
      }
      if (table.begin[i] === table.end[i]) { pen.fillStyle = colours.wait; pen.fillRect(x(time), y, 1, bar); }
      if (!table.status[i] || table.status[i] >= 400) { pen.fillStyle = colours.fail; pen.fillRect(x(time) - 1.5, top, 3, thick); }
      pen.globalAlpha = 1;
      if (state.cause !== null && concerns(i, state.cause) && rowHeight > 5) { pen.fillStyle = colours.ink; pen.fillRect(Math.max(gutter, x(table.begin[i]) - 5), top + thick / 2 - 1.5, 3, 3); }
      if (place === chosenPlace()) { pen.strokeStyle = colours.accent; pen.lineWidth = 2; pen.strokeRect(gutter + 1, top, width - gutter - 2, thick); }
    }
    pen.restore();
  }

  /* Several requests to a line of pixels: what each pixel shows is the last of set-up, latency and body that any of them did there. */
  function paintBins(pen, tall) {
    const wide = canvas.width, deep = Math.round(tall * scale), left = Math.round(gutter * scale), top = Math.round(AXIS * scale);
    const what = new Uint8Array(wide * deep), span = state.until - state.from, per = (wide - left) / span;
    for (let place = 0; place < nShown; place++) {
      const i = shown[place], y = Math.min(deep - 1, Math.floor(place * deep / nShown)) * wide;
      const dim = state.cause !== null && !concerns(i, state.cause) ? 0 : 4;
      let time = table.begin[i];
      for (let kind = 0; kind < 3; kind++) {
        const next = time + (kind === 0 ? table.setup[i] : kind === 1 ? table.wait[i] : table.body[i]);
        if (next > time) {
          const a = Math.max(left, Math.floor(left + (time - state.from) * per)), b = Math.min(wide - 1, Math.floor(left + (next - state.from) * per));
          for (let px = a; px <= b; px++) if (what[y + px] < dim + kind + 1) what[y + px] = dim + kind + 1;
        }
        time = next;
      }
      if (!table.status[i] || table.status[i] >= 400) {
        const px = Math.floor(left + (time - state.from) * per);
        if (px >= left && px < wide) what[y + px] = Math.max(what[y + px], dim + 4);
      }
    }
    const image = pen.getImageData(0, top, wide, deep), data = image.data, base = rgb(colours.paper);
    const palette = [null, ...["setup", "wait", "body", "fail"].map((name) => mix(rgb(colours[name]), base, 0.22)), ...["setup", "wait", "body", "fail"].map((name) => rgb(colours[name]))];
    for (let at = 0; at < what.length; at++) {
      if (!what[at]) continue;
      const [r, g, b] = palette[what[at]];
      data[4 * at] = r; data[4 * at + 1] = g; data[4 * at + 2] = b; data[4 * at + 3] = 255;
    }
    pen.putImageData(image, 0, top);
  }
  const rgb = (text) => [1, 3, 5].map((at) => parseInt((text.length === 4 ? `#${[...text.slice(1)].map((c) => c + c).join("")}` : text).slice(at, at + 2), 16));
  const mix = (one, other, share) => one.map((value, i) => Math.round(value * share + other[i] * (1 - share)));

  /* A band for each line of the program, in the order in which they first asked; in it a lane for each concurrent request.
  In a pixel of a lane each kind of time has as much of the height as it has of the time. Where lanes are too low
  to tell apart, the band shows how many requests did what. */
  function paintLanes(pen, tall) {
    const found = new Map();
    for (let place = 0; place < nShown; place++) {
      const line = lineOf(shown[place]);
      if (!found.has(line)) found.set(line, []);
      found.get(line).push(shown[place]);
    }
    const gap = found.size > 1 ? 5 : 0, least = Math.min(30, tall / found.size - gap), free = tall - found.size * (least + gap);
    const weight = (line) => Math.sqrt(nLanes[line]), all = [...found.keys()].reduce((sum, line) => sum + weight(line), 0);
    const wide = canvas.width, left = Math.round(gutter * scale), per = (wide - left) / (state.until - state.from);
    let top = AXIS;
    sections = [];
    for (const [line, rows] of found) {
      const deep = least + free * weight(line) / all, isMerged = deep * scale / nLanes[line] < 4, n = isMerged ? 1 : nLanes[line];
      sections.push({line, top, deep, n, rows});
      const spent = new Float32Array(n * wide * 8);
      for (const i of rows) {
        const base = (isMerged ? 0 : lane[i]) * wide, dim = state.cause !== null && !concerns(i, state.cause) ? 0 : 4;
        const isFailed = !table.status[i] || table.status[i] >= 400;
        let time = table.begin[i];
        for (let kind = 0; kind < 3; kind++) {
          const next = time + (kind === 0 ? table.setup[i] : kind === 1 ? table.wait[i] : table.body[i]);
          const a = Math.max(0, (time - state.from) * per), b = Math.min(wide - left, (next - state.from) * per), slot = dim + (isFailed ? 3 : kind);
          for (let px = Math.floor(a); px < b; px++) spent[8 * (base + left + px) + slot] += Math.min(b, px + 1) - Math.max(a, px);
          time = next;
        }
      }
      const lanes = isMerged ? nLanes[line] : 1, unit = deep / n;
      ["body", "wait", "setup", "fail"].forEach((name, order) => {
        const kind = [2, 1, 0, 3][order];
        for (const bright of [4, 0]) {
          pen.fillStyle = colours[name];
          pen.globalAlpha = bright ? 1 : 0.2;
          for (let at = 0; at < n; at++) for (let px = left; px < wide; px++) {
            const cell = 8 * (at * wide + px), value = spent[cell + bright + kind];
            if (!value) continue;
            let below = 0;
            for (const [k, b] of STACK) { if (k === kind && b === bright) break; below += spent[cell + b + k]; }
            const room = Math.max(unit - (n > 1 && unit > 4 ? 1 : 0), 1 / scale), y = top + (at + 1) * unit - (unit - room) / 2;
            pen.fillRect(px / scale, y - (below + value) / lanes * room, 1 / scale, value / lanes * room);
          }
        }
      });
      pen.globalAlpha = 1;
      if (lines.length) {
        pen.fillStyle = colours.hue(line);
        pen.fillRect(0, top, gutter > 8 ? 5 : 6, deep);
        pen.fillStyle = colours.rule;
        if (gap) pen.fillRect(0, top + deep + 2, width, 1);
        if (gutter > 8 && deep > 11) {
          pen.font = "11px ui-monospace,Menlo,monospace";
          pen.textBaseline = "middle";
          pen.fillStyle = colours.ink;
          pen.fillText(shorten(pen, lineName(line)), 9, top + Math.min(deep / 2, 9));
          pen.fillStyle = colours.soft;
          pen.font = "11px system-ui,sans-serif";
          if (deep > 26) pen.fillText(nLanes[line] === 1 ? "one at a time" : `up to ${nLanes[line]} at once`, 9, top + 23);
        }
      }
      if (state.chosen >= 0 && lineOf(state.chosen) === line && rows.includes(state.chosen)) {
        pen.strokeStyle = colours.accent;
        pen.lineWidth = 2;
        const a = Math.max(gutter, x(table.begin[state.chosen])), at = isMerged ? 0 : lane[state.chosen];
        pen.strokeRect(a - 1, top + at * unit, Math.max(4, Math.min(width, x(table.end[state.chosen])) - a + 2), unit);
      }
      top += deep + gap;
    }
    if (gutter) { pen.fillStyle = colours.rule; pen.fillRect(gutter - 1, 0, 1, height); }
  }
  const STACK = [2, 1, 0, 3].flatMap((kind) => [[kind, 4], [kind, 0]]);
  function shorten(pen, name) {
    let text = name;
    while (text.length > 4 && pen.measureText(text).width > gutter - 14) text = `…${text.slice(text.startsWith("…") ? 2 : 1)}`;
    return text;
  }

  /* Beside the rows: which line of the program they belong to. */
  function paintBands(pen, tall) {
    if (!gutter) return;
    pen.font = "11px ui-monospace,Menlo,monospace";
    pen.textBaseline = "middle";
    const least = 13, first = Math.floor(state.scroll / rowHeight), last = Math.min(nShown, Math.ceil((state.scroll + tall) / rowHeight));
    let free = AXIS;
    for (let place = first; place < last;) {
      const line = table.line[shown[place]];
      let next = place + 1;
      while (next < last && table.line[shown[next]] === line) next++;
      const top = AXIS + place * rowHeight - state.scroll, deep = (next - place) * rowHeight;
      pen.fillStyle = colours.hue(line);
      pen.fillRect(0, top, gutter > 8 ? 5 : 6, Math.max(deep - (deep > 3 ? 1 : 0), 0.5));
      if (gutter > 8 && deep >= least && top + deep > AXIS) {
        const text = shorten(pen, lineName(line));
        const y = Math.max(top + 7, free + 6);
        if (y < top + deep) { pen.fillStyle = colours.ink; pen.fillText(text, 9, y); free = y + 7; }
      }
      place = next;
    }
    pen.fillStyle = colours.rule;
    pen.fillRect(gutter - 1, 0, 1, height);
  }

  /* Above: the whole trace, how many requests were under way, and the window. */
  let density = null;
  function paintMap() {
    const pen = map.getContext("2d"), wide = Math.max(1, Math.round(width - gutter));
    if (!density || density.length !== wide) {
      const edges = new Float64Array(wide + 1);
      for (let i = 0; i < n; i++) { edges[Math.min(wide - 1, Math.floor(table.begin[i] / whole * wide))]++; edges[Math.min(wide, Math.floor(table.end[i] / whole * wide) + 1)]--; }
      density = new Float64Array(wide);
      for (let px = 0, now = 0; px < wide; px++) density[px] = now += edges[px];
    }
    let most = 1;
    for (const value of density) most = Math.max(most, value);
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.fillStyle = colours.plate;
    pen.fillRect(0, 0, width, MAP);
    pen.fillStyle = colours.soft;
    density.forEach((value, px) => { const tall = Math.sqrt(value / most) * (MAP - 6); pen.fillRect(gutter + px, MAP - tall, 1, tall); });
    const a = gutter + state.from / whole * wide, b = gutter + state.until / whole * wide;
    pen.strokeStyle = colours.accent;
    pen.lineWidth = 2;
    pen.strokeRect(a + 1, 1, Math.max(b - a - 2, 3), MAP - 2);
    if (gutter > 8) { pen.font = "11px system-ui,sans-serif"; pen.textBaseline = "middle"; pen.fillStyle = colours.soft; pen.fillText("concurrent requests", 9, MAP / 2); }
  }

  /* moving about */
  function limit(from, until) {
    const least = Math.max(whole / 1e6, 20), span = Math.min(Math.max(until - from, least), whole);
    state.from = Math.min(Math.max(0, from), whole - span);
    state.until = state.from + span;
    draw();
  }
  function zoom(factor, at = (state.from + state.until) / 2) { limit(at - (at - state.from) * factor, at + (state.until - at) * factor); }
  function pan(share) { const by = share * (state.until - state.from); limit(state.from + by, state.until + by); }
  function fit() { state.scroll = 0; limit(0, whole); }

  canvas.addEventListener("wheel", (event) => {
    const isSideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY), by = event.deltaY || event.deltaX;
    const canScroll = !isLanes && nShown * rowHeight - (height - AXIS) > 1;
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(Math.max(-50, Math.min(50, event.deltaY)) / 150), timeAt(event.offsetX));
    else if (isSideways && state.until - state.from < whole) pan((event.deltaX || by) / width);
    else if (canScroll && !(by < 0 && state.scroll <= 0) && !(by > 0 && state.scroll >= nShown * rowHeight - (height - AXIS) - 1)) { state.scroll += by; draw(); }
    else if (root.activeElement === canvas && !isSideways) zoom(Math.exp(Math.max(-50, Math.min(50, event.deltaY)) / 150), timeAt(event.offsetX));
    else return;
    event.preventDefault();
  }, {passive: false});

  const pointers = new Map();
  let moved = 0, apart = 0;
  canvas.addEventListener("pointerdown", (event) => { pointers.set(event.pointerId, event); moved = 0; apart = 0; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return point(event.offsetX, event.offsetY);
    const dx = event.offsetX - before.offsetX, dy = event.offsetY - before.offsetY;
    moved += Math.abs(dx) + Math.abs(dy);
    pointers.set(event.pointerId, event);
    if (pointers.size === 2) {
      const [one, two] = [...pointers.values()], now = Math.max(10, Math.abs(one.offsetX - two.offsetX));
      if (apart) zoom(apart / now, timeAt((one.offsetX + two.offsetX) / 2));
      apart = now;
    } else if (moved > 4) {
      tip.hidden = true;
      if (state.view === "tall") state.scroll -= dy;
      pan(-dx / (width - gutter));
    }
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => {
    if (pointers.delete(event.pointerId) && moved <= 4 && name === "pointerup") point(event.offsetX, event.offsetY, true);
    apart = 0;
  });
  canvas.addEventListener("pointerleave", () => { if (state.chosen < 0) tip.hidden = true; });
  map.addEventListener("pointerdown", (event) => { state.isDown = true; map.setPointerCapture(event.pointerId); jump(event); });
  map.addEventListener("pointermove", (event) => { if (state.isDown) jump(event); });
  map.addEventListener("pointerup", () => { state.isDown = false; });
  function jump(event) {
    const at = (event.offsetX - gutter) / (width - gutter) * whole, half = (state.until - state.from) / 2;
    if (half * 2 < whole) limit(at - half, at + half); else zoom(0.1, at);
  }

  function point(px, py, isChosen = false) {
    if (isLanes) return pointLane(px, py, isChosen);
    const tall = height - AXIS, place = (py - AXIS + state.scroll) / rowHeight, time = timeAt(px);
    if (py < AXIS || px < gutter || place >= nShown) { if (!isChosen) tip.hidden = true; return; }
    const reach = rowHeight < 3 ? Math.ceil(3 / rowHeight) : 0;
    let best = Math.floor(place), far = Infinity;
    for (let k = Math.max(0, Math.floor(place) - reach); k <= Math.min(nShown - 1, Math.floor(place) + reach); k++) {
      const i = shown[k], off = time < table.begin[i] ? table.begin[i] - time : time > table.end[i] ? time - table.end[i] : 0;
      if (off < far) { far = off; best = k; }
    }
    show(shown[best], px, Math.min(py, tall));
    if (isChosen) { state.chosen = shown[best]; describe(); draw(); }
  }
  function pointLane(px, py, isChosen) {
    const section = sections.find((one) => py >= one.top && py < one.top + one.deep), time = timeAt(px);
    if (!section || px < gutter) { if (!isChosen) tip.hidden = true; return; }
    const at = Math.floor((py - section.top) / section.deep * section.n);
    let best = -1, far = (state.until - state.from) / (width - gutter) * 6;
    for (const i of section.rows) {
      if (section.n > 1 && lane[i] !== at) continue;
      const off = time < table.begin[i] ? table.begin[i] - time : time > table.end[i] ? time - table.end[i] : 0;
      if (off < far) { far = off; best = i; }
    }
    if (best < 0) { if (!isChosen) tip.hidden = true; return; }
    show(best, px, py);
    if (isChosen) { state.chosen = best; describe(); draw(); }
  }
  function facts(i) {
    const range = table.from[i] >= 0 ? `, from byte ${count(table.from[i])}` : "", status = table.status[i] || "no answer";
    const parts = [`${trace.methods[table.method[i]]} ${table.keys[i]}`, `${trace.hosts[table.host[i]] ?? ""} ${status}, ${trace.kinds[table.kind[i]]}, ${size(table.bytes[i])}${range}`,
      `at ${seconds(table.begin[i])}: ${table.setup[i] ? `connection ${seconds(table.setup[i])}, ` : ""}latency ${seconds(table.wait[i])}, body ${seconds(table.body[i])}`];
    if (lines.length) parts.push(lineName(table.line[i]) + (lines[table.line[i]]?.code ? `  ${lines[table.line[i]].code}` : ""));
    causes.forEach((cause, number) => { if (concerns(i, number)) parts.push(`cause ${number + 1}: ${cause.title}`); });
    return parts;
  }
  function show(i, px, py) {
    const [first, ...rest] = facts(i);
    tip.replaceChildren(make("b", {textContent: first.length > 200 ? `${first.slice(0, 120)}…${first.slice(-70)}` : first}), ...rest.map((text) => make("div", {textContent: text})));
    tip.hidden = false;
    const wide = tip.offsetWidth, deep = tip.offsetHeight;
    tip.style.left = `${Math.max(2, Math.min(px + 12, width - wide - 4))}px`;
    tip.style.top = `${Math.max(2, py + MAP + 14 + deep > height + MAP ? py + MAP - deep - 10 : py + MAP + 14)}px`;
  }
  function chosenPlace() {
    if (state.chosen < 0) return -1;
    let a = 0, b = nShown - 1;
    while (a < b) { const half = (a + b) >> 1; if (shown[half] < state.chosen) a = half + 1; else b = half; }
    return shown[a] === state.chosen ? a : -1;
  }
  function describe() { const place = chosenPlace(); say.textContent = `Request ${count(place + 1)} of ${count(nShown)}. ${facts(state.chosen).join(". ")}`; }
  function step(by) {
    look();
    if (!nShown) return;
    const place = state.chosen < 0 ? (by > 0 ? 0 : nShown - 1) : Math.max(0, Math.min(nShown - 1, chosenPlace() + by));
    state.chosen = shown[place];
    if (state.view === "tall") state.scroll = Math.max(place * rowHeight - height / 2, 0);
    paint();
    const section = isLanes && sections.find((one) => one.line === lineOf(state.chosen));
    show(state.chosen, Math.max(gutter, Math.min(width, x(table.begin[state.chosen]))), section ? section.top + 14 : AXIS + place * rowHeight - state.scroll);
    describe();
    fill();
  }
  canvas.addEventListener("keydown", (event) => {
    const acts = {
      "+": () => zoom(0.5, focusTime()), "=": () => zoom(0.5, focusTime()), "-": () => zoom(2, focusTime()), "0": fit, Home: fit,
      ArrowLeft: () => pan(-0.1), ArrowRight: () => pan(0.1), ArrowDown: () => step(1), ArrowUp: () => step(-1),
      PageDown: () => step(Math.max(1, Math.round(nShown / 10))), PageUp: () => step(-Math.max(1, Math.round(nShown / 10))),
      Escape: () => { state.chosen = -1; tip.hidden = true; draw(); },
      Enter: () => { if (state.chosen >= 0) { details.open = true; findPage(); } },
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in acts)) return;
    event.preventDefault();
    acts[event.key]();
  });
  const focusTime = () => state.chosen >= 0 ? table.begin[state.chosen] : (state.from + state.until) / 2;

  /* the table */
  const COLUMNS = [["begin", "began", (i) => seconds(table.begin[i])], ["key", "key", (i) => table.keys[i], "key"], ["method", "method", (i) => trace.methods[table.method[i]], "text"],
    ["status", "status", (i) => String(table.status[i] || "none")], ["bytes", "bytes", (i) => count(table.bytes[i])], ["setup", "connection", (i) => table.setup[i] ? seconds(table.setup[i]) : ""],
    ["wait", "latency", (i) => seconds(table.wait[i])], ["body", "body", (i) => seconds(table.body[i])],
    ...(lines.length ? [["line", "line", (i) => lineName(table.line[i]), "text"]] : []), ...(causes.length ? [["cause", "cause", (i) => causes.map((_, number) => number).filter((number) => concerns(i, number)).map((number) => number + 1).join(", ")]] : [])];
  for (const [name, title, , style] of COLUMNS) head.append(make("th", {scope: "col", className: style ? "text" : "", "aria-sort": "none"}, make("button", {type: "button", textContent: title, onclick: () => { state.sort = name; state.page = 0; fill(); }})));
  function sorted() {
    const rows = shown.slice(0, nShown), column = table[state.sort];
    if (state.sort === "begin") return rows;
    if (state.sort === "key") return rows.sort((a, b) => table.keys[a] < table.keys[b] ? -1 : table.keys[a] > table.keys[b] ? 1 : a - b);
    const isSmallFirst = ["line", "method"].includes(state.sort);
    return rows.sort((a, b) => (isSmallFirst ? column[a] - column[b] : column[b] - column[a]) || a - b);
  }
  function fill() {
    if (!details.open) return;
    const rows = sorted(), nPages = Math.max(1, Math.ceil(rows.length / PAGE));
    state.page = Math.max(0, Math.min(state.page, nPages - 1));
    COLUMNS.forEach(([name], at) => head.children[at].setAttribute("aria-sort", name !== state.sort ? "none" : ["begin", "key", "line", "method"].includes(name) ? "ascending" : "descending"));
    body.replaceChildren(...Array.from(rows.slice(state.page * PAGE, (state.page + 1) * PAGE), (i) => make("tr", {"aria-selected": String(i === state.chosen), onclick: () => { state.chosen = i; describe(); draw(); }},
      ...COLUMNS.map(([, , text, style]) => make("td", {className: style ?? "", textContent: text(i)})))));
    const turn = (text, label, by) => Object.assign(button(text, label, () => { state.page += by; fill(); }), {disabled: state.page + by < 0 || state.page + by >= nPages});
    pages.replaceChildren(turn("◀", "previous page of the table", -1), `requests ${count(Math.min(rows.length, state.page * PAGE + 1))} to ${count(Math.min(rows.length, (state.page + 1) * PAGE))} of ${count(rows.length)}`, turn("▶", "next page of the table", 1));
  }
  function findPage() {
    const place = sorted().indexOf(state.chosen);
    if (place < 0) return;
    state.page = Math.floor(place / PAGE);
    fill();
    body.children[place % PAGE]?.scrollIntoView({block: "nearest"});
  }

  let widthBefore = 0;
  new ResizeObserver(() => { const now = canvas.parentElement.clientWidth; if (now !== widthBefore) { widthBefore = now; density = null; draw(); } }).observe(canvas.parentElement);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  new MutationObserver(draw).observe(document.documentElement, {attributes: true, attributeFilter: ["data-theme", "data-mode"]});
  select();
  paint();
  return {state, paint, fit, zoom, pan, table, sums, shown: () => nShown};
}

function mountAll() {
  for (const host of document.querySelectorAll("[data-wire-waterfall]")) {
    const source = host.querySelector('script[type="application/json"]');
    if (source && !host.shadowRoot) host.wire = mount(host, JSON.parse(source.textContent));
  }
}
globalThis.wireWaterfall = {mount, mountAll, unpack, sumUp};
if (typeof document !== "undefined") {
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", mountAll);
  else mountAll();
}
})();
