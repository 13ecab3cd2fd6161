// SPDX-License-Identifier: MIT OR Apache-2.0
// Prints what llama.cpp computes with a model, exactly: logits.mjs MODULES MODEL.gguf [--from-disk | --from FILE]
// It fails unless the weights are mapped from a file in memory, from FILE, or with --from-disk from neither.

import fs from "node:fs";
import path from "node:path";
import {pathToFileURL} from "node:url";

const [modules, modelPath, from, file] = process.argv.slice(2);
const entry = path.join(modules, "node_modules/node-llama-cpp/dist/index.js");
const {getLlama} = await import(pathToFileURL(entry));

const llama = await getLlama({build: "never", gpu: false, progressLogs: false, logLevel: "error"});
const model = await llama.loadModel({modelPath, useMmap: true});
const place = from === "--from" ? ` ${file}\n` : "/memfd:dmabuf-dio";
const mapped = fs.readFileSync("/proc/self/maps", "utf8").includes(place);
if (mapped !== (from !== "--from-disk")) {
    console.error(`mapped from ${place.trim()}: ${mapped}`);
    process.exit(1);
}
const context = await model.createContext({contextSize: 256, threads: 1});
const sequence = context.getSequence();
const tokens = [1, 300, 400, 500, 600, 301, 999];
const steps = tokens.map((token) => [token, {generateNext: {probabilities: true}}]);
const results = await sequence.controlledEvaluate(steps);
const exact = (value) => Buffer.from(new Float64Array([value]).buffer).toString("hex");
for (const {next} of results) {
    const all = [...next.probabilities].sort(([a], [b]) => a - b);
    console.log(all.length, all.map(([token, value]) => `${token}:${exact(value)}`).join(" "));
}
await llama.dispose();
