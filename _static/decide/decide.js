// The page Decide: what `wire decide` answers, by the same formulas (wire.decide); a test holds both equal.
(() => { "use strict";
const N_CANDIDATES = 150000, MODEL_ERROR = 0.03, WORTH = 1.1, SHARD_WORTH = 1.2, Z95 = 1.6448536269514722, MIN_NBYTES = 1e6, MAX_NBYTES = 1e8, APPEND_NBYTES = 1e9;
const PARTS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16], ORDER = ["default", "write", "copy"];
const sum = (xs) => xs.reduce((a, b) => a + b, 0), product = (xs) => xs.reduce((a, b) => a * b, 1);
const cross = (grids) => grids.reduce((kept, grid) => kept.flatMap((some) => grid.map((e) => [...some, e])), [[]]);
const gcd = (a, b) => (b ? gcd(b, a % b) : a);
const dot = (xs, ys) => sum(xs.map((x, i) => x * ys[i]));
const least = (xs, key) => xs.reduce((best, x) => (key(x) < key(best) ? x : best));
// Median time to the first byte of one of n requests; rank 1 is the longest of them.
function delay(net, rank, n, inTurn) {
  if (!net.mean) return 0;
  const variance = Math.log1p(Math.expm1(net.sigma ** 2) / inTurn), z = quantile((n - rank + 2 / 3) / (n + 1 / 3));
  const tail = (Math.max(z - Z95, 0) * net.tail) / Math.sqrt(inTurn);
  return inTurn * net.mean * Math.exp(-variance / 2) * Math.exp(Math.sqrt(variance) * z + tail);
}
// By how much longer bodies take that are the first on new connections (Network.new_connection_s).
function connect(net, nbytes) {
  let waited = net.setup, window = net.window, rest = nbytes;
  for (; rest > window && net.trip - window / net.stream > 0; window *= 2) { waited += net.trip - window / net.stream; rest -= window; }
  return waited;
}
// Median seconds of n objects, so many at once (wire.models.access.access_seconds).
function predict(net, n, stored, cpu, inFlight, inTurn, wait, cold) {
  const abreast = Math.min(inFlight, n), others = 1 - 1 / abreast, nbytes = (n * stored) / n;
  const alone = nbytes / Math.min(net.stream, net.link), shared = nbytes / net.link;
  const waited = inTurn * wait, first = waited + delay(net, abreast, abreast, inTurn), last = waited + delay(net, 1, abreast, inTurn);
  const received = Math.max(last + alone, first + (abreast * nbytes) / net.link, first + (abreast * inTurn) / net.requests + alone);
  const queued = Math.max(first - last + (abreast - 1) * cpu, 0);
  const wave = Math.max(received + cpu + queued, first + abreast * cpu);
  const waits = inTurn * (net.mean + wait), bound = Math.max(shared, cpu, inTurn / net.requests, 1e-12);
  let apart = bound, receiving = 0, decoding = 0;
  for (let i = 0; i < 10; i++) {
    const receive = Math.max(alone, shared * (1 + receiving * others)), decode = cpu * (1 + decoding * others);
    apart = Math.max(bound, (waits + receive + decode) / abreast);
    [receiving, decoding] = [receive / apart, decode / apart];
  }
  return wave + (n - abreast) * apart + (cold && abreast > 1 ? connect(net, nbytes) : 0);
}
// Chunks that a range touches on average, starting anywhere or at a multiple of its length.
function touched(access, chunk, n, column) {
  const extent = access.extent[column], c = chunk[column];
  if (access.aligned) {
    const ranges = Math.floor(n / extent), last = ranges * extent - 1;
    return 1 + (Math.floor(last / c) - Math.floor(last / ((extent / gcd(extent, c)) * c))) / ranges;
  }
  const floors = (stop) => { const whole = Math.floor(stop / c); return (c * whole * (whole - 1)) / 2 + (stop - whole * c) * whole; };
  return 1 + (floors(n) - floors(extent - 1) - floors(n - extent + 1)) / (n - extent + 1);
}
const countTouched = (q, access, chunk) => product(q.shape.map((n, i) => touched(access, chunk, n, i)));
const countObjects = (q, shape) => product(q.shape.map((n, i) => Math.ceil(n / shape[i])));
// Stored bytes that an append rewrites at most, of objects so long along its axis.
const rewritten = (q, extent) => (q.append ? ((product(q.shape) * q.itemsize) / q.shape[q.append.axis] / q.compression) * (extent - gcd(extent, q.append.steps)) : 0);
const grows = (q, column) => q.append && q.append.axis === column;
// What one access asks of a layout: requests, bytes and seconds; a service opens the array for each.
function ask(q, access, { chunk, shard }, { inFlight, inTurn, opening: [opened, waits], wait, perChunk, copied, decoded } = q.clients.tuned) {
  const nbytes = product(chunk) * q.itemsize, n = countTouched(q, access, chunk), cpu = perChunk + nbytes * (q.compression === 1 ? copied : decoded);
  const seconds = predict(q.net, n, nbytes / q.compression, cpu, inFlight, inTurn, wait, q.cold) + waits * q.net.p50, stored = (n * nbytes) / q.compression;
  if (!shard) return { seconds, requests: n * inTurn + opened, nbytes: stored };
  const indices = countTouched(q, access, shard), size = (16 * product(shard)) / product(chunk);
  return { seconds: seconds + predict(q.net, indices, size, 0, inFlight, 1, wait, false), requests: n * inTurn + indices, nbytes: stored + indices * size };
}
function listExtents(q, column, step) {
  const n = q.shape[column], own = new Set(q.accesses.map((one) => one.extent[column])), base = Math.max(2, step);
  if (grows(q, column)) {
    const { steps } = q.append, most = 1 + Math.floor(q.append.most / Math.max(1, rewritten(q, 2 * steps)));
    own.add(Math.min(steps, n)).add(Math.min(steps * most, n));
  }
  const found = new Set([n, ...own]);
  for (let power = 1; power <= n; power *= base) found.add(power).add(step === 1 ? 3 * power : power);
  if (step === 1) for (const part of [...PARTS.map((k) => n / k), ...[...own].flatMap((e) => [e / 2, e / 4])]) found.add(Math.ceil(part));
  return [...found].filter((e) => e <= n && (!grows(q, column) || rewritten(q, e) <= q.append.most)).sort((a, b) => a - b);
}
function listCandidates(q) {
  const list = (step) => q.shape.map((n, i) => listExtents(q, i, step));
  const grids = [1, 2, 4, 16, 256].map(list).find((some) => product(some.map((grid) => grid.length)) <= N_CANDIDATES);
  const low = Math.min(MIN_NBYTES, product(grids.map((grid) => grid[grid.length - 1])) * q.itemsize), size = (shape) => product(shape) * q.itemsize;
  return cross(grids).filter((shape) => size(shape) >= low && size(shape) <= MAX_NBYTES).map((chunk) => {
    const reads = q.accesses.map((access) => ask(q, access, { chunk }));
    return { chunk, reads, score: dot(reads.map((one) => one.seconds), q.weights), objects: countObjects(q, chunk) };
  });
}
// Of the candidates about as fast as the fastest in each access: the roundest and squarest.
function choose(q, candidates) {
  const fastest = least(candidates, (one) => one.score), limits = fastest.reads.map((one) => one.seconds * (1 + MODEL_ERROR));
  const isRound = (c, n) => Number.isInteger(Math.log2(c)) || n % c === 0;
  const near = candidates.filter((one) => one.reads.every((read, i) => read.seconds <= limits[i])).map((one) => {
    const logs = one.chunk.filter((c, i) => q.shape[i] > 1).map(Math.log), mean = sum(logs) / logs.length;
    const spread = logs.length ? Math.sqrt(sum(logs.map((x) => (x - mean) ** 2)) / logs.length) : 0;
    return { ...one, rank: Math.round(1e6 * (spread + 0.3 * one.chunk.filter((c, i) => !isRound(c, q.shape[i])).length)), size: product(one.chunk) };
  });
  return near.sort((a, b) => a.rank - b.rank || b.size - a.size || a.score - b.score)[0].chunk;
}
function listShards(q, chunk) {
  const grids = q.shape.map((n, i) => {
    const most = n / chunk[i], times = new Set([...Array(27).keys()].map((k) => 2 ** k).concat(Number.isInteger(most) ? most : 1));
    return [...times].filter((k) => k <= most).sort((a, b) => a - b).map((k) => k * chunk[i])
      .filter((e) => e === chunk[i] || !grows(q, i) || (e < n && rewritten(q, e) <= q.append.most));
  });
  const within = (low, high) => cross(grids).map((shard) => ({ shard, nbytes: product(shard) * q.itemsize }))
    .filter(({ shard, nbytes }) => nbytes >= low && nbytes <= high && countObjects(q, shard) <= q.maxObjects)
    .map((one) => ({ ...one, touched: Math.round(1e9 * Math.log(dot(q.accesses.map((access) => countTouched(q, access, one.shard)), q.weights))) }));
  const kept = within(1e8, 1e9), found = kept.length ? kept : within(0, 1e10);
  return found.sort((a, b) => a.touched - b.touched || b.nbytes - a.nbytes).slice(0, 1).map(({ shard }) => ({ chunk, shard }));
}
function bestLayout(q, candidates = listCandidates(q)) {
  const plain = candidates.filter((one) => one.objects <= q.maxObjects), found = [];
  if (plain.length) found.push({ chunk: choose(q, plain) });
  if (plain.length < candidates.length) found.push(...listShards(q, choose(q, candidates)));
  if (!found.length) throw new Error("no layout has few enough objects");
  const score = (layout) => dot(q.accesses.map((access) => ask(q, access, layout).seconds), q.weights);
  return found.find((one) => score(one) <= SHARD_WORTH * Math.min(...found.map(score)));
}
function cheapestLayout(q, candidates) {
  const plain = candidates.filter((one) => one.objects <= q.maxObjects);
  if (!plain.length) return bestLayout(q, candidates);
  const { get, out } = q.net.prices, usd = (one) => dot(one.reads.map((read) => get * read.requests + out * read.nbytes), q.weights);
  const low = usd(least(plain, usd));
  return { chunk: choose(q, plain.filter((one) => usd(one) <= low * (1 + MODEL_ERROR))) };
}
function bestCopies(whole, some) {
  // each copy may rewrite half of what an append may
  const q = whole.append ? { ...whole, append: { ...whole.append, most: whole.append.most / 2 } } : whole;
  const candidates = some.filter((one) => !q.append || rewritten(q, one.chunk[q.append.axis]) <= q.append.most);
  const all = q.accesses.map((one, i) => i), splits = [...Array(2 ** (all.length - 1)).keys()].slice(1)
    .map((bits) => [0, 1].map((side) => all.filter((i) => ((bits >> i) & 1) === side)));
  if (all.length < 2 || all.length > 6) return null;
  const fastest = (group) => candidates.reduce((low, one) => Math.min(low, sum(group.map((i) => one.reads[i].seconds * q.weights[i]))), Infinity);
  const groups = least(splits, ([ours, theirs]) => fastest(ours) + fastest(theirs));
  const alone = (group) => {
    const part = { ...q, accesses: group.map((i) => q.accesses[i]), weights: group.map((i) => q.weights[i]) };
    const restrict = (one) => { const reads = group.map((i) => one.reads[i]); return { ...one, reads, score: dot(reads.map((read) => read.seconds), part.weights) }; };
    return bestLayout(part, candidates.map(restrict));
  };
  try { return { groups, layouts: groups.map(alone) }; } catch { return null; } // a copy has too many objects
}
// Zarr's own chunks: axes halved in turn (zarr.core.chunk_grids).
function guessChunks(q) {
  const chunk = [...q.shape], size = () => product(chunk) * q.itemsize;
  const target = Math.min(2 ** 26, Math.max(2 ** 17, 2 ** 18 * 2 ** Math.log10(size() / 2 ** 20)));
  for (let i = 0; !((size() < target || Math.abs(size() - target) / target < 0.5) && size() < 2 ** 26) && product(chunk) > 1; i++)
    chunk[i % chunk.length] = Math.ceil(chunk[i % chunk.length] / 2);
  return chunk;
}
function price(q, action, client, layouts, groups = [q.accesses.map((one, i) => i)]) {
  const layoutOf = (i) => layouts[groups.findIndex((group) => group.includes(i))];
  const reads = q.accesses.map((access, i) => ({ access: access.name, ...ask(q, access, layoutOf(i), client) }));
  const mean = (name) => dot(reads.map((one) => one[name]), q.shares), stored = (layouts.length * q.arrays * product(q.shape) * q.itemsize) / q.compression;
  const seconds = mean("seconds"), { prices } = q.net;  // null where one is unknown: then bytes stored stand for dollars
  const bill = prices && stored * prices.storage + q.reads * (mean("requests") * prices.get + mean("nbytes") * prices.out);
  const expense = prices ? Math.max(bill, 1) : stored, written = action === "default" ? 0 : stored;
  const again = q.append ? sum(layouts.map(({ chunk, shard }) => rewritten(q, (shard || chunk)[q.append.axis]))) : 0;
  const usd = prices && bill + (q.reads * seconds * (q.wait ?? 0)) / 3600;
  return { action, layouts, groups, reads, seconds, again, stored, written, hours: written / q.net.link / 3600, bill, expense, usd };
}
function listChoices(q) {
  const { plain, tuned } = q.clients, candidates = listCandidates(q), copies = q.keep === "one-copy" ? null : bestCopies(q, candidates);
  const now = price(q, "default", plain, [{ chunk: guessChunks(q) }]), text = (one) => JSON.stringify(one.layouts || one);
  const layouts = [bestLayout(q, candidates), ...(q.net.prices ? [cheapestLayout(q, candidates)] : [])];
  const found = layouts.map((one) => price(q, "write", tuned, [one]));
  if (copies && text(copies.layouts[0]) !== text(copies.layouts[1])) found.push(price(q, "copy", tuned, copies.layouts, copies.groups));
  const isNew = (one, i) => found.findIndex((other) => text(other) === text(one)) === i;
  return [now, ...found.filter((one, i) => isNew(one, i) && one.seconds <= now.seconds)];
}
// A question in the words of the command's options; `data` is what the page brings: networks, clients, types.
function read(form, data) {
  const refuse = (name, allowed) => { throw new Error(`${name.replaceAll("_", "-")}: ${form[name]}; allowed: ${allowed}`); };
  const number = (name, missing) => (form[name] ? (Number(form[name]) >= 0 ? Number(form[name]) : refuse(name, "a number of at least 0")) : missing);
  const isWhole = (e, most) => Number.isInteger(e) && e > 0 && e <= most, shape = form.shape.split(/[,x]/).map(Number), n = shape.length;
  const named = { series: (i) => i === 0, map: (i) => i >= Math.max(1, n - 2), whole: () => true };
  if (n > 5 || !shape.every((e) => isWhole(e, 1e8))) refuse("shape", "one to 5 whole numbers up to 100000000, with commas or x between them");
  const accesses = form.access.split(",").map((part) => {
    const [what, share] = part.trim().split(":"), [box, at] = what.split("@");
    const extent = named[box] ? shape.map((e, i) => (named[box](i) ? e : 1)) : box.split("x").map(Number);
    const isSound = extent.length === n && extent.every((e, i) => isWhole(e, shape[i])) && Number(share ?? 1) > 0;
    return isSound ? { name: what, extent, aligned: at === "aligned", share: Number(share ?? 1) } : refuse("access", "series, map, whole, or a box such as 24x100x100 within the shape, and a share above 0");
  });
  const shares = accesses.map((one) => one.share / sum(accesses.map((other) => other.share)));
  const weights = shares.map((s) => (s >= 0.05 ? Math.floor(20 * s + 0.5) / 20 : Number(s.toExponential(0))));
  const clients = number("per_second", 0) ? data.clients : { tuned: data.clients.tuned, plain: { ...data.clients.plain, opening: [0, 0] } };
  const [along, steps = "1"] = (form.append || "").split(":"), axis = along === "time" ? 0 : Number(along || "none");
  if (form.append && !(axis < n && Number.isInteger(axis) && axis >= 0 && isWhole(Number(steps), 1e15))) refuse("append", `time or 0 to ${n - 1}, and steps, as time:24`);
  const append = form.append ? { axis, steps: Number(steps), most: APPEND_NBYTES } : null;
  const net = data.networks[form.profile];
  for (const name of ["budget_usd_month", "wait_usd_hour"]) if (form[name] && !net.prices) refuse(name, "where prices are known; the command takes your own by --price");
  const perSecond = number("per_second", 0), arrays = number("arrays", 1);
  return { shape, itemsize: data.types[form.type], accesses, shares, weights, net, arrays, clients, append, cold: !perSecond, keep: form.keep,
    compression: number("compression", 1) || refuse("compression", "a number above 0"), maxObjects: Math.max(1, Math.floor(1e5 / arrays)),
    reads: perSecond ? perSecond * 2592000 : number("reads_per_month", 10000), budget: number("budget_usd_month", null), wait: number("wait_usd_hour", null) };
}
// The least of seconds times dollars, or what costs least where waiting has a price; what changes least of those about as good.
function decide(form, data) {
  const q = read(form, data), choices = listChoices(q), cost = (one) => one.bill ?? one.stored;
  const ordered = [...choices].sort((a, b) => cost(a) - cost(b) || a.seconds - b.seconds);
  for (const one of ordered) one.isOver = (one.bill ?? 0) > (q.budget ?? Infinity);
  const key = q.wait === null ? (one) => one.seconds * one.expense : (one) => one.usd;
  const recommend = (pool) => {
    const best = least(pool, key), near = pool.filter((one) => key(one) <= WORTH * key(best) && one.seconds <= WORTH * best.seconds);
    return near.sort((a, b) => ORDER.indexOf(a.action) - ORDER.indexOf(b.action) || key(a) - key(b));
  };
  const few = ordered.filter((one) => one.again <= APPEND_NBYTES), small = few.length ? few : ordered;
  let near = recommend(small);
  const within = small.filter((one) => !one.isOver);
  if (near[0].isOver) near = recommend(within.length ? within : small.slice(0, 1));
  return { best: near[0], ties: near.slice(1), now: choices[0], choices: ordered, net: q.net, append: q.append, question: q };
}
const show = (x, n = 3) => Number(x.toPrecision(n)).toLocaleString("en-US", { maximumFractionDigits: 12 });
const time = (s) => (s < 0.0995 ? `${show(1000 * s, 2)} ms` : `${show(s, 2)} s`);
const line = (tag, texts) => `<tr>${texts.map((text) => `<${tag}>${String(text).replace(/[<&]/g, "")}</${tag}>`).join("")}</tr>`;
const size = (nbytes) => { const [unit, by] = [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3], ["bytes", 1]].find(([, least]) => nbytes >= least) ?? ["bytes", 1]; return `${show(nbytes / by)} ${unit}`; };
const span = (hours) => { const [unit, by] = [["days", 24, 48], ["hours", 1, 1], ["minutes", 1 / 60, 0]].find(([, , least]) => hours >= least); return `${show(hours / by, 2)} ${unit}`; };
// What writing the answer takes, and what each append rewrites.
function tellEffort({ best, append }) {
  const hours = best.hours > 1 / 60 ? `, which takes at least ${span(best.hours)}` : "", texts = best.written ? [`Writing it moves ${size(best.written)}${hours}.`] : [];
  if (append) texts.push(best.again ? `Each append rewrites up to ${size(best.again)} already stored of a variable.` : "Each append rewrites nothing that is stored.");
  return texts.join(" ");
}
const WORDS = { default: "Zarr's own chunks", write: "one copy", copy: "two copies" };
const gainsOf = (now, one) => now.reads.map((read, i) => [read.access, read.seconds / one.reads[i].seconds]);
const range = (gains) => [...new Set([Math.min(...gains), Math.max(...gains)].map((gain) => show(gain, 2)))].join(" to ");
// Names each access that loses next to what the others gain.
function tell({ best, now, ties }) {
  const all = gainsOf(now, best), slower = all.filter(([, gain]) => gain * WORTH < 1), faster = all.filter(([, gain]) => gain * WORTH >= 1);
  const which = slower.length ? `${faster.map(([name]) => name).join(" and ")} ` : "", but = slower.map(([name, gain]) => `, but ${name} ${show(1 / gain, 2)}x slower`).join("");
  const gain = best === now ? `${time(best.seconds)} a read` : `${which}${range(faster.map(([, one]) => one))}x faster than by default${but}`;
  const advice = { default: "Keep the defaults", write: "Write one copy", copy: "Keep two copies" }[best.action], over = best.isOver ? "Nothing fits the budget; the cheapest: " : "";
  const tie = ties.length ? ` A tie: ${[...new Set(ties.map((one) => WORDS[one.action]))].join(" or ")} (below) would do as well, within 10 %.` : "";
  const bill = best.bill === null ? "" : `, for ${show(best.bill)} USD a month`;
  return `${over}${advice}: ${gain}${bill}.${tie}`;
}
function draw(form, data, event) {
  const given = Object.fromEntries([...new FormData(form)].filter(([, value]) => value)), note = document.getElementById("decide-note");
  if (event) history.replaceState(null, "", `#${new URLSearchParams(given)}`);
  const options = Object.entries(given).map(([name, value]) => ` --${name.replaceAll("_", "-")} ${value}`);
  document.getElementById("decide-command").textContent = `wire decide${options.join("")}`;
  try {
    const found = decide(given, data), { best, now, choices, net } = found, rate = (x) => (x < 1e15 ? `${show(x / 1e6)} MB/s` : "any rate");
    note.textContent = tell(found);
    window.wireDecidePictures?.show(found);
    const chunks = ({ chunk, shard }) => chunk.join("x") + (shard ? ` in shards ${shard.join("x")}` : "");
    const name = (one) => `${one === best ? "chosen: " : ""}${WORDS[one.action]}${one.isOver ? " (over budget)" : ""}`;
    const row = (one) => [name(one), ...one.reads.map((read) => time(read.seconds)), one.usd === null ? size(one.stored) : show(one.usd), range(gainsOf(now, one).map(([, gain]) => gain)), one.layouts.map(chunks).join(", ")];
    const head = line("th", ["", ...best.reads.map((one) => one.access), net.prices ? "USD a month" : "stored", "speed-up", "chunks"]);
    document.getElementById("decide-table").innerHTML = head + choices.map((one) => line("td", row(one))).join("");
    document.getElementById("decide-effort").textContent = tellEffort(found);
    const meter = document.getElementById("decide-rewritten");
    meter.hidden = !found.append;
    meter.querySelector("meter").value = found.append ? best.again / APPEND_NBYTES : 0;
    document.getElementById("decide-basis").textContent = `Predicted, not measured: latency ${time(net.p50)}, ${rate(net.stream)} per connection, ${rate(net.link)} per reader. ${net.billing}${net.prices ? " A GB is billed as 2^30 bytes, before discounts." : ""}`;
  } catch (error) {
    note.textContent = error.message;
    document.getElementById("decide-effort").textContent = "";
  }
}
function start() {
  const form = document.getElementById("decide-form"), data = JSON.parse(document.getElementById("decide-data").textContent), { profile, type } = form.elements;
  for (const [select, some] of [[profile, data.networks], [type, data.types]]) for (const name of Object.keys(some)) select.add(new Option(name));
  const read = () => {
    const state = new URLSearchParams(location.hash.slice(1));
    if (state.has("shape")) for (const field of form.elements) field.value = state.get(field.name) ?? "";
    draw(form, data);
  };
  form.onchange = (event) => draw(form, data, event);
  window.addEventListener("hashchange", () => { read(); form.scrollIntoView(); });  // a link to an example, further down
  read();
}
if (typeof document !== "undefined") document.addEventListener("DOMContentLoaded", start);
if (typeof window !== "undefined") window.wireDecide = { ask, show, time, size, words: WORDS };
if (typeof module !== "undefined") module.exports = { decide };
})();
