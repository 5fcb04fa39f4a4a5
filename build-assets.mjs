/** Copies what the compiler leaves behind: C++ sources and headers, plain JavaScript with its types, and makes the command executable. */
import { chmodSync, cpSync } from "node:fs";

const isAsset = (path) => /\.d\.ts$/.test(path) || !/\.ts$/.test(path);
for (const folder of ["fleet/batch", "network/models", "perfmodel", "runtime/emulation", "runtime/harness", "bench/peers", "bench/suites", "package/files"])
  cpSync(folder, `dist/${folder}`, { recursive: true, filter: isAsset });
chmodSync("dist/cli/main.js", 0o755);
