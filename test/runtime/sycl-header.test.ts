/** @file The header that stands for SYCL ends a program with undefined behaviour, with a message. */

import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { spell, trustedCode } from "../../abstraction/source-text.ts";
import { runChild } from "../../runtime/child.ts";
import { compileSource } from "../../runtime/compiler.ts";
import { emulationFlags } from "../../runtime/emulation.ts";
import { compilerHere } from "../support/here.ts";

/** A group of sixteen work-items in sub-groups of eight, with eight floats of local memory, and what the header says of what they do. */
const MISUSES = [
  [
    "a barrier that some items do not come to",
    "if (l < 4) sycl::group_barrier(item.get_sub_group());",
    "waits for items",
  ],
  [
    "barriers of two kinds",
    "if (l < 8) sycl::group_barrier(item.get_group()); else sycl::group_barrier(item.get_sub_group());",
    "waits for",
  ],
  [
    "one barrier from two branches",
    "if (l % 2) sycl::group_barrier(item.get_sub_group()); else sycl::group_barrier(item.get_sub_group());",
    "from another place",
  ],
  [
    "one shuffle of a function that two branches call",
    "x = l % 2 ? shifted(item.get_sub_group(), x) : shifted(item.get_sub_group(), 2 * x);",
    "from another place",
  ],
  [
    "shuffles of two distances",
    "x = sycl::shift_group_left(item.get_sub_group(), x, l % 2 + 1);",
    "differs in its distance",
  ],
  ["an element beyond an accessor", "own[8] = x;", "is beyond its elements"],
  [
    "a pointer beyond an accessor",
    "own.get_multi_ptr<sycl::access::decorated::no>()[8] = x;",
    "beyond the elements of an accessor",
  ],
  [
    "local memory taken for global",
    "sycl::address_space_cast<sycl::access::address_space::global_space, sycl::access::decorated::no>(&own[0]);",
    "another address space",
  ],
  [
    "a shape of no device",
    "m::joint_matrix<sycl::sub_group, sycl::half, m::use::a, 8, 32, m::layout::row_major> a;" +
      "m::joint_matrix<sycl::sub_group, sycl::half, m::use::b, 32, 8, m::layout::row_major> b;" +
      "m::joint_matrix<sycl::sub_group, float, m::use::accumulator, 8, 8> c; m::joint_matrix_mad(item.get_sub_group(), c, a, b, c);",
    "no such combination",
  ],
] as const;

/** A generated source, which asks for a queue that is in order. */
const GENERATED = readFileSync(new URL("../golden/lanes.conv1d.sycl.cpp", import.meta.url), "utf8");

function program(statements: string): string {
  return `${GENERATED}
namespace m = sycl::ext::oneapi::experimental::matrix;
static float shifted(sycl::sub_group lanes, float x) { return sycl::shift_group_left(lanes, x, 1); }
static void run(int which) {
  emulation::required_lanes = 8;
  sycl::queue queue;
  queue.submit([&](sycl::handler& handler) {
    sycl::local_accessor<float, 1> own(8, handler);
    handler.parallel_for(sycl::nd_range<1>(16, 16), [=](sycl::nd_item<1> item) {
      const int l = item.get_local_id(0);
      float x = l;
      switch (which) {
${statements}
        default: for (int i = 0; i < 3; i++) x = shifted(item.get_sub_group(), x); sycl::group_barrier(item.get_group()); sycl::group_barrier(item.get_sub_group()); own[l % 8] = x;
      }
    });
  });
  if (which == 101) automap_launch(queue, nullptr, nullptr);
  if (which == 100) queue.submit([&](sycl::handler&) {});
}
int main(int, char** argv) { run(atoi(argv[1])); }
`;
}

describe("sycl.hpp", () => {
  it("ends each program with undefined behaviour, and no other", async () => {
    const found = await compilerHere();
    const text = program(MISUSES.map(([, statement], i) => `        case ${i}: { ${statement} break; }`).join("\n"));
    const workdir = mkdtempSync(join(tmpdir(), "automap-sycl-header-"));
    const flags = ["-std=c++17", "-O0", "-w", ...emulationFlags()];
    const compiled = await compileSource(spell(trustedCode(text), "c++"), flags, ".out", { compiler: found, workdir });
    if (compiled.status !== "compiled") throw new Error(compiled.log);
    const run = (which: number) => runChild([compiled.file, String(which)], { timeLimitMs: 900_000 });
    for (const [i, [name, , said]] of MISUSES.entries()) {
      const { status, stderr } = await run(i);
      expect({ name, status, stderr }).toMatchObject({ name, stderr: expect.stringContaining(said) });
      expect(status, name).not.toBe("ok");
    }
    expect((await run(100)).stderr).toContain("depends on nothing that ends behind the one before");
    expect((await run(101)).stderr).toContain("make the queue with sycl::property::queue::in_order");
    expect((await run(99)).status).toBe("ok");
  });
});
