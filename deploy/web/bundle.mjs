// Makes dist/index.html: one file that holds its script and style, and that runs nothing else.

import { createHash } from "node:crypto";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { build } from "esbuild";

const options = { bundle: true, minify: true, target: "es2022", write: false, legalComments: "none" };

async function bundled(entry) {
  const { outputFiles } = await build({ ...options, entryPoints: [entry], format: "iife" });
  return outputFiles[0].text.trim();
}

function hashed(text) {
  return `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
}

const [page, style, script] = await Promise.all([readFile("src/index.html", "utf8"), bundled("src/style.css"), bundled("src/main.ts")]);
// The address of the server is the user's to choose, so any may be connected to.
const policy = `default-src 'none'; script-src ${hashed(script)}; style-src ${hashed(style)}; img-src data:; connect-src *; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'`;
const parts = {
  policy: `<meta http-equiv="Content-Security-Policy" content="${policy}">`,
  style: `<style>${style}</style>`,
  script: `<script type="module">${script}</script>`,
};
const whole = page.replace(/<!-- (policy|style|script) -->/g, (_, part) => parts[part]);
await mkdir("dist", { recursive: true });
await writeFile("dist/index.html", whole);
console.log(`dist/index.html ${Buffer.byteLength(whole)} bytes`);
