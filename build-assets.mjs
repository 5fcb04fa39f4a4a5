/** Copies what the compiler leaves behind: C++ sources and headers, and makes the command executable. */
import { chmodSync, cpSync } from "node:fs";

const isCpp = (path) => !/\.ts$/.test(path);
for (const folder of ["runtime/emulation", "runtime/harness", "bench/peers", "bench/suites"]) cpSync(folder, `dist/${folder}`, { recursive: true, filter: isCpp });
chmodSync("dist/cli/main.js", 0o755);
