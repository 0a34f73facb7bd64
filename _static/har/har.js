// The page for a dropped HAR: what `wire trace show` finds in it, by the same rules (wire.trace), in the browser.
// Texts and thresholds come from the page as JSON (wire.trace.catalog); a test holds the counts, times and causes of both equal.
(() => {
"use strict";

/* numbers and texts, as Python writes them */

// A number with so many decimals; a tie goes to the even digit.
function fixed(value, decimals) {
  const scaled = value * 10 ** decimals, below = Math.floor(scaled);
  if (scaled - below === 0.5) return ((below % 2 ? below + 1 : below) / 10 ** decimals).toFixed(decimals);
  return value.toFixed(decimals);
}
// A number rounded to so many digits.
function rounded(value, digits) {
  if (!value) return 0;
  const decimals = digits - 1 - Math.floor(Math.log10(Math.abs(value)));
  return decimals >= 0 ? Number(fixed(value, decimals)) : Number(value.toPrecision(digits));
}
function formatSize(value) {
  for (const [size, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (value >= size) return `${rounded(value / size, 3).toLocaleString("en-US", {maximumFractionDigits: 15})} ${unit}`;
  }
  return `${fixed(value, 0)} bytes`;
}
const formatSeconds = (seconds) => seconds < 100 ? `${rounded(seconds, 2)} s` : `${Math.round(seconds).toLocaleString("en-US")} s`;
const sum = (values) => values.reduce((total, value) => total + value, 0);
const largest = (values, start) => values.reduce((most, value) => value > most ? value : most, start);
const smallest = (values, start) => values.reduce((least, value) => value < least ? value : least, start);
const ascending = (values) => [...values].sort((a, b) => a - b);
const unique = (values) => [...new Set(values)];
const lastName = (key) => key.slice(key.lastIndexOf("/") + 1);
const folder = (key) => key.slice(0, Math.max(0, key.lastIndexOf("/")));
const nameOf = (row) => `${row.host} ${row.key}`;

function median(values) {
  const sorted = ascending(values), half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}
function quantile(values, part, parts) {
  const sorted = ascending(values), n = sorted.length;
  if (n < 2) return sorted[0];
  const place = Math.min(Math.max(1, Math.floor(part * (n + 1) / parts)), n - 1), delta = part * (n + 1) - place * parts;
  return (sorted[place - 1] * (parts - delta) + sorted[place] * delta) / parts;
}
// The first place of a sorted array whose value is greater.
function bisectRight(sorted, value, end = sorted.length) {
  let low = 0, high = end;
  while (low < high) {
    const half = (low + high) >> 1;
    if (value < sorted[half]) high = half; else low = half + 1;
  }
  return low;
}
function groupBy(items, name) {
  const groups = new Map();
  for (const item of items) {
    const key = name(item);
    if (groups.has(key)) groups.get(key).push(item); else groups.set(key, [item]);
  }
  return groups;
}

/* reading an archive */

class HarError extends Error {}

function readNumber(value, fallback) {
  if (value === undefined || value === null) return fallback;
  const number = typeof value === "string" && !value.trim() ? NaN : typeof value === "object" ? NaN : Number(value);
  if (!Number.isFinite(number) || Math.abs(number) > 1e15) throw new HarError(`the number ${String(JSON.stringify(value)).slice(0, 60)}`);
  return number;
}
function readMoment(value) {
  const match = /^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)(?:[.,](\d+))?(Z|[+-]\d\d:?\d\d)?$/i.exec(String(value));
  const zone = match && (match[4] ?? "Z").replace(/^([+-]\d\d)(\d\d)$/, "$1:$2");
  const moment = match ? Date.parse(`${match[1]}T${match[2]}${zone}`) / 1000 : NaN;
  if (!Number.isFinite(moment)) throw new HarError(`startedDateTime is ${String(value).slice(0, 60)}`);
  return moment + Number(`0.${(match[3] ?? "0").slice(0, 6)}`);
}
function readUrl(text) {
  const match = /^([a-z][a-z0-9+.-]*):(?:\/\/([^/?#]*))?([^?#]*)(?:\?([^#]*))?/i.exec(text);
  if (!match) return {scheme: "", host: "", path: "", query: ""};
  const host = (match[2] ?? "").replace(/^.*@/, "");
  if (host.includes("[") !== host.includes("]")) throw new HarError("the URL has no host that can be read");
  return {scheme: match[1].toLowerCase(), host, path: match[3], query: match[4] ?? ""};
}
function unquote(path) {
  return path.replace(/(?:%[0-9a-f]{2})+/gi, (text) => {
    const bytes = Uint8Array.from(text.slice(1).split("%"), (pair) => parseInt(pair, 16));
    return new TextDecoder("utf-8", {ignoreBOM: true}).decode(bytes);
  });
}
// The headers that tell what was asked for and by whom; no other is looked at.
function readHeaders(message) {
  const headers = {};
  for (const field of Array.isArray(message.headers) ? message.headers : []) {
    const name = String(field?.name ?? "").toLowerCase();
    if (["range", "content-range", "content-length", "user-agent"].includes(name)) headers[name] = String(field.value ?? "");
  }
  return headers;
}
function readRange(wanted, sent) {
  const match = /^bytes=(\d*)-(\d*)$/.exec(wanted.replaceAll(" ", ""));
  if (!match || wanted.length > 60 || sent.length > 80) return [null, null];
  const answer = /^bytes (\d+)-(\d+)\//.exec(sent);
  if (answer) return [Number(answer[1]), Number(answer[2]) - Number(answer[1]) + 1];
  if (!match[1]) return [null, match[2] ? Number(match[2]) : null];
  return [Number(match[1]), match[2] ? Number(match[2]) - Number(match[1]) + 1 : null];
}
// The bytes of a body that came over the network: tools differ in where they say it.
function countBody(response, sent) {
  const content = response.content && typeof response.content === "object" ? response.content : {};
  const moved = readNumber(response._transferSize, -1), head = Math.max(0, readNumber(response.headersSize, -1));
  const length = sent["content-length"] ?? "";
  for (const number of [
    readNumber(response.bodySize, -1), moved > 0 ? moved - head : -1, /^\d{1,15}$/.test(length) ? Number(length) : -1,
    readNumber(content.size, -1) - readNumber(content.compression, 0),
  ]) if (number > 0) return Math.trunc(number);
  return 0;
}
function readEntry(entry, connections, catalog) {
  const {request, response, timings} = entry;
  if (!request || !response || !timings) throw new HarError("no request, response or timings");
  const url = readUrl(String(request.url));
  if (catalog.names.no_network.includes(url.scheme) || entry._fromCache || !url.host) return null;
  if (!["http", "https"].includes(url.scheme)) throw new HarError(`the URL's scheme is '${url.scheme.slice(0, 20)}'`);
  const phase = (name) => Math.max(0, readNumber(timings[name], -1)) / 1000;
  const handshake_s = phase("dns") + phase("connect");
  const start_s = readMoment(entry.startedDateTime) + phase("blocked") + handshake_s;
  const first_byte_s = start_s + phase("send") + phase("wait");
  const end_s = first_byte_s + phase("receive");
  const status = Math.trunc(readNumber(response.status, 0));
  const wanted = readHeaders(request), sent = readHeaders(response);
  const [range_start, range_nbytes] = readRange(wanted.range ?? "", sent["content-range"] ?? "");
  const connection = String(entry.connection || "");
  const is_first = phase("connect") > 0 || (connection !== "" && !connections.has(connection));
  if (connection) connections.add(connection);
  if (start_s < 0) throw new HarError("a moment outside of all years");
  return {
    start_s, first_byte_s, end_s, handshake_s, is_first, range_start, range_nbytes,
    method: String(request.method).toUpperCase().slice(0, 20), key: unquote(url.path) || "/", host: url.host,
    status: status >= 0 && status < 1000 ? status : 0, nbytes: request.method === "HEAD" ? 0 : countBody(response, sent),
    user_agent: /^[\w.+-]{1,60}(?:\/[\w.+-]{1,40})?/.exec(wanted["user-agent"] ?? "")?.[0] ?? "",
    sent_nbytes: Math.max(0, Math.trunc(readNumber(request.bodySize, 0))), client_blocked_s: 0, is_cut: false,
    is_listing: new RegExp(catalog.patterns.listing, "i").test(`${url.path}?${url.query}`),
  };
}
// An entry that `wire trace` wrote, which has what HAR has no place for under `_wire`.
function readOwnEntry(entry, nSites) {
  const own = entry._wire, {request, response} = entry;
  if (!own || !request || !response) throw new HarError("no request, response or _wire");
  const url = readUrl(String(request.url));
  const number = (value, fallback, most = 1e18) => {
    if (value === undefined) return fallback;
    if (typeof value !== "number" || !(value >= 0 && value <= most)) throw new HarError(`the number ${String(value).slice(0, 60)}`);
    return value;
  };
  if (own.start_s === undefined) throw new HarError("no start_s");
  const row = {
    start_s: number(own.start_s), first_byte_s: number(own.first_byte_s, 0), end_s: number(own.end_s, 0), handshake_s: number(own.handshake_s, 0),
    client_blocked_s: number(own.client_blocked_s, 0), is_first: own.is_first === true, is_cut: own.is_cut === true, is_listing: own.is_listing === true,
    range_start: own.range_start == null ? null : number(own.range_start), range_nbytes: own.range_nbytes == null ? null : number(own.range_nbytes),
    method: String(request.method), key: unquote(url.path), host: url.host, status: number(response.status, NaN, 999), nbytes: number(response.bodySize, NaN),
    sent_nbytes: number(request.bodySize, 0), user_agent: String(own.user_agent ?? ""), site: own.site ?? -1,
  };
  if (Number.isNaN(row.status) || Number.isNaN(row.nbytes)) throw new HarError("no status or bodySize");
  if (row.site !== -1 && !(Number.isInteger(row.site) && row.site >= 0 && row.site < nSites)) throw new HarError("a line that is not there");
  const first = row.first_byte_s || row.start_s;
  if (first < row.start_s || (row.end_s && row.end_s < first)) throw new HarError("times that run backwards");
  return row;
}
// Reads the text of an archive, or throws a HarError of one line.
function readHar(text, catalog) {
  let content;
  try {
    content = JSON.parse(text.replace(/^\uFEFF/, ""));
  } catch {
    throw new HarError("This file is not JSON: it is no HAR, or it broke off.");
  }
  const log = content?.log, entries = log?.entries;
  if (!Array.isArray(entries)) throw new HarError("This file has no log with entries; a HAR 1.2 has.");
  if (entries.length > catalog.limits.max_entries) throw new HarError(`This file has ${entries.length.toLocaleString("en-US")} entries; allowed: at most ${catalog.limits.max_entries.toLocaleString("en-US")}.`);
  const rows = [], connections = new Set(), isOwn = "_run" in log, sites = isOwn && Array.isArray(log._sites) ? log._sites : [];
  let nLeft = 0;
  entries.forEach((entry, number) => {
    try {
      const row = isOwn ? readOwnEntry(entry, sites.length) : readEntry(entry, connections, catalog);
      if (row) rows.push(row); else nLeft++;
    } catch (error) {
      throw new HarError(`Entry ${number} of this file cannot be read: ${error instanceof HarError ? error.message : "it is no entry of a HAR"}.`);
    }
  });
  if (!rows.length) throw new HarError(`None of the ${entries.length.toLocaleString("en-US")} entries of this file was on the network.`);
  const run = {rows, nLeft, sites, isOwn, exit_code: 0, processor_s: [], begin_s: smallest(rows.map((row) => row.start_s - row.handshake_s), Infinity)};
  run.wall_s = Math.max(largest(rows.map((row) => row.end_s), 0) - run.begin_s, 1e-6);
  if (isOwn) {
    const {begin_s, wall_s, exit_code, processor_s} = log._run ?? {};
    if (![begin_s, wall_s].every((value) => typeof value === "number" && value >= 0 && value < 1e11) || wall_s < 1e-6) throw new HarError("This file has no run that can be read, and says that wire trace wrote it.");
    Object.assign(run, {begin_s, wall_s, exit_code: exit_code || 0, processor_s: Array.isArray(processor_s) ? processor_s : []});
  }
  return run;
}

/* what a trace says in numbers */

function kindOf(row, catalog, patterns) {
  const name = lastName(row.key);
  if (catalog.names.services.includes(row.host.split(":")[0])) return "credentials";
  if (!["GET", "HEAD"].includes(row.method)) return "write";
  if (row.status === 404) return "probe";
  if (row.method === "HEAD") return "HEAD";
  if (row.is_listing || (row.key.endsWith("/") && row.range_start === null)) return "listing";
  if (catalog.names.metadata.includes(name)) return "metadata";
  if (patterns.manifest.test(row.key)) return "manifest";
  if (patterns.chunk.test(row.key)) return "chunk";
  return row.range_nbytes !== null ? "range" : "object";
}
const spanOf = (row) => [row.range_start ?? 0, (row.range_start ?? 0) + row.nbytes];

// The bytes of each span that lie in none before it.
function freshBytes(spans) {
  const edges = ascending(unique(spans.flat())), places = new Map(edges.map((edge, place) => [edge, place]));
  const following = edges.map((_, place) => place);
  const skip = (place) => {
    while (following[place] !== place) place = following[place] = following[following[place]];
    return place;
  };
  return spans.map(([start, end]) => {
    let nbytes = 0;
    for (let place = skip(places.get(start)); place < places.get(end); place = skip(place)) {
      nbytes += edges[place + 1] - edges[place];
      following[place] = place + 1;
    }
    return nbytes;
  });
}
// Sweeps over the requests: begin and end of each interval, requests before and after their first byte, and the part in which bodies waited for the client.
function intervals(rows, untilS) {
  const starts = [], firsts = [], ends = [], changes = [];
  for (const row of rows) {
    const end = row.end_s || untilS, first = Math.min(row.first_byte_s || end, end);
    starts.push(row.start_s);
    firsts.push(first);
    ends.push(end);
    if (row.client_blocked_s && end > first) {
      const share = Math.min(1, row.client_blocked_s / (end - first));
      changes.push([first, share], [end, -share]);
    }
  }
  const moments = ascending([...starts, ...firsts, ...ends]);
  for (const list of [starts, firsts, ends]) list.sort((a, b) => a - b);
  changes.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const result = [];
  let begun = 0, answered = 0, ended = 0, changed = 0, blocked = 0;
  moments.forEach((time, place) => {
    const next = moments[place + 1] ?? untilS;
    if (next <= time) return;
    while (starts[begun] <= time) begun++;
    while (firsts[answered] <= time) answered++;
    while (ends[ended] <= time) ended++;
    while (changed < changes.length && changes[changed][0] <= time) blocked += changes[changed++][1];
    const flowing = answered - ended;
    result.push([time, next, begun - answered, flowing, flowing ? blocked / flowing : 0]);
  });
  return result;
}
// The requests under way when each began, itself included.
function inFlight(rows, toleranceS) {
  const starts = ascending(rows.map((row) => row.start_s)), ends = ascending(rows.map((row) => row.end_s));
  return starts.map((start, i) => i + 1 - bisectRight(ends, start + toleranceS, i));
}
// The requests of the longest chain in which each began after the one before had ended.
function countWaits(rows, toleranceS) {
  const ends = [], depths = [];  // of those under way, by their ends
  let depth = 0, deepest = 0;
  for (const row of [...rows].sort((a, b) => a.start_s - b.start_s)) {
    while (ends.length && ends[0] <= row.start_s + toleranceS) {
      ends.shift();
      depth = Math.max(depth, depths.shift());
    }
    const place = bisectRight(ends, row.end_s);
    ends.splice(place, 0, row.end_s);
    depths.splice(place, 0, depth + 1);
    deepest = Math.max(deepest, depth + 1);
  }
  return deepest;
}
// Seconds of some stretches of time, which follow one another, up to a moment.
function makeClock(stretches) {
  const ends = stretches.map(([, end]) => end), passed = [0];
  for (const [begin, end] of stretches) passed.push(passed.at(-1) + end - begin);
  const total = passed.at(-1);
  return {total, by(time) {
    let low = 0, high = ends.length;
    while (low < high) {
      const half = (low + high) >> 1;
      if (ends[half] < time) low = half + 1; else high = half;
    }
    return low === ends.length ? total : passed[low] + Math.max(0, time - stretches[low][0]);
  }};
}
// What each second was spent on; the seconds add up to those of the whole.
function findTime(run) {
  const endS = run.begin_s + run.wall_s, rows = run.rows;
  const spans = rows.map((row) => [row.start_s - row.handshake_s, row.end_s || endS]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const time = {start: 0, connections: 0, "first bytes": 0, bodies: 0, client: 0, processor: 0, idle: 0};
  time.start = Math.max(0, spans[0][0] - run.begin_s);
  for (const [begin, end, nWaiting, nFlowing, blocked] of intervals(rows, endS)) {
    if (nFlowing) {
      time.client += blocked * (end - begin);
      time.bodies += (1 - blocked) * (end - begin);
    } else if (nWaiting) time["first bytes"] += end - begin;
  }
  const gaps = [];
  let until = spans[0][0];
  for (const [begin, end] of [...spans, [endS, endS]]) {
    if (begin > until) gaps.push([until, begin]);
    until = Math.max(until, end);
  }
  if (run.processor_s.length > 1 && gaps.length) {
    const clock = makeClock(gaps), passed = run.processor_s.map(([moment]) => clock.by(moment));
    for (let i = 1; i < passed.length; i++) time.processor += Math.max(0, Math.min(passed[i] - passed[i - 1], run.processor_s[i][1] - run.processor_s[i - 1][1]));
  }
  time.idle = sum(gaps.map(([begin, end]) => end - begin)) - time.processor;
  time.connections = Math.max(0, run.wall_s - sum(Object.values(time)));
  return time;
}
// Latency in the median, and the rate of one stream, which no number is where no large body shows it.
function findNetwork(rows, limits) {
  const firsts = rows.filter((row) => row.first_byte_s && row.status < 400).map((row) => row.first_byte_s - row.start_s);
  const rates = rows.filter((row) => row.nbytes >= limits["analysis.large_nbytes"] && row.first_byte_s && !row.is_cut)
    .map((row) => row.nbytes / Math.max(row.end_s - row.first_byte_s - row.client_blocked_s, 1e-4));
  return {latency_s: firsts.length ? median(firsts) : 0, stream: rates.length ? quantile(rates, 3, 4) : Infinity};
}
function clientOf(agent, catalog) {
  let small = agent.toLowerCase();
  if (small.startsWith("python/3")) small = small.split(" ").slice(1).join(" ");
  return Object.keys(catalog.clients).find((name) => catalog.clients[name].some((begin) => small.startsWith(begin))) ?? "";
}

/* A trace: the requests that ended, in the order in which they began, and what all causes ask of them. */
function makeTrace(run, catalog) {
  const limits = catalog.limits, names = catalog.names;
  const patterns = {manifest: new RegExp(catalog.patterns.manifest), chunk: new RegExp(catalog.patterns.chunk)};
  const rows = run.rows.filter((row) => row.end_s).sort((a, b) => a.start_s - b.start_s);
  const kinds = rows.map((row) => kindOf(row, catalog, patterns)), all = rows.map((_, i) => i);
  const data = all.filter((i) => names.data.includes(kinds[i]) && rows[i].status < 300);
  const mostInFlight = (places) => largest(inFlight(places.map((i) => rows[i]), limits.tolerance_s), 0);
  const nRetried = rows.filter((row) => names.retried.includes(row.status)).length;
  const seen = new Set(), repeated = [];
  for (const i of all) {
    const row = rows[i];
    if (row.method !== "GET" || row.status >= 300 || kinds[i] === "listing") continue;
    const name = `${nameOf(row)} ${row.range_start} ${row.range_nbytes}`;
    if (seen.has(name)) repeated.push(i);
    seen.add(name);
  }
  return {
    run, rows, kinds, all, data, repeated, limits, names, mostInFlight, nDataInFlight: mostInFlight(data), network: findNetwork(rows, limits), time: findTime(run),
    statuses: catalog.statuses,
    isChunk: (row) => patterns.chunk.test(row.key),
    isMetadata: (row) => ["GET", "HEAD"].includes(row.method) && names.metadata.includes(lastName(row.key)),
    arrayOf: (key) => key.replace(patterns.chunk, ""),
    byObject: (places) => [...groupBy(places, (i) => nameOf(rows[i])).values()],
    bytes: (places) => places.map((i) => rows[i].nbytes),
    isThrottled: nRetried > 1 && nRetried >= limits["whatif.throttled"] * rows.length,
    spanS: rows.length ? largest(rows.map((row) => row.end_s), 0) - rows[0].start_s : 0,
  };
}
const describeStatus = (trace, status) => trace.statuses[status] ? `${status} ${trace.statuses[status]}` : status ? `status ${status}` : "no answer";
const places = (trace, chosen) => trace.all.filter((i) => chosen(trace.rows[i], i));
const isWaiting = (trace, chosen) => {
  const rows = chosen.map((i) => trace.rows[i]);
  return sum(rows.map((row) => (row.first_byte_s || row.end_s) - row.start_s)) >= trace.limits["ranges.waiting"] * sum(rows.map((row) => row.end_s - row.start_s));
};
const drop = (chosen, text) => chosen.length ? {rows: chosen, text} : null;
// Most frequent first, the earliest of equals.
const mostCommon = (values) => [...groupBy(values, (value) => value).values()].reduce((most, group) => group.length > most.length ? group : most, []);

/* The causes that are sought here, by the names of the registry: each returns its requests and the evidence, or nothing. */
const FINDERS = {
  failed(trace) {
    if (trace.run.exit_code) return null;
    const arrived = new Set(trace.rows.filter((row) => row.status >= 200 && row.status < 300 && row.method === "GET").map(nameOf));
    const failed = places(trace, (row) => row.method === "GET" && ((row.status >= 400 && row.status !== 404) || !row.status) && trace.isChunk(row) && !arrived.has(nameOf(row)));
    if (!failed.length) return null;
    const n = unique(failed.map((i) => trace.rows[i].key)).length;
    return {rows: failed, text: `${n} chunks never came (the first: ${describeStatus(trace, trace.rows[failed[0]].status)}), and the program ended well: their values may be fill values`};
  },
  refused(trace) {
    const {no_refusals, retried} = trace.names;
    const refused = places(trace, (row) => (row.status >= 400 && !no_refusals.includes(row.status) && !retried.includes(row.status)) || !row.status);
    if (refused.length < Math.max(2, Math.min(trace.limits["results.few"], 0.5 * trace.rows.length))) return null;
    const common = mostCommon(refused.map((i) => trace.rows[i].status));
    return {rows: refused, text: `${common.length} of ${trace.rows.length} requests were answered ${describeStatus(trace, common[0])}`};
  },
  link(trace) {
    const {time, run, limits} = trace, asking = run.wall_s - time.start;
    if (time.bodies < limits["results.busy"] * asking || trace.nDataInFlight < 2) return null;
    const rate = sum(trace.rows.map((row) => row.nbytes)) / time.bodies / 1e6;
    const chunks = trace.bytes(trace.data.filter((i) => trace.kinds[i] === "chunk"));
    const large = chunks.length && median(chunks) >= limits["results.large_chunk_nbytes"] ? `; each chunk has ${formatSize(median(chunks))}, needed or not` : "";
    return {rows: [], waited: time.bodies, text: `bytes arrive in ${fixed(time.bodies, 1)} of ${fixed(asking, 1)} s, ${fixed(rate, 0)} MB/s in all: no request is in the way of another${large}`};
  },
  looks(trace) {
    const dropped = [];
    for (const group of trace.byObject(trace.all)) {
      for (let k = 1; k < group.length; k++) {
        const row = trace.rows[group[k - 1]];
        if (row.method === "HEAD" && row.status < 300 && trace.rows[group[k]].method === "GET") dropped.push(group[k - 1]);
      }
    }
    const nGet = places(trace, (row) => row.method === "GET").length;
    return drop(ascending(dropped), `before ${dropped.length} of ${nGet} reads an extra request (HEAD) asked for the size`);
  },
  samples(trace) {
    const again = new Set(trace.repeated.filter((i) => trace.kinds[i] === "chunk"));
    if (again.size < trace.limits["objects.few"]) return null;
    const chunks = trace.data.filter((i) => trace.kinds[i] === "chunk"), latest = new Map();
    let nNext = 0;
    chunks.forEach((i, number) => {
      const name = nameOf(trace.rows[i]);
      nNext += again.has(i) && number - (latest.get(name) ?? -1e9) === 1;
      latest.set(name, number);
    });
    if (nNext < 0.5 * again.size) return null;
    return drop(ascending(again), `${latest.size} chunks were read ${chunks.length} times: each sample reads the chunk again that it lies in`);
  },
  repeats(trace) {
    return drop(trace.repeated, `${trace.repeated.length} requests brought ${formatSize(sum(trace.bytes(trace.repeated)))} that had come before`);
  },
  metadata(trace) {
    const wanted = places(trace, trace.isMetadata);
    const folders = new Set(wanted.filter((i) => trace.rows[i].status < 300).map((i) => folder(trace.rows[i].key)));
    if (folders.size <= trace.limits["objects.places"]) return null;
    const chosen = new Set(wanted);
    const family = trace.all.slice(wanted[0], wanted.at(-1) + 1).filter((i) => chosen.has(i) || trace.kinds[i] === "listing"
      || (["HEAD", "probe"].includes(trace.kinds[i]) && !trace.isChunk(trace.rows[i])));
    return {rows: family, text: `${family.length} requests for metadata in ${folders.size} places, which could be in one`};
  },
  probes(trace) {
    const missing = places(trace, (row) => row.status === 404);
    const example = mostCommon(missing.map((i) => lastName(trace.rows[i].key)))[0] ?? "";
    return drop(missing, `${missing.length} of ${trace.rows.length} requests were answered 404, such as for ${example}`);
  },
  listings(trace) {
    const listings = trace.all.filter((i) => trace.kinds[i] === "listing");
    return drop(listings, `${listings.length} listings for ${trace.data.length} reads`);
  },
  overlaps(trace) {
    const part = [];
    let moved = 0, needed = 0;
    for (const group of trace.byObject(trace.data.filter((i) => trace.kinds[i] === "range"))) {
      const spans = group.map((i) => spanOf(trace.rows[i])), fresh = freshBytes(spans), known = new Set();
      group.forEach((i, k) => {
        if (!known.has(spans[k].join()) && fresh[k] < trace.rows[i].nbytes) part.push(i);
        known.add(spans[k].join());
        moved += trace.rows[i].nbytes;
        needed += fresh[k];
      });
    }
    if (!part.length || moved < trace.limits["ranges.wasted"] * needed) return null;
    return {rows: ascending(part), text: `${formatSize(moved)} came for ${formatSize(needed)} of the files: a read-ahead is thrown away at each jump`};
  },
  neighbours(trace) {
    const ranges = trace.all.filter((i) => ["range", "chunk"].includes(trace.kinds[i]) && trace.rows[i].range_start !== null);
    const touching = [];
    let nAll = 0, nJoined = 0;
    for (const group of trace.byObject(ranges)) {
      let from = spanOf(trace.rows[group[0]])[0];
      nAll += group.length - 1;
      nJoined++;
      for (let k = 1; k < group.length; k++) {
        const before = trace.rows[group[k - 1]], row = trace.rows[group[k]], [start, end] = spanOf(row), gap = start - spanOf(before)[1];
        const isTouching = gap >= 0 && gap <= trace.limits["ranges.gap_nbytes"] && row.start_s >= before.end_s;
        if (isTouching) touching.push(group[k]);
        if (isTouching && end - from <= trace.limits["ranges.joined_nbytes"]) continue;
        from = start;
        nJoined++;
      }
    }
    if (touching.length < 0.5 * nAll) return null;
    return {rows: ascending(touching), text: `${touching.length} of ${nAll} neighbours touch; joined they are ${nJoined} requests instead of ${ranges.length}`};
  },
  "parts-in-turn"(trace) {
    const ranges = trace.data.filter((i) => trace.kinds[i] === "range"), objects = trace.byObject(ranges);
    if (ranges.length < Math.max(trace.limits["ranges.few"], 0.5 * trace.data.length) || objects.length > 0.5 * ranges.length) return null;
    if (trace.nDataInFlight !== 1 || !isWaiting(trace, ranges)) return null;
    const name = objects.length === 1 ? "one object" : `${objects.length} objects`;
    return {rows: ranges, text: `${ranges.length} ranges of ${name} were read one after the other, ${formatSize(median(trace.bytes(ranges)))} each`};
  },
  "one-stream"(trace) {
    const large = trace.data.filter((i) => trace.rows[i].nbytes >= trace.limits["ranges.large_nbytes"]);
    if (!large.length || trace.mostInFlight(large) > 1) return null;
    return {rows: large, text: `${formatSize(sum(trace.bytes(large)))} came one stream at a time, of ${fixed(trace.network.stream / 1e6, 0)} MB/s`};
  },
  "in-turn"(trace) {
    if (trace.isThrottled) return null;
    const objects = trace.byObject(trace.data);
    const nParts = sum(objects.map((group) => group.slice(1).filter((i) => trace.kinds[i] === "chunk" && trace.rows[i].range_nbytes).length));
    if (objects.length + nParts < Math.max(trace.limits["concurrency.few"], 0.5 * trace.data.length) || trace.nDataInFlight !== 1) return null;
    const what = nParts ? `${nParts} chunks of shards` : `${objects.length} objects`;
    return {rows: trace.data, text: `${what} were read one after the other, ${formatSize(median(trace.bytes(trace.data)))} each`};
  },
  few(trace) {
    if (trace.isThrottled) return null;
    const n = trace.nDataInFlight, rows = trace.data.map((i) => trace.rows[i]), busy = trace.limits["concurrency.busy"];
    if (!(n > 1 && n <= trace.limits["concurrency.few_in_flight"]) || rows.length < 3 * n) return null;
    if (inFlight(rows, trace.limits.tolerance_s).filter((value) => value === n).length < busy * (rows.length - n)) return null;
    const span = largest(rows.map((row) => row.end_s), 0) - rows[0].start_s;
    const mean = sum(rows.map((row) => row.end_s - row.start_s)) / Math.max(span, 1e-9);
    if (mean < busy * n) return null;
    return {rows: trace.data, text: `${rows.length} requests for data, never more than ${n} concurrent, ${fixed(mean, 1)} in the mean`};
  },
  "small-chunks"(trace) {
    const chunks = trace.data.filter((i) => trace.kinds[i] === "chunk");
    if (chunks.length < trace.limits["concurrency.many_chunks"]) return null;
    const size = median(trace.bytes(chunks));
    if (!(size > 0 && size <= trace.limits["concurrency.small_chunk_nbytes"])) return null;
    return {rows: chunks, text: `${chunks.length} chunks of ${formatSize(size)} each, where a few MB cost hardly more time`};
  },
  "slow-tail"(trace) {
    const {limits} = trace, answered = places(trace, (row) => row.first_byte_s && row.status < 400 && row.method === "GET");
    if (answered.length < limits["concurrency.least_of_tail"]) return null;
    const wait = (i) => trace.rows[i].first_byte_s - trace.rows[i].start_s, middle = median(answered.map(wait));
    const lateS = Math.max(limits["concurrency.late"] * middle, middle + limits["concurrency.late_s"]), late = answered.filter((i) => wait(i) > lateS);
    if (!late.length || late.length > limits["concurrency.tail"] * answered.length || sum(late.map(wait)) < limits["concurrency.tail_share"] * trace.spanS) return null;
    return {rows: late, text: `${late.length} of ${answered.length} answers took more than ${rounded(lateS, 2)} s, where the median is ${fixed(1000 * middle, 0)} ms`};
  },
  writes(trace) {
    const writes = trace.all.filter((i) => trace.kinds[i] === "write" && ["PUT", "POST"].includes(trace.rows[i].method) && trace.rows[i].status < 300);
    if (writes.length < trace.limits["concurrency.few"] || trace.mostInFlight(writes) > 1) return null;
    return {rows: writes, text: `${writes.length} objects were written one after the other, ${formatSize(median(writes.map((i) => trace.rows[i].sent_nbytes)))} each`};
  },
  throttled(trace) {
    const refused = places(trace, (row) => trace.names.retried.includes(row.status));
    return drop(refused, `${refused.length} of ${trace.rows.length} requests were refused, and then asked again`);
  },
  connections(trace) {
    const opened = places(trace, (row) => row.is_first), most = trace.mostInFlight(trace.all);
    if (!opened.length || opened.length < Math.max(trace.limits["connections.few"], 0.5 * trace.rows.length, 2 * most)) return null;
    return {rows: opened, text: `${opened.length} connections for ${trace.rows.length} requests, each set up in ${fixed(1000 * median(opened.map((i) => trace.rows[i].handshake_s)), 0)} ms`};
  },
  redirects(trace) {
    const moved = places(trace, (row) => trace.names.redirects.includes(row.status));
    return drop(moved, `${moved.length} of ${trace.rows.length} requests were sent on to another address`);
  },
};

// The seconds in which any of some requests was under way.
function measureWait(trace, chosen) {
  let total = 0, until = -Infinity;
  for (const row of chosen.map((i) => trace.rows[i])) {
    total += Math.max(0, row.end_s - Math.max(row.start_s, until));
    until = Math.max(until, row.end_s);
  }
  return total;
}
// Every cause that the requests show, whatever it costs.
function seekCauses(trace, catalog) {
  return catalog.causes.flatMap((cause) => {
    const evidence = FINDERS[cause.name]?.(trace);
    if (!evidence || evidence.rows.length < cause.least) return [];
    const waited = evidence.waited ?? measureWait(trace, ascending(evidence.rows));
    return [{...evidence, name: cause.name, cause, waited}];
  });
}
// Those that can be worth a change: a request cannot save more than it took. Parts of another cause are left out.
function chooseCauses(trace, causes) {
  const {limits} = trace, least = Math.max(limits.least_s, limits.least_share * trace.run.wall_s, (1 - 1 / limits.worth) * trace.spanS);
  const serious = causes.filter(({cause, waited}) => !cause.rank || waited >= least);
  const shared = (whole, part) => {
    const rows = new Set(whole.rows);
    return part.rows.filter((i) => rows.has(i)).length >= limits.same * part.rows.length;
  };
  return serious
    .filter((part) => !serious.some((whole) => whole.cause.absorbs.includes(part.name) && shared(whole, part)))
    .sort((a, b) => a.cause.rank - b.cause.rank || b.waited - a.waited);
}

// All that the page shows of a run.
function analyse(run, catalog) {
  const trace = makeTrace(run, catalog), {rows} = trace;
  const agent = mostCommon(rows.map((row) => clientOf(row.user_agent, catalog)))[0] ?? "";
  const sought = seekCauses(trace, catalog);
  const failed = run.rows.filter((row) => row.status >= 400 || !row.status);
  return {
    trace, sought, wall_s: run.wall_s, n_requests: run.rows.length, hosts: unique(run.rows.map((row) => row.host)).sort(),
    n_waits: countWaits(rows, trace.limits.tolerance_s), n_in_flight: trace.mostInFlight(trace.all),
    moved_nbytes: sum(run.rows.map((row) => row.nbytes)),
    unique_nbytes: sum([...groupBy(rows, nameOf).values()].map((group) => sum(freshBytes(group.map(spanOf))))),
    time_s: trace.time, latency_s: trace.network.latency_s,
    stream_mb_per_s: Number.isFinite(trace.network.stream) ? trace.network.stream / 1e6 : 0,
    kinds: Object.fromEntries([...groupBy(trace.kinds, (kind) => kind)].map(([kind, group]) => [kind, group.length])),
    refused: Object.fromEntries([...groupBy(failed, (row) => row.status)].map(([status, group]) => [status, group.length])),
    causes: chooseCauses(trace, sought).map((item) => ({...item, title: item.cause.title, remedy: item.cause.clients[agent] ?? item.cause.remedy, see: item.cause.see})),
    nLeft: run.nLeft, isOwn: run.isOwn,
  };
}
// The columns that the waterfall draws.
function makeColumns(report) {
  const {trace} = report, {run} = trace, until = run.begin_s + run.wall_s;
  const order = trace.all, micro = (seconds) => Math.max(0, Math.round(1e6 * seconds));
  const begins = order.map((i) => micro(trace.rows[i].start_s - trace.rows[i].handshake_s - run.begin_s));
  const sorted = [...order].sort((a, b) => begins[a] - begins[b] || a - b), rows = sorted.map((i) => trace.rows[i]);
  const marks = new Array(trace.rows.length).fill(0);
  report.causes.slice(0, 30).forEach((item, number) => item.rows.forEach((i) => { marks[i] |= 1 << number; }));
  const table = (values) => unique(values), numbers = (values, known) => values.map((value) => known.indexOf(value));
  const lineNames = run.sites.map((site) => JSON.stringify([`${site.is_certain ? "" : "about "}${site.file}:${site.line}`, String(site.source ?? "")]));
  const lines = table(lineNames);
  const methods = table(rows.map((row) => row.method)), kinds = table(trace.kinds), hosts = table(rows.map((row) => row.host));
  return {
    version: 1, n: rows.length, total: run.rows.length, wall: micro(run.wall_s),
    start: sorted.map((i, k) => begins[i] - (k ? begins[sorted[k - 1]] : 0)), setup: rows.map((row) => micro(row.handshake_s)),
    wait: rows.map((row) => micro((row.first_byte_s || row.end_s || until) - row.start_s)), body: rows.map((row) => micro((row.end_s || until) - (row.first_byte_s || row.end_s || until))),
    status: rows.map((row) => row.status), bytes: rows.map((row) => row.nbytes), from: rows.map((row) => row.range_start ?? -1),
    shared: rows.map(() => 0), rest: rows.map((row) => row.key), line: rows.map((row) => row.site >= 0 ? lines.indexOf(lineNames[row.site]) : -1), cause: sorted.map((i) => marks[i]),
    method: numbers(rows.map((row) => row.method), methods), kind: numbers(sorted.map((i) => trace.kinds[i]), kinds), host: numbers(rows.map((row) => row.host), hosts),
    methods, kinds, hosts, lines: lines.map((line) => JSON.parse(line)).map(([name, code]) => ({name, code})),
    causes: report.causes.slice(0, 30).map((item) => ({title: item.title, line: item.remedy})),
  };
}
// The causes of the registry that are not sought here.
const listOthers = (catalog) => catalog.causes.filter((cause) => !(cause.name in FINDERS));

/* the page */

function make(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}
function writeReport(report, catalog) {
  const time = report.time_s, count = (n) => n.toLocaleString("en-US");
  const failed = Object.entries(report.refused).map(([status, n]) => `${count(n)} with ${describeStatus(report.trace, Number(status))}`);
  const facts = [
    ["time", `${formatSeconds(report.wall_s)} ${report.isOwn ? "of the whole program" : "from the first request to the last"}`],
    ["waiting for a first byte", formatSeconds(time["first bytes"])], ["bodies arriving", formatSeconds(time.bodies + time.client)],
    ["connections", formatSeconds(time.connections)], ["no request under way", formatSeconds(time.start + time.processor + time.idle)],
    ["requests", `${count(report.n_requests)}: ${Object.entries(report.kinds).sort((a, b) => b[1] - a[1]).map(([kind, n]) => `${count(n)} ${kind}`).join(", ")}`],
    ["in turn", `${count(report.n_waits)} requests in the longest chain, each begun after the one before had ended`], ["most concurrent", count(report.n_in_flight)],
    ["bytes moved", `${formatSize(report.moved_nbytes)}, of which ${formatSize(report.unique_nbytes)} are different bytes`],
    ["latency", `${fixed(1000 * report.latency_s, 0)} ms in the median`], ["failed", failed.join(", ") || "none"],
  ];
  const list = make("dl", {className: "har-facts"}, ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
  const causes = report.causes.map((item) => make("li", {},
    make("strong", {}, item.title), `: ${item.text}. Such requests were under way for ${formatSeconds(item.waited)}. `,
    make("pre", {tabIndex: 0}, make("code", {}, item.remedy)), make("a", {href: item.see}, "more on this")));
  const notes = report.nLeft ? [make("p", {}, `${count(report.nLeft)} entries came from a cache or never were on the network; they are left out.`)] : [];
  return [
    make("h2", {}, "What to change"),
    causes.length ? make("ol", {className: "har-causes"}, ...causes) : make("p", {}, "None of the causes that are sought here is in this file."),
    make("h2", {}, "Where the time goes"), list, ...notes,
  ];
}
async function showFile(file, place, catalog) {
  place.status.textContent = `Reading ${file.name} …`;
  place.report.replaceChildren();
  place.waterfall.hidden = true;
  try {
    const report = analyse(readHar(await file.text(), catalog), catalog);
    place.report.replaceChildren(...writeReport(report, catalog));
    place.waterfall.replaceChildren();
    const host = make("div");
    place.waterfall.append(host);
    place.waterfall.hidden = false;
    globalThis.wireWaterfall.mount(host, makeColumns(report));
    place.status.textContent = `${file.name}: ${report.n_requests.toLocaleString("en-US")} requests in ${formatSeconds(report.wall_s)}, ${report.causes.length === 1 ? "1 cause" : `${report.causes.length} causes`} found.`;
  } catch (error) {
    place.status.textContent = error instanceof HarError ? error.message : `This file cannot be analysed: ${error.message}`;
    if (!(error instanceof HarError)) console.warn(error);
  }
}
function startPage() {
  const source = document.getElementById("har-catalog"), input = document.getElementById("har-file");
  if (!source || !input) return;
  const catalog = JSON.parse(source.textContent), find = (id) => document.getElementById(id);
  const place = {status: find("har-status"), report: find("har-report"), waterfall: find("har-waterfall")}, target = find("har-drop");
  const others = listOthers(catalog);
  find("har-others").textContent = `wire trace show FILE.har also predicts gains, looks at each line and stretch of a program by itself, and seeks ${others.length} more causes: ${others.map((cause) => cause.title).join("; ")}.`;
  place.status.textContent = "No file yet.";
  input.disabled = false;
  input.addEventListener("change", () => { if (input.files.length) showFile(input.files[0], place, catalog); });
  for (const name of ["dragover", "dragleave", "drop"]) target.addEventListener(name, (event) => {
    event.preventDefault();
    target.classList.toggle("over", name === "dragover");
    if (name === "drop" && event.dataTransfer.files.length) showFile(event.dataTransfer.files[0], place, catalog);
  });
}

globalThis.wireHar = {HarError, readHar, analyse, makeColumns, listOthers, FINDERS};
if (typeof document !== "undefined") {
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", startPage);
  else startPage();
}
})();
