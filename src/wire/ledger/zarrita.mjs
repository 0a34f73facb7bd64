// Read a part of an array by zarrita over HTTP and print the CRC-32 of its values as float64.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { crc32 } from "node:zlib";

const [modules, text] = process.argv.slice(2);
const job = JSON.parse(text);
const { resolve } = createRequire(`${modules}/`);
const zarr = await import(pathToFileURL(resolve("zarrita")).href);
const array = await zarr.open(new zarr.FetchStore(job.url), { kind: "array" });
const part = await zarr.get(array, job.ends.map(([first, end]) => zarr.slice(first, end)));
const values = Float64Array.from(part.data);
console.log(crc32(new Uint8Array(values.buffer)));
