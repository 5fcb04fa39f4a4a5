/** @file The Python module of a network's package, with a PyTorch and a library that are made up: what it made, it destroys once, at exit too. */

import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { findProgram } from "../../runtime/child.ts";
import { scratchFolder } from "../support/scratch.ts";

const PYTHON = findProgram("python3");
const TORCH = `
import contextlib
class nn:
    class Module:
        pass
class cuda:
    device = staticmethod(contextlib.nullcontext)
class device:
    def __init__(self, words):
        self.index = 0
float32, Size = "float32", tuple
`;
const LIBRARY = `#include <cstdio>
extern "C" int made_up_create(void** made, int) { *made = (void*)1; return 0; }
extern "C" int made_up_destroy(void*) { puts("destroyed"), fflush(stdout); return 0; }
extern "C" int made_up_run(void*, void*, void*, void*) { return 0; }
extern "C" const char* made_up_message(int) { return ""; }
`;
const HEADER = 'NAME = "made_up"\nINPUTS = [("x", "float32", [1])]\nOUTPUTS = [("y", "float32", [1])]\n';

it.skipIf(PYTHON === undefined)("a network is destroyed once, without a word of Python's", () => {
  const folder = scratchFolder();
  const file = (name: string): string => join(folder, name);
  writeFileSync(file("torch.py"), TORCH);
  const text = readFileSync("package/files/torch_network.py", "utf8");
  writeFileSync(file("made_up.py"), `${HEADER}${text}`);
  writeFileSync(file("made_up.cpp"), LIBRARY);
  execFileSync("g++", ["-shared", "-fPIC", "-o", file("libmade_up.so"), file("made_up.cpp")]);
  const said = (program: string): string => {
    const run = spawnSync(PYTHON ?? "", ["-c", `import made_up\n${program}`], { cwd: folder, encoding: "utf8" });
    return `${run.stdout}${run.stderr}`;
  };
  // Before what was there first ends, such as the device's driver; or when it is dropped.
  expect(said("import atexit\natexit.register(print, 'ended')\nnet = made_up.Network()")).toBe("destroyed\nended\n");
  expect(said("net = made_up.Network()\ndel net\nprint('after')")).toBe("destroyed\nafter\n");
});
