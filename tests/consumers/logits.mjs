// SPDX-License-Identifier: MIT OR Apache-2.0
// Prints what llama.cpp computes with a model, exactly: logits.mjs MODULES MODEL.gguf [--from-disk]
// It fails unless the weights are mapped from a file in memory, or with --from-disk unless they are not.

import fs from "node:fs";
import path from "node:path";
import {pathToFileURL} from "node:url";

const [modules, modelPath, from] = process.argv.slice(2);
const entry = path.join(modules, "node_modules/node-llama-cpp/dist/index.js");
const {getLlama} = await import(pathToFileURL(entry));

const llama = await getLlama({build: "never", gpu: false, progressLogs: false, logLevel: "error"});
const model = await llama.loadModel({modelPath, useMmap: true});
const mapped = fs.readFileSync("/proc/self/maps", "utf8").includes("/memfd:dmabuf-dio");
if (mapped !== (from !== "--from-disk")) {
    console.error(`mapped from a file in memory: ${mapped}`);
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
