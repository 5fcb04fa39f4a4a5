/**
 * Rows of results as vectors: which loops become vectors, their code, and their equality to the loop element by
 * element.
 */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { type Computation, defineComputation, outputOf } from "../../abstraction/computation.ts";
import type { DType } from "../../abstraction/dtype.ts";
import { epilogueAt } from "../../abstraction/epilogue.ts";
import { access, axis } from "../../abstraction/expression.ts";
import { C_TYPES } from "../../abstraction/kernel.ts";
import { type LoopNest, loop, type Statement } from "../../abstraction/loop-nest.ts";
import { type Mapping, printMatching } from "../../abstraction/mapping.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { type Code, lines } from "../../abstraction/source-text.ts";
import { CExpressions } from "../../codegen/c-expressions.ts";
import { AVX512_HELPERS } from "../../codegen/cpp/avx512-helpers.ts";
import { CPP_HELPERS, calledIn } from "../../codegen/cpp/cpp-helpers.ts";
import { Avx512Rows } from "../../codegen/cpp/rows-avx512.ts";
import { joinedDigits } from "../../codegen/short-index.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { lowerSchedule } from "../../mapper/lower/scheduled.ts";
import { plainSchedule } from "../../mapper/schedule/mapped.ts";
import { parseDataTypes } from "../../operators/data-types.ts";
import { operatorNamed } from "../../operators/index.ts";
import { instantiate } from "../../operators/operator.ts";
import { runChild } from "../../runtime/child.ts";
import { generate } from "../../session/kinds/mapping-kind.ts";
import { nativeTarget } from "../../targets/index.ts";
import { textOf } from "../support/source.ts";
import { mappingsOnto, operation, stated } from "../support/subjects.ts";

const alongK = ({ matching }: Mapping): boolean => printMatching(matching).includes("n <- k");

function sourceOf(name: string, types: string, epilogue: string, { k = 32, layouts = "NHWC" } = {}): string {
  const parameters = { c: 8, k, h: 6, w: 6, r: 1, s: 1, pad: 0 };
  const computation = instantiate(operatorNamed("conv2d"), {
    parameters,
    types: parseDataTypes(types),
    layouts,
    epilogue,
  });
  const [on] = intrinsicsNamed(name);
  const mapping = on && mappingsOnto(computation, on).find(alongK);
  if (!on || !mapping) throw new Error(`${name} does not take n <- k`);
  const candidate = {
    kind: "mapping" as const,
    intrinsic: name,
    matching: mapping.matching,
    operands: {},
    schedule: plainSchedule(mapping),
  };
  return generate(candidate, mapping).source;
}

const REQUANTIZED = "res[n,k,p,q] = sat_u8(round(max(f32(out[n,k,p,q]) * scale[k], 0)))";

describe("a row of results in a kernel", () => {
  it("computes float functions in arithmetic that a compiler can vectorise, not by calls", () => {
    const source = sourceOf(
      "avx512.fma.f32.broadcast",
      "f32",
      "res[n,k,p,q] = 0.5 * out[n,k,p,q] * (1 + erf(out[n,k,p,q]))",
    );
    expect(source).toContain("erf_float(");
    expect(source).toContain("static inline float erf_float(float x)");
    expect(source).not.toContain("__builtin_erf");
  });

  it("is vectors for a compiler with AVX-512, and a loop for others", () => {
    const source = sourceOf("amx.tdpbusd", "u8s8", REQUANTIZED);
    const row = /#ifdef __AVX512BW__\n( *_mm_storeu.*)\n *#else\n([^#]*)#endif/.exec(source);
    expect(row?.[1]?.trim().replace(/(c_results|scale|res) \+ [^,;]*\)\)/g, "$1 + ...))")).toContain(
      "_mm512_cvtusepi32_epi8(_mm512_cvtps_epi32(_mm512_max_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_loadu_si512(c_results",
    );
    expect(row?.[2]).toContain("res_wide[n_inner] = saturate<int32_t, int32_t, float>(");
    expect(row?.[2]).toMatch(/\] = \(uint8_t\)\(res_wide\[n_inner\]\);/);
  });

  it("that is not whole has a mask, and one whose elements lie apart is split", () => {
    expect(sourceOf("amx.tdpbusd", "u8s8", REQUANTIZED, { k: 20 })).toMatch(/_mm_mask_storeu_epi8\(res \+ .*, 0xf, /);
    const apart = sourceOf("avx512.vpdpbusd", "u8s8", REQUANTIZED, { layouts: "NCHW" });
    expect(apart).toMatch(/_mm_storeu_si128\(\(__m128i\*\)\(res_row\), /);
    expect(apart).toMatch(/ res\[.*\] = res_row\[n_inner\];/);
  });

  it("is stored along the instruction's lanes where outputs beside one another are fewer than eight, and the lanes are eight or more", () => {
    const inner = (on: string, types: string, epilogue?: string): readonly unknown[] => {
      const computation = operation("conv2d c=8 k=32 h=6 w=6 r=1 s=1 pad=0 NCHW", types, epilogue ? { epilogue } : {});
      const [row] = intrinsicsNamed(on);
      const mapping = row && mappingsOnto(computation, row).find(alongK);
      if (!mapping) throw new Error(`${on} does not take n <- k`);
      const nest = printNest(lowerSchedule(mapping, { ...plainSchedule(mapping), block: { q: 4 } }));
      return [...(/for (\w+) in 0\.\.(\d+)\n +(?:res|out)\[/.exec(nest) ?? [])].slice(1);
    };
    expect(inner("avx512.fma.f64.broadcast", "f64", "relu")).toEqual(["n_inner", "8"]);
    expect(inner("arm.fmla.f32.lane", "f32", "relu")).toEqual(["q_block", "4"]);
  });

  it("is a loop where the instruction has no AVX-512 beside it", () => {
    const source = sourceOf("avx2.fma.f32.broadcast", "f32", "relu");
    expect(source).not.toContain("_mm512");
  });
});

it("a tile of words is transposed in registers, from its first element to its first", () => {
  const [on] = intrinsicsNamed("amx.tdpbusd");
  const computation = stated("c[i,j] += s32(x[i,k]) * s32(y[j,k]) --i 32 --j 48 --k 128 --dtype x=u8,y=s8");
  const mapping = on && mappingsOnto(computation, on).find((m) => printMatching(m.matching).includes("m <- i"));
  if (!on || !mapping) throw new Error("nothing maps");
  const schedule = { ...plainSchedule(mapping), placement: { a: "tiled", b: "tiled" } as const };
  const { matching } = mapping;
  const { source } = generate({ kind: "mapping", intrinsic: on.name, matching, operands: {}, schedule }, mapping);
  expect([...source.matchAll(/turn_words<1>\(.*\);/g)].map(([line]) => line)).toMatchInlineSnapshot(`
    [
      "turn_words<1>(b_tiles + j_step * 2048 + (k_step * 1024), y + (j_step * 16) * 128 + (k_step * 64), 128, ~0ull);",
    ]
  `);
});

it.each([
  [
    "amx.tdpbusd",
    "s32",
    "x=u8,y=s8",
    "mix_rows<1>(b_tiles + j_step * 2048 + (k_step * 1024), 64, y + (k_step * 64) * 48 + (j_step * 16), 48, ~0ull, 16);",
  ],
  [
    "avx512.vdpbf16ps",
    "f32",
    "x=bf16,y=bf16",
    "mix_rows<2>(b_tiles + j_step * 2048 + (k_step * 32), 64, y + (k_step * 2) * 48 + (j_step * 16), 96, ~0ull, 1);",
  ],
])("rows of a tile become words of their elements in registers: %s", (name, sum, dtypes, line) => {
  const [on] = intrinsicsNamed(name);
  const equation = `c[i,j] += ${sum}(x[i,k]) * ${sum}(y[k,j])`;
  const computation = stated(`${equation} --i 32 --j 48 --k 128 --dtype ${dtypes}`);
  const mapping = on && mappingsOnto(computation, on).find((m) => printMatching(m.matching).includes("n <- j"));
  if (!on || !mapping) throw new Error("nothing maps");
  const placement = { a: "tiled", b: "tiled" } as const;
  const schedule = { ...plainSchedule(mapping), placement };
  const { matching } = mapping;
  const { source } = generate({ kind: "mapping", intrinsic: on.name, matching, operands: {}, schedule }, mapping);
  expect([...source.matchAll(/mix_rows<.>\(b.*\);/g)].map(([text]) => text)).toEqual([line]);
});

it("the digits of a number, each behind the other, are joined to the number again", () => {
  const i = axis("i");
  const at = (e: Parameters<typeof joinedDigits>[0]): unknown => joinedDigits(e, { i: 60 * 56 });
  const over = (op: "/" | "%" | "*" | "+", left: typeof i | ReturnType<typeof access>, n: number) =>
    ({ kind: "binary", op, left, right: { kind: "number", value: n } }) as const;
  const sum = (left: Parameters<typeof joinedDigits>[0], right: Parameters<typeof joinedDigits>[0]) =>
    ({ kind: "binary", op: "+", left, right }) as const;
  const high = over("/", i, 56);
  const low = over("%", i, 56);
  expect(at(sum({ kind: "binary", op: "*", left: high, right: { kind: "number", value: 56 } }, low))).toEqual(i);
  // The rows of a spread dimension lie closer in the output than the digits.
  const spread = sum({ kind: "binary", op: "*", left: high, right: { kind: "number", value: 54 } }, low);
  expect(at(spread)).toEqual(sum(over("*", high, 54), low));
  expect(joinedDigits(over("%", high, 56), { i: 56 * 56 })).toEqual(high);
  // A number with one digit has nothing left to divide.
  expect(joinedDigits(spread, { i: 56 })).toEqual(i);
});

// ------------------------------------------------------------------------------------------------- bit by bit

/** An epilogue of sums of one type, and a row of 16 or of 5 elements of it, both ways. */
const FORMS: readonly (readonly [sum: DType, epilogue: string])[] = [
  ["f32", "res[i] = bf16(out[i])"],
  ["f32", "res[i] = f16(out[i])"],
  ["f32", "res[i] = max(out[i], 0)"],
  ["f32", "res[i] = min(out[i], 1)"],
  ["f32", "res[i] = max(out[i], x[i])"],
  ["f32", "res[i] = min(x[i], out[i])"],
  ["f32", "res[i] = -abs(out[i]) + square(x[i]) / 3"],
  ["f32", "res[i] = round(out[i])"],
  ["f32", "res[i] = sat_u8(round(out[i]))"],
  ["f32", "res[i] = sat_u8(out[i])"],
  ["f32", "res[i] = sat_u8(round(max(out[i], 0)))"],
  ["f32", "res[i] = sat_u8(round(max(out[i], 7)))"],
  ["f32", "res[i] = sat_s8(round(out[i]))"],
  ["f32", "res[i] = sat_s8(out[i])"],
  ["f32", "res[i] = sat_u16(round(out[i]))"],
  ["f32", "res[i] = sat_s16(round(out[i]))"],
  ["f32", "res[i] = sat_s32(round(out[i]))"],
  ["f32", "res[i] = s8(out[i])"],
  ["f32", "res[i] = s32(out[i])"],
  ["f32", "res[i] = bf16(out[i]) * bf16(x[i]) + bf16(out[i])"],
  ["f32", "res[i] = s32(sat_u8(out[i])) - 3"],
  ["s32", "res[i] = f32(out[i]) * 0.1 + 0.3"],
  ["s32", "res[i] = sat_u8(out[i])"],
  ["s32", "res[i] = sat_s8(out[i])"],
  ["s32", "res[i] = sat_u16(out[i])"],
  ["s32", "res[i] = sat_s16(max(out[i], -9))"],
  ["s32", "res[i] = u8(out[i]) + u8(3)"],
  ["s32", "res[i] = s8(out[i]) * s8(out[i])"],
  ["s32", "res[i] = sat_s8(s16(out[i]) - 5)"],
  ["s32", "res[i] = select(i < 3, abs(out[i]), -out[i])"],
  ["s32", "res[i] = f16(u16(out[i]))"],
];

/** Sums with halves of every kind: zeros, denormals, ties, infinities and NaN among them. */
const LOW = [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff];

/** What the rows print: it asks for helpers. */
const printed: Code[] = [];

function rowsOf([sum, epilogue]: (typeof FORMS)[number], extent: number, name: string): string {
  const computation = defineComputation({
    equation: "out[i] += a[i,k]",
    epilogue,
    extents: { i: 16, k: 1 },
    tensors: { a: sum, ...(epilogue.includes("x[") ? { x: "f32" } : {}) },
  });
  if (!computation.epilogue) throw new Error("no epilogue");
  const equation = epilogueAt(computation.epilogue, [axis("i")], access("sums", [axis("i")]));
  const statement: Statement = { kind: "scalar", equation };
  const row = loop("i", extent, [statement]);
  if (row.kind !== "loop") throw new Error("no loop");
  const scratch = [{ name: "sums", dtype: sum, elements: 16, scope: "local" }] as const;
  const nest: LoopNest = { scratch, registers: [], prepare: [], body: [row] };
  const c = new CExpressions(computation, nest);
  const vectors = new Avx512Rows(c).row(row, { i: extent });
  if (!vectors) throw new Error(`no row of ${epilogue}`);
  const type = C_TYPES[outputOf(computation).dtype];
  const head = `static void ${name}`;
  const list = `(${type}* res, const ${C_TYPES[sum]}* sums, const float* x) { (void)x;`;
  const value = c.value(equation.value, outputOf(computation).dtype, { i: extent });
  printed.push(...vectors, value);
  return [
    `${head}_vectors${list} ${textOf(lines(vectors))} }`,
    `${head}_elements${list} for (long i = 0; i < ${extent}; i++) res[i] = ${textOf(value)}; }`,
    `${head}_compare(long* wrong) { compare<${type}, ${C_TYPES[sum]}, ${isFloat(computation)}>(${name}_vectors, ${name}_elements, wrong); }`,
  ].join("\n");
}

/** Bits of NaN are not part of the notation; those of what is held as bits are compared. */
function isFloat(computation: Computation): boolean {
  return outputOf(computation).dtype === "f32";
}

function program(): string {
  const rows = FORMS.flatMap((form, i) => [16, 5].map((extent) => rowsOf(form, extent, `row_${i}_${extent}`)));
  const calls = FORMS.flatMap((_, i) =>
    [16, 5].map(
      (e) => `{ long wrong = 0; row_${i}_${e}_compare(&wrong); if (wrong) printf("${i} of ${e}: %ld\\n", wrong); }`,
    ),
  );
  const text = rows.join("\n");
  return `#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
${[...calledIn(printed, AVX512_HELPERS), ...calledIn(printed, CPP_HELPERS)].map(textOf).join("\n")}
template <class T, class S, bool FLOAT> static void compare(void (*vectors)(T*, const S*, const float*), void (*elements)(T*, const S*, const float*), long* wrong) {
  const uint32_t low[] = {${LOW.join(", ")}};
  for (uint32_t high = 0; high < 0x10000; high += 16)
    for (uint32_t l : low) {
      S sums[16]; float x[16]; T a[16], b[16];
      memset(a, 1, sizeof a), memset(b, 1, sizeof b);
      for (uint32_t i = 0; i < 16; i++) {
        const uint32_t bits = (high + i) << 16 | l, other = (high + i) * 0x9e3779b1u ^ l;
        memcpy(&sums[i], &bits, 4), memcpy(&x[i], &other, 4);
      }
      vectors(a, sums, x), elements(b, sums, x);
      for (int i = 0; i < 16; i++) *wrong += memcmp(&a[i], &b[i], sizeof(T)) && !(FLOAT && a[i] != a[i] && b[i] != b[i]);
    }
}
${text}
int main() { ${calls.join("\n")} }
`;
}

describe("rows of vectors are equal to elements one by one, bit by bit", () => {
  const avx512 = ["avx512f", "avx512bw", "avx512vl", "avx512dq"];
  const cases = [
    { isa: ["avx512f"], features: avx512 },
    { isa: ["avx512f", "avx512_bf16"], features: [...avx512, "avx512bf16"] },
  ];
  it.each(cases)("with $isa", async ({ isa, features }) => {
    const missing = isa.filter((i) => !nativeTarget().isa.includes(i));
    if (missing.length > 0) {
      console.log(`skipped: this CPU has no ${missing.join(", ")}`);
      return;
    }
    const folder = await mkdtemp(join(tmpdir(), "automap-rows-"));
    try {
      const file = join(folder, "rows");
      const flags = ["-std=c++17", "-O1", "-ffp-contract=off", `${file}.cpp`, "-o", file];
      await writeFile(`${file}.cpp`, program());
      const compiled = await runChild(["g++", ...flags, ...features.map((f) => `-m${f}`)], { timeLimitMs: 100_000 });
      expect(compiled.stderr).toBe("");
      expect((await runChild([file], { timeLimitMs: 900_000 })).stdout).toBe("");
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});
