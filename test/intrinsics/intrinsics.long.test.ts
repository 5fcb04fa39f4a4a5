import { describe, expect, test } from "vitest";
import { elementCount, inputsOf } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { defineIntrinsic, type Intrinsic, type IntrinsicSpec } from "../../abstraction/intrinsic.ts";
import { randomInteger, seededRandom } from "../../abstraction/random.ts";
import { shuffle } from "../../intrinsics/cuda.ts";
import { INTRINSIC_TABLES, INTRINSICS, intrinsicsNamed } from "../../intrinsics/index.ts";
import { checkIntrinsics } from "../../runtime/conformance.ts";
import { hasFeature, nativeTarget } from "../../targets/index.ts";
import { rowNamed } from "../support/subjects.ts";

const { isa } = nativeTarget();

/** A row of the table with something changed, under a name of its own. */
function altered(name: string, change: string, changes: Partial<IntrinsicSpec>): Intrinsic {
  const row = rowNamed(name);
  return defineIntrinsic<string>({ ...row.declaration, ...changes, name: `${name}, ${change}` });
}

/** Operands of a row with one of them changed. */
function withOperand(name: string, operand: string, change: object): IntrinsicSpec["operands"] {
  const operands = intrinsicsNamed(name)[0]?.declaration.operands ?? {};
  return Object.fromEntries(
    Object.entries(operands).map(([key, spec]) => [key, key === operand ? { ...spec, ...change } : spec]),
  );
}

/** A row with one of its operands changed. */
const otherOperand = (name: string, change: string, operand: string, changes: object): Intrinsic =>
  altered(name, change, { operands: withOperand(name, operand, changes) });

describe("the intrinsics table", async () => {
  const results = await checkIntrinsics(INTRINSICS, { seed: 20261121, isa });
  const resultOf = new Map(results.map((result) => [result.intrinsic, result]));

  test("has one row for each name, with its manual and a summary", () => {
    expect(new Set(INTRINSICS.map((row) => row.name)).size).toBe(INTRINSICS.length);
    for (const { source, summary } of INTRINSICS) {
      expect(source.length).toBeGreaterThan(8);
      expect(summary).toMatch(/^[A-Z0-9].*\.$/);
    }
  });

  for (const row of INTRINSICS) {
    const result = resultOf.get(row.name);
    test.skipIf(result?.status === "skipped")(
      `${row.name} computes ${row.declaration.compute} (${result?.how}${result?.missing ? `, ${result.missing}` : ""})`,
      () => {
        expect(result).toEqual({ intrinsic: row.name, status: "ok", how: result?.how, cases: result?.cases });
        expect(result?.cases).toBeGreaterThanOrEqual(5);
      },
    );
  }

  test("runs on the CPU itself the rows whose features the CPU reports", () => {
    for (const row of INTRINSICS)
      if (row.language === "c++" && hasFeature({ isa }, row.isa)) expect(resultOf.get(row.name)?.how).toBe("this CPU");
  });
});

const vnniPrelude = intrinsicsNamed("avx512.vpdpbusd")[0]?.declaration.prelude ?? "";

/** One family after the other, a row whose text or storage says something else than its equation. */
const WRONG_ROWS: readonly Intrinsic[] = [
  altered("avx2.fma.f32", "factor and sum exchanged", { emit: "{c} = _mm256_fmadd_ps({a}, {c}, {b});" }),
  altered("avx512.fma.f32", "factor and sum exchanged", { emit: "{c} = _mm512_fmadd_ps({a}, {c}, {b});" }),
  altered("avx512.fma.f16", "a product without the sum", { compute: "c[i] = a[i] * b[i]" }),
  altered("avx512.vpdpbusds", "declared as wrapping", { compute: "c[n] += s32(a[k]) * s32(b[k,n])" }),
  altered("avx512.vpdpbusd", "declared as saturating", { compute: "c[n] sat+= s32(a[k]) * s32(b[k,n])" }),
  altered("avx512.vpdpbusd", "u8 read as s8", { compute: "c[n] += s32(s8(a[k])) * s32(b[k,n])" }),
  altered("avx512.vpdpbusd", "factors exchanged", { emit: "{c} = dot_bytes({c}, {b}, {a});" }),
  otherOperand("avx512.vpdpbusd", "row-major b", "b", { storage: "zmm[16*k + n]" }),
  otherOperand("avx512.vpdpbusd", "only one lane of a", "a", { storage: "zmm[k]" }),
  otherOperand("avx2.vpmaddwd.s8", "row-major b", "b", { storage: "xmm[8*k + n]" }),
  altered("avx512.vpdpbusd.s8", "not moved", { emit: "{c} = dot_bytes({c}, {a}, {b});", prelude: vnniPrelude }),
  altered("avxvnni.vpdpbusds", "declared as wrapping", { compute: "c[n] += s32(a[k]) * s32(b[k,n])" }),
  otherOperand("avx512.vdpbf16ps", "row-major b", "b", { storage: "zmm[16*k + n]" }),
  otherOperand("amx.tdpbusd", "row-major b", "b", { storage: "tile[16*k + n]" }),
  otherOperand("amx.tdpbusd", "u8 declared s8", "a", { dtype: "s8" }),
  otherOperand("amx.tdpbf16ps", "b not in pairs", "b", { storage: "tile[16*k + n]" }),
  otherOperand("wmma.m16n16k16.f32.f16", "result stored by columns", "c", {
    store: "wmma::store_matrix_sync((float*)({ptr}), {reg}, {stride} / 4, wmma::mem_col_major);",
  }),
  otherOperand("mma.m16n8k16.f32.f16", "registers 1 and 2 of a exchanged", "a", {
    storage: "frag[8*(4*(m%8) + (k%8)/2) + 2*(k/8) + 4*(m/8) + k%2]",
  }),
  altered("mma.m16n8k32.f32.e4m3", "a NaN taken for 0", {
    emit: "for (auto& word : {a}) if ((word & 255) == 127) word ^= 127; mma_m16n8k32_f32_e4m3({c}, {a}, {b});",
  }),
  altered("mma.m16n8k32.f32.e5m2", "said to add with more bits", { sumBits: 14 }),
  altered("wgmma.m64n8k32.f32.e5m2", "factors of the other format", { emit: "wgmma_f32_e4m3({c}, {a}, {b});" }),
  otherOperand("wgmma.m64n8k16.f32.f16", "rows of a warp exchanged", "c", {
    storage: "frag[4*(32*(m/16) + 4*(m%8) + n/2) + 2*(1 - (m/8)%2) + n%2]",
  }),
  altered("shuffle.down.4", "zero at the edge", { compute: "d[l] = s[l+4]" }),
  altered("shuffle.up.1", "zero at the edge", { compute: "d[l] = s[l-1]" }),
  altered("shuffle.xor.2", "taken as a rotation", { compute: "d[l] = s[(l+2)%32]" }),
  otherOperand("dp4a.s32.s8", "bytes declared unsigned", "a", { dtype: "u8" }),
  altered("cuda.fma.f32", "the factor added again", { emit: "{c} = fmaf({a}, {b}, {a});" }),
  altered("dpas.8x8.s32.u8s8", "precisions exchanged", {
    emit: "{c} = cm_dpas<CM_PRECISION_U8, CM_PRECISION_S8, 8, 8>({c}, {b}.format<int>(), {a}.format<int>());",
  }),
  otherOperand("dpas.8x16.f32.bf16", "b not in pairs", "b", { storage: "grf[16*k + n]" }),
  altered("opencl.dpas.8x8.s32.u8s8", "the bytes of a signed", {
    emit: "{c} = intel_sub_group_i8_i8_matrix_mad_k32({a}, {b}, {c});",
  }),
  otherOperand("opencl.dpas.8x16.f32.f16", "b not in pairs", "b", { storage: "dwords[16*k + n]" }),
  altered("opencl.fma.f32", "the factor added again", { emit: "{c} = fma({a}, {b}, {a});" }),
  altered("sycl.fma.8.f32.broadcast", "the factor added again", { emit: "{c} = sycl::fma({a}, {b}, {a});" }),
  altered("sycl.fma.16.s32.u8s8", "the bytes of a signed", { emit: "{c} += (int8_t){a} * {b};" }),
  altered("sycl.joint.8x16x16.f32.bf16", "factors exchanged", {
    emit: "matrix::joint_matrix_mad(item.get_sub_group(), {c}, {b}, {a}, {c});",
  }),
  altered("sycl.joint.8x8x32.s32.u8s8", "the sum forgotten", {
    emit: "matrix::joint_matrix_fill(item.get_sub_group(), {c}, 0); matrix::joint_matrix_mad(item.get_sub_group(), {c}, {a}, {b}, {c});",
  }),
  altered("opencl.gen9.fma.f32", "the factor added again", { emit: "{c} = fma({a}, {b}, {a});" }),
  altered("mali.lanes.dot.s32.u8s8", "unsigned bytes moved and not moved back", {
    emit: "{c} = arm_dot_acc(as_char4(as_uint({a}) ^ 0x80808080u), {b}, {c});",
  }),
  altered("cm.fma.f32", "sum first", { emit: "{c} = ({c} + {a}) * {b};" }),
  otherOperand("cm.dp4", "groups of stride four", "a", { storage: "grf[4*j + g]" }),
  otherOperand("arm.sdot", "bytes of one lane far apart", "b", { storage: "v[4*j + i]" }),
  altered("arm.smmla", "b not transposed", {
    compute: "c[m,n] += s32(a[m,k]) * s32(b[k,n])",
    operands: withOperand("arm.smmla", "b", { storage: "v[2*k + n]" }),
  }),
  otherOperand("arm.bfdot", "pairs far apart", "b", { storage: "v[4*j + i]" }),
  otherOperand("arm.bfmmla", "sums exchanged", "c", { storage: "v[m + 2*n]" }),
  otherOperand("arm.sdot.u8s8.lane", "the left bytes signed", "a", { dtype: "s8" }),
  otherOperand("sve256.sdot", "by the lanes of another register", "b", {
    storage: "z256x4[32*((k/4 + 1)%4) + 4*n + k%4]",
  }),
  otherOperand("sve512.smmla", "sums row by row", "c", { storage: "z512[8*m + n]" }),
  altered("portable.mla.f32.broadcast", "a product without the sum", { emit: "{c} = {a} * {b};" }),
  altered("portable.dot.s32.u8.broadcast", "bytes read as signed", {
    emit: "{c} = dot_bytes<lanes<int16_t, 8>, lanes<int32_t, 4>>({c}, {a}, {b});",
  }),
  altered("portable.max.u8", "declared as the smaller", { compute: "c[n] min= a[n]" }),
  altered("portable.mla.bf16", "the larger instead of the product", {
    emit: "{c} = bf16<4>::number({c}) > 0 ? {c} : {a};",
  }),
  altered("mali.arm_dot_acc_sat", "declared as wrapping", { compute: "c[] += s32(a[k]) * s32(b[k])" }),
];

test("16-bit factors of a warpgroup are read with their rows along either axis", async () => {
  const turned = INTRINSICS.flatMap(({ declaration }): Intrinsic[] => {
    const operands = Object.entries(declaration.operands);
    const turn = (chosen: readonly string[]) =>
      operands.map(([name, o]) => [name, o.turned && chosen.includes(name) ? { ...o, storage: o.turned } : o] as const);
    if (!operands.some(([, o]) => o.turned) || declaration.extents["n"] === 256) return [];
    return [["a"], ["b"], ["a", "b"]].map((chosen) =>
      defineIntrinsic<string>({
        ...declaration,
        name: `${declaration.name}, ${chosen.join(" and ")} turned`,
        operands: Object.fromEntries(turn(chosen)),
      }),
    );
  });
  expect(turned.length).toBeGreaterThan(10);
  const results = await checkIntrinsics(turned, { seed: 3, isa });
  expect(results.filter((r) => r.status !== "ok" && r.status !== "skipped")).toEqual([]);
});

describe("a wrong row", async () => {
  const results = await checkIntrinsics(WRONG_ROWS, { seed: 1, isa });

  for (const result of results) {
    test.skipIf(result.status === "skipped")(`is found: ${result.intrinsic}${result.missing ?? ""}`, () => {
      expect(result).toMatchObject({ status: "differs" });
    });
  }

  test.skipIf(results.some((r) => r.status === "skipped"))("is reported with case, element and both values", () => {
    const told = (name: string): string | undefined => results.find((r) => r.intrinsic === name)?.detail;
    expect(told("avx512.vpdpbusds, declared as wrapping")).toMatchInlineSnapshot(
      `"extremes: c[0] is 2147483647, its equation gives -2147483523"`,
    );
    expect(told("mma.m16n8k32.f32.e4m3, a NaN taken for 0")).toMatchInlineSnapshot(
      `"the product of the bytes 127 and 0 is 0, its equation gives nan"`,
    );
    expect(told("shuffle.down.4, zero at the edge")).toMatchInlineSnapshot(
      `"small integers: d[28] is 2, its equation gives 0"`,
    );
    expect(told("avx512.vpdpbusd, only one lane of a")).toMatchInlineSnapshot(
      `"random: the register of a holds 64 bytes, its storage names 4"`,
    );
    expect(told("mali.arm_dot_acc_sat, declared as wrapping")).toMatchInlineSnapshot(
      `"largest: c[] is 2147483647, its equation gives -2147419133"`,
    );
  });

  test("is tried in every family", () => {
    const tried = new Set([...WRONG_ROWS, ...intrinsicsNamed("virtual")].map((row) => row.family));
    expect(INTRINSICS.filter((row) => !tried.has(row.family))).toEqual([]);
  });

  test("is refused at once when two elements share a place", () => {
    const twice = withOperand("toy.2x2x2", "b", { storage: "unit[k + n]" });
    expect(() => altered("toy.2x2x2", "overlapping", { operands: twice })).toThrow(
      /storage unit\[k \+ n\] of b puts elements 1 and 2 in place 1/,
    );
  });
});

describe("accelerators on paper", () => {
  /** The same arithmetic as plain loops over row-major arrays. */
  const LOOPS: Readonly<Record<string, (a: readonly number[], b: readonly number[]) => number[]>> = {
    "virtual.axpy": ([a = 0], b) => [0, 1, 2, 3].map((i) => a * (b[i] ?? 0)),
    "virtual.gemv": (a, b) => upTo(16).map((i) => sum(16, (k) => (a[16 * i + k] ?? 0) * (b[k] ?? 0))),
    "virtual.conv": (a, b) =>
      upTo(256).map((i) => {
        const k = Math.floor(i / 16);
        const pixel = i % 16;
        return sum(16, (c) => (a[16 * c + pixel] ?? 0) * (b[16 * k + c] ?? 0));
      }),
    "toy.2x2x2": ([a = 0, b = 0, c = 0, d = 0], [e = 0, f = 0, g = 0, h = 0]) => [
      a * e + b * g,
      a * f + b * h,
      c * e + d * g,
      c * f + d * h,
    ],
  };

  function run(row: Intrinsic): { is: number[]; should: number[] | undefined } {
    const random = seededRandom(5);
    const inputs = Object.fromEntries(
      inputsOf(row.computation).map((t) => [
        t.name,
        Array.from({ length: elementCount(t) }, () => randomInteger(random, -9, 9)),
      ]),
    );
    const loops = LOOPS[row.name.split(",")[0] ?? ""];
    return { is: [...interpret(row.computation, inputs)], should: loops?.(inputs["a"] ?? [], inputs["b"] ?? []) };
  }

  for (const row of intrinsicsNamed("virtual")) {
    test(`${row.name} is ${row.declaration.compute}, as plain loops say`, () => {
      const { is, should } = run(row);
      expect(is).toEqual(should);
    });
  }

  for (const [name, compute] of [
    ["virtual.axpy", "c[i] += a[r] * b[3-i,r]"],
    ["virtual.gemv", "c[i] += a[k,i] * b[k]"],
    ["virtual.conv", "c[k,p,q] += a[c,q,p] * b[k,c]"],
    ["toy.2x2x2", "c[m,n] += a[m,k] * b[n,k]"],
  ] as const) {
    test(`${name} is not ${compute}`, () => {
      const { declaration } = intrinsicsNamed(name)[0] ?? {};
      const loose = Object.entries(declaration?.operands ?? {}).map(([key, o]) => [key, { ...o, storage: "unit" }]);
      const { is, should } = run(altered(name, "wrong", { compute, operands: Object.fromEntries(loose) }));
      expect(is).not.toEqual(should);
    });
  }
});

describe("names of intrinsics", () => {
  const names = (word: string): string[] => intrinsicsNamed(word).map((row) => row.name);

  test("an exact name is one row", () => {
    expect(names("avx512.fma.f32")).toEqual(["avx512.fma.f32"]);
    expect(names("shuffle.down.4")).toEqual(["shuffle.down.4"]);
  });

  test("a family, a table and a feature are many", () => {
    expect(names("amx")).toEqual(["amx.tdpbssd", "amx.tdpbsud", "amx.tdpbusd", "amx.tdpbuud", "amx.tdpbf16ps"]);
    expect(names("vnni")).toContain("avxvnni.vpdpbusd");
    expect(names("avx512")).toContain("avx512.vpdpbusd");
    expect(names("avx512_bf16")).toEqual([
      "avx512.vdpbf16ps",
      "avx512.vdpbf16ps.lanes",
      "avx512.vdpbf16ps.256",
      "avx512.vdpbf16ps.256.lanes",
      "avx512.vdpbf16ps.inner",
    ]);
    for (const [word, rows] of Object.entries(INTRINSIC_TABLES)) expect(intrinsicsNamed(word)).toEqual(rows);
  });

  test("an unknown word gets the nearest that is known", () => {
    expect(() => intrinsicsNamed("wmam")).toThrow(UsageError);
    try {
      intrinsicsNamed("wmam");
    } catch (error) {
      expect(error).toMatchObject({
        message: 'no intrinsic, family or feature "wmam"',
        hint: 'did you mean "wmma"?',
      });
    }
  });

  test("shuffles of any distance come from the generator, and agree with their equation", async () => {
    const rows = [shuffle("down", 3), shuffle("up", 31, "f64"), shuffle("xor", 2, "s32")];
    expect(rows.map((row) => row.declaration.compute)).toEqual([
      "d[l] = select(l + 3 < 32, s[l+3], s[l])",
      "d[l] = select(l >= 31, s[l-31], s[l])",
      "d[l] = s[l+2-4*((l/2)%2)]",
    ]);
    for (const { status, detail } of await checkIntrinsics(rows, { seed: 3, isa }))
      if (status !== "skipped") expect({ status, detail }).toEqual({ status: "ok", detail: undefined });
    expect(() => shuffle("xor", 3)).toThrow("shuffle.xor: delta must be a power of two, got 3");
  });
});

function upTo(n: number): number[] {
  return Array.from({ length: n }, (_, i) => i);
}

function sum(n: number, term: (i: number) => number): number {
  return upTo(n).reduce((total, i) => total + term(i), 0);
}
