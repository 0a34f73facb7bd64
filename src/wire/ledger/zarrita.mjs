// Read a part of an array by zarrita over HTTP and print the CRC-32 of its values as float64.
import { pathToFileURL } from "node:url";

function crc32(bytes) {
  let crc = -1;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (0xedb88320 & -(crc & 1));
  }
  return ~crc >>> 0;
}

const [modules, text] = process.argv.slice(2);
const job = JSON.parse(text);
const zarr = await import(pathToFileURL(`${modules}/zarrita/dist/src/index.js`).href);
const array = await zarr.open(new zarr.FetchStore(job.url), { kind: "array" });
const part = await zarr.get(array, job.ends.map(([first, end]) => zarr.slice(first, end)));
const values = Float64Array.from(part.data);
console.log(crc32(new Uint8Array(values.buffer)));
