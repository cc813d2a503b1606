// Builds dist (ES modules) and dist/cjs (CommonJS).
import { spawnSync } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { createRequire } from "node:module";

const compiler = createRequire(import.meta.url).resolve("typescript/bin/tsc");
for (const project of ["tsconfig.json", "tsconfig.cjs.json"]) {
  const { status } = spawnSync(process.execPath, [compiler, "-p", project], { stdio: "inherit" });
  if (status !== 0) process.exit(status ?? 1);
}
await writeFile("dist/cjs/package.json", '{ "type": "commonjs" }\n');
