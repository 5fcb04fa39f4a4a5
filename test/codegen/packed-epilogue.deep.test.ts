/**
 * @file Epilogues that skip elements and store the others at computed indices: packed triangles, and inputs beside
 * them.
 */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { evaluateIndex } from "../../abstraction/affine.ts";
import {
  type Computation,
  computationKey,
  defineComputation,
  equationText,
  outputOf,
} from "../../abstraction/computation.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import type { LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { pick, randomInteger, seededRandom } from "../../abstraction/random.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { lowerLoops } from "../../mapper/lower/loops.ts";
import { lowerMapping } from "../../mapper/lower/plain.ts";
import { lowerSchedule } from "../../mapper/lower/scheduled.ts";
import { plainSchedule, randomSchedule, scheduleProblem } from "../../mapper/schedule/mapped.ts";
import type { Runner } from "../../runtime/measure.ts";
import { nativeTarget } from "../../targets/index.ts";
import { runnerHere } from "../support/here.ts";
import { messageOf } from "../support/message.ts";
import { inFull } from "../support/slow.ts";
import { mappedKernel, mappingsOnto, rowNamed, smallIntegers, stated } from "../support/subjects.ts";

const SIZES = { b: 2, i: 4, j: 4, k: 3 };
const product = (epilogue: string, extents: Record<string, number> = SIZES): Computation =>
  defineComputation({
    equation: "c[b,i,j] += f32(x[b,i,k]) * f32(x[b,j,k])",
    epilogue,
    extents,
    tensors: { x: "f32" },
  });

const refusal = (epilogue: string): string => messageOf(() => product(epilogue));

/** The pairs below the diagonal of rows that are a vector and others, behind that vector. */
const interaction = (
  dtype: "f32" | "bf16",
  { b, vectors, k }: { b: number; vectors: number; k: number },
): Computation =>
  defineComputation({
    equation: "c[b,i,j] += f32(e[b,i,k]) * f32(select(j == 0, d[b,k], e[b,j-1,k]))",
    epilogue: `z[b,i*(i+1)/2+j+${k}] = ${dtype === "f32" ? "c[b,i,j]" : `${dtype}(c[b,i,j])`} where j <= i, z[b,k] = d[b,k]`,
    extents: { b, i: vectors - 1, j: vectors - 1, k },
    tensors: { d: dtype, e: dtype },
  });

describe("an epilogue with output indices of its own", () => {
  it("sizes the output by its writes, and computes only the sums it stores", () => {
    const packed = product("z[b,i*(i-1)/2+j+3] = c[b,i,j] where j < i, z[b,k] = x[b,0,k]");
    expect(outputOf(packed).dims.map((d) => d.extent)).toEqual([2, 3 + 6]);
    expect(equationText(packed)).toBe(
      "c[b,i,j] += x[b,i,k] * x[b,j,k] where j < i; z[b,i*(i-1)/2+j+3] = c[b,i,j] where j < i, z[b,k] = x[b,0,k]",
    );
    const again = defineComputation({ equation: equationText(packed), extents: SIZES, tensors: { x: "f32" } });
    expect(computationKey(again)).toBe(computationKey(packed));
  });

  it("is interpreted as the loops written by hand", () => {
    const { b, vectors, k } = { b: 2, vectors: 4, k: 3 };
    const d = Array.from({ length: b * k }, (_, n) => n + 1);
    const e = Array.from({ length: b * (vectors - 1) * k }, (_, n) => (n % 7) - 3);
    const expected = Array.from({ length: b }, (_, sample) => {
      const rows = [
        d.slice(sample * k, (sample + 1) * k),
        ...Array.from({ length: vectors - 1 }, (_, v) => e.slice((sample * 3 + v) * k, (sample * 3 + v + 1) * k)),
      ];
      const pairs = rows.flatMap((row, i) =>
        rows.slice(0, i).map((other) => row.reduce((sum, x, n) => sum + x * (other[n] ?? 0), 0)),
      );
      return [...(rows[0] ?? []), ...pairs];
    }).flat();
    expect([...interpret(interaction("f32", { b, vectors, k }), { d, e })]).toEqual(expected);
  });

  it.each([
    ["z[b,i*(i-1)/2+j] = c[b,i,j]", "several points write one element of z[b,i*(i-1)/2+j]"],
    ["z[b,i*(i+1)/2+j] = c[b,i,j] where j < i", "12 of the 18 elements of z are written, of shape 2 x 9"],
    ["z[b,i*(i-1)/2+j+3] = c[b,i,j] where j < i", "12 of the 18 elements of z are written, of shape 2 x 9"],
    ["z[b,i*(i-1)/2+j-1] = c[b,i,j] where j < i", "z[b,i*(i-1)/2+j-1] is written at -1 of dimension 2, which has 5"],
    [
      "z[b,i*(i-1)/2+j] = c[b,i,j] where j < i, z[b,k] = x[b,0,k]",
      "z[b,k] and z[b,i*(i-1)/2+j] write the same elements",
    ],
    ["z[b,i*4+j] = c[b,i,j] where b < i", "its condition ties axes of separate dimensions of z[b,i*4+j]"],
    [
      "z[b,i*j] = c[b,i,j]",
      "index of z[b,i*j]: it multiplies two axes; an index may multiply an axis by a constant only",
    ],
    ["z[b,i*4+j] = c[b,i,j], z[b,k+16] = c[b,0,k]", "beside the sums z[b,k+16] is made of inputs alone"],
    ["z[b,i*4+j] = c[b,i,j], z[b,16] = x[b,0,k]", "z[b,16] is not indexed by k, which its value depends on"],
    ["z[b,i*4+j] = c[b,i,j], z[b,l+16] = x[b,0,l]", 'the equation has no axis "l"; its axes are b, i, j, k'],
    ["z[b,i*4+j] = c[b,i,j], y[b,k] = x[b,0,k]", "y[b,k] is no element of z[b,i*4+j]"],
    ["z[b,i,j] = c[b,i,j] where 1 < 0", "no element of z[b,i,j] is written: its condition never holds"],
    ["z[b,i,j,b] = c[b,i,j]", "32 of the 64 elements of z are written, of shape 2 x 4 x 4 x 2"],
    ["z[b,i*4+j+3] = c[b,i,j], z[b,k] = x[b,4,k]", "x[b,4,k] lies outside x, of shape 2 x 4 x 3"],
    ["z[b,i*4+j+3] = c[b,i,j], z[b,k] = x[b,k-1,k]", "x[b,k-1,k] lies outside x, of shape 2 x 4 x 3"],
    ["z[b,i*4+j] = c[b,i,j], z[b,k+16] += x[b,0,k]", 'it assigns each element once: "=", not "+="'],
  ])("is refused as %s", (epilogue, because) => {
    expect(refusal(epilogue)).toBe(`equation: epilogue: ${because}`);
  });
});

/** How often a nest issues the instruction. */
function issuesIn(nest: LoopNest): number {
  const inAll = (body: readonly Statement[], point: Readonly<Record<string, number>>): number =>
    body.reduce((sum, s) => sum + count(s, point), 0);
  const count = (s: Statement, point: Readonly<Record<string, number>>): number => {
    if (s.kind === "when") return inAll(evaluateIndex(s.condition, point) ? s.body : s.otherwise, point);
    if (s.kind !== "loop") return s.kind === "register-issue" ? 1 : 0;
    return Array.from({ length: s.extent }, (_, at) => inAll(s.body, { ...point, [s.axis]: at })).reduce(
      (sum, n) => sum + n,
      0,
    );
  };
  return inAll(nest.body, {});
}

const ROWS = [
  ...(["avx512.fma.f32.broadcast", "avx512.vdpbf16ps", "amx.tdpbf16ps", "portable.mla.f32.broadcast"] as const),
  ...(["avx512.fma.f32.inner", "avx512.vdpbf16ps.inner"] as const),
] as const;

describe.each(ROWS)("lowered onto %s", (name) => {
  const intrinsic = rowNamed(name);
  const dtype = name.includes("bf16") ? "bf16" : "f32";

  it("equals the equation in any size and under any schedule", () => {
    const random = seededRandom(11);
    let tried = 0;
    for (let n = 0; n < inFull(60, 6); n++) {
      const size = (most: number): number => randomInteger(random, 1, most);
      const subject = interaction(dtype, { b: size(3), vectors: 1 + size(20), k: 2 * size(4) });
      const inputs = smallIntegers(subject, random);
      const expected = [...interpret(subject, inputs)];
      const valid = mappingsOnto(subject, intrinsic);
      const mapping = pick(random, valid);
      for (const schedule of [plainSchedule(mapping), ...[1, 2, 1].map((t) => randomSchedule(mapping, random, t))]) {
        if (scheduleProblem(mapping, schedule) !== undefined) continue;
        const nest = lowerSchedule(mapping, schedule);
        expect([...interpretNest(nest, subject, inputs)], printNest(nest)).toEqual(expected);
        tried++;
      }
      expect([...interpretNest(lowerMapping(mapping), subject, inputs)]).toEqual(expected);
    }
    expect(tried).toBeGreaterThan(6);
  });
});

it.each(["where j+1 < i", "where i <= 5", "where k <= i"])(
  "a packed epilogue stores the identity where a sum %s has no term",
  (where) => {
    const random = seededRandom(5);
    for (const name of ROWS) {
      const intrinsic = rowNamed(name);
      const dtype = name.includes("bf16") ? "bf16" : "f32";
      const subject = stated(
        `c[b,i,j] += f32(x[b,i,k]) * f32(y[b,j,k]) ${where}; z[b,i*(i-1)/2+j] = c[b,i,j] + 1 where j < i --b 2 --i 21 --j 21 --k 4 --dtype x=${dtype},y=${dtype}`,
      );
      const inputs = smallIntegers(subject, random);
      const expected = [...interpret(subject, inputs)];
      const [mapping] = mappingsOnto(subject, intrinsic);
      if (!mapping) throw new Error(`${name}: no mapping`);
      for (const schedule of [plainSchedule(mapping), randomSchedule(mapping, random, 1)]) {
        const nest = lowerSchedule(mapping, schedule);
        expect([...interpretNest(nest, subject, inputs)], printNest(nest)).toEqual(expected);
      }
    }
  },
);

it("a packed epilogue skips blocks without a stored result", () => {
  const intrinsic = rowNamed("avx512.vdpbf16ps");
  const subject = interaction("bf16", { b: 1, vectors: 33, k: 2 });
  const [mapping] = mappingsOnto(subject, intrinsic);
  if (!mapping) throw new Error("no mapping");
  const nest = lowerSchedule(mapping, { ...plainSchedule(mapping), block: {} });
  const inputs = smallIntegers(subject);
  // The upper half of the second tile is skipped, of 32 rows and 2 tiles of 16 columns.
  expect(issuesIn(nest)).toBe(48);
  expect([...interpretNest(nest, subject, inputs)]).toEqual([...interpret(subject, inputs)]);
});

it("a packed epilogue is computed by plain loops", () => {
  const subject = interaction("f32", { b: 2, vectors: 6, k: 9 });
  const inputs = smallIntegers(subject);
  const { nest } = lowerLoops(subject);
  expect([...interpretNest(nest, subject, inputs)], printNest(nest)).toEqual([...interpret(subject, inputs)]);
});

it.each([
  ["avx512.vdpbf16ps", "bf16"],
  ["avx512.fma.f32.broadcast", "f32"],
] as const)("inputs joined for %s are packed from their own layout, sixteen rows at once", (name, dtype) => {
  const intrinsic = rowNamed(name);
  const subject = interaction(dtype, { b: 4, vectors: 27, k: 64 });
  const mapping = mappingsOnto(subject, intrinsic).find(({ matching }) => matching["n"]?.[0] === "j");
  if (!mapping) throw new Error("no mapping");
  const schedule = { ...plainSchedule(mapping), placement: { a: "in-place", b: "tiled" } } as const;
  const { source } = mappedKernel(mapping, schedule);
  expect(source).toMatch(/turn_columns\(b_tiles.*, e \+ .*row_below\(/);
  // The input chosen at a single step has code of its own, without a test inside.
  expect(source).not.toMatch(/ == 0 \? d\[/);
});

describe("a packed epilogue, compiled,", () => {
  let runner: Runner;
  beforeAll(async () => {
    runner = await runnerHere({ flags: inFull([], ["-O1"]) });
  });
  it.each(["c[b,i,j]", "exp(c[b,i,j])"])("beside %s has the copied elements compared bit by bit", async (stored) => {
    const packed = product(`z[b,i*(i-1)/2+j+3] = ${stored} where j < i, z[b,k] = x[b,0,k]`);
    const { sets } = await runner.reference(packed, 1);
    for (const { expected, tolerance } of sets) {
      const beside = [...expected.keys()].filter((at) => at % 9 < 3);
      expect(beside.some((at) => expected[at] !== 0)).toBe(true);
      expect(beside.map((at) => tolerance[at])).toEqual(beside.map(() => 0));
    }
  });

  afterAll(() => runner.close());

  const { isa } = nativeTarget();
  const has = (name: string): boolean => isa.includes(intrinsicsNamed(name)[0]?.isa ?? "");
  it.each(ROWS.filter((name) => has(name) || name.startsWith("portable")))(
    "equals the equation for %s",
    async (name) => {
      const intrinsic = rowNamed(name);
      const random = seededRandom(7);
      const subject = interaction(name.includes("bf16") ? "bf16" : "f32", { b: 3, vectors: 27, k: 32 });
      const reference = await runner.reference(subject, 3);
      for (let n = 0; n < inFull(8, 2); n++) {
        const mapping = pick(random, mappingsOnto(subject, intrinsic));
        const schedule = randomSchedule(mapping, random, 1);
        const kernel = mappedKernel(mapping, schedule);
        const options = { budgetSeconds: 0.002, batchSeconds: 1e-5, batches: [1, 2] } as const;
        const measured = await runner.measure(kernel, reference, options);
        expect(measured.status, `${JSON.stringify(schedule)} ${"log" in measured ? measured.log : ""}`).toBe("ok");
      }
    },
  );
});
