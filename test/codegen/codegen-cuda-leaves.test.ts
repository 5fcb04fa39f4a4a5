/** @file Each statement of a nest of warps as CUDA: its lines of code, and the statements that no GPU can execute. */

import { describe, expect, it } from "vitest";
import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import { access, axis, binary, type Expr, number } from "../../abstraction/expression.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import {
  type Copy,
  type LoopMode,
  type LoopNest,
  loop,
  type RegisterFile,
  type Scratch,
  type Statement,
} from "../../abstraction/loop-nest.ts";
import { parseEquation, parseExpr } from "../../abstraction/parse.ts";
import { generateCuda } from "../../codegen/cuda/cuda.ts";
import { rowNamed, stated } from "../support/subjects.ts";

const MMA = rowNamed("mma.m16n8k16.f32.f16");

const COMPUTATION = stated("out[i,j] += f32(x[i,l]) * f32(y[l,j]) --i 100 --j 48 --l 64 --dtype f16 --name matmul");

/** `tile: f16[m 32, k 64] at 64*m + k`, in shared memory. */
function shared(name: string, dtype: Scratch["dtype"], dims: string, at?: string): Scratch {
  const parsed = dims.split(", ").map((d) => {
    const [word = "", extent = ""] = d.split(" ");
    return { name: word, extent: Number(extent) };
  });
  const elements = parsed.reduce((product, d) => product * d.extent, 1);
  return { name, dtype, elements, scope: "shared", dims: parsed, ...(at !== undefined && { storage: parseExpr(at) }) };
}

function copy(axes: string, equation: string, options: Partial<Copy> = {}): Statement {
  const dims = axes.split(", ").map((d) => ({ name: d.split(" ")[0] ?? "", extent: Number(d.split(" ")[1]) }));
  const plain = { width: 1, transfer: "plain", group: "block" } as const;
  return { kind: "copy", axes: dims, equation: parseEquation(equation), ...plain, ...options };
}

interface Parts {
  readonly computation?: Computation;
  readonly intrinsic?: Intrinsic;
  readonly scratch?: readonly Scratch[];
  readonly registers?: readonly RegisterFile[];
  readonly warps?: number;
}

/** A kernel of two blocks that runs some statements on two warps. */
function source(body: readonly Statement[], parts: Parts = {}): string {
  const { computation = COMPUTATION, intrinsic = MMA, scratch = [], registers = [], warps = 2 } = parts;
  const inner = loop("warp", warps, body, "warp");
  const nest: LoopNest = { scratch, registers, prepare: [], body: [loop("tile", 2, [inner], "block")] };
  return generateCuda(computation, intrinsic, nest, { lines: [] }).source;
}

/** The lines of its kernel, without comments, memory and the words for where a thread stands. */
function lines(body: readonly Statement[], parts: Parts = {}): string {
  const [, kernel = ""] = /__global__ .*?\{\n(.*?)\n\}\n/s.exec(source(body, parts)) ?? [];
  const idle =
    /^ *(\/\/|__shared__|const int (tile|warp|thread|lane) =|(float|unsigned|int|wmma::fragment<.*>) [abc]\w*\[|.*dynamic_shared)/;
  return kernel
    .split("\n")
    .filter((line) => !idle.test(line))
    .map((line) => line.slice(2))
    .join("\n");
}

describe("a copy", () => {
  const tile = shared("tile_of_x", "f16", "m 32, k 64", "64*m + 8*((k/8) ^ (m%8)) + k%8");
  const equation = "tile_of_x[m,k] = x[32*tile + m,k]";

  it("deals pieces to the threads of a block, asynchronously or through registers", () => {
    expect(
      lines([copy("m 32, k 64", equation, { width: 8, transfer: "async" })], { scratch: [tile] }),
    ).toMatchInlineSnapshot(`
      "const int tile_of_x_to = 64 * (thread / 8) + 8 * ((thread % 8) ^ (thread / 8));
      const int x_from = 2048 * tile + 8 * thread;
      copy_async<16>(&tile_of_x[tile_of_x_to], &x[x_from]);
      copy_async<16>(&tile_of_x[tile_of_x_to + 512], &x[x_from + 512]);
      copy_async<16>(&tile_of_x[tile_of_x_to + 1024], &x[x_from + 1024]);
      copy_async<16>(&tile_of_x[tile_of_x_to + 1536], &x[x_from + 1536]);"
    `);
    expect(lines([copy("m 32, k 64", equation, { width: 8 })], { scratch: [tile] })).toMatchInlineSnapshot(`
      "const int tile_of_x_to = 64 * (thread / 8) + 8 * ((thread % 8) ^ (thread / 8));
      const int x_from = 2048 * tile + 8 * thread;
      *(Piece<uint16_t, 8>*)&tile_of_x[tile_of_x_to] = *(const Piece<uint16_t, 8>*)&x[x_from];
      *(Piece<uint16_t, 8>*)&tile_of_x[tile_of_x_to + 512] = *(const Piece<uint16_t, 8>*)&x[x_from + 512];
      *(Piece<uint16_t, 8>*)&tile_of_x[tile_of_x_to + 1024] = *(const Piece<uint16_t, 8>*)&x[x_from + 1024];
      *(Piece<uint16_t, 8>*)&tile_of_x[tile_of_x_to + 1536] = *(const Piece<uint16_t, 8>*)&x[x_from + 1536];"
    `);
  });

  it.each([1, 2, 4, 8] as const)(
    "in pieces of %i bytes refuses a tensor that lies at another multiple, and no other",
    (width) => {
      const computation = stated("out[i,j] += s32(x[i,l]) * s32(y[l,j]) --i 64 --j 48 --l 64 --dtype s8");
      const bytes = shared("tile_of_x", "s8", "m 32, k 64");
      const text = source([copy("m 32, k 64", equation, { width })], { computation, scratch: [bytes] });
      const x = Object.keys(computation.tensors).indexOf("x");
      expect([...text.matchAll(/.*cudaErrorMisalignedAddress.*/g)].map(([line]) => line.trim())).toEqual(
        width === 1 ? [] : [`if ((uintptr_t)tensors[${x}] % ${width} != 0) return cudaErrorMisalignedAddress;`],
      );
    },
  );

  it("is one condition and one access where pieces may be outside, and reads nothing outside", () => {
    const beyond = "tile_of_x[m,k] = x[64*tile + 32 + m,k]";
    expect(
      lines([copy("m 32, k 64", beyond, { width: 8, transfer: "async" })], { scratch: [tile] }),
    ).toMatchInlineSnapshot(`
      "const int tile_of_x_to = 64 * (thread / 8) + 8 * ((thread % 8) ^ (thread / 8));
      const int x_from = 4096 * tile + 8 * thread;
      const int x_i = 64 * tile + thread / 8;
      copy_async_where<16>(x_i + 32 < 100, &tile_of_x[tile_of_x_to], x, x_from + 2048);
      copy_async_where<16>(x_i + 40 < 100, &tile_of_x[tile_of_x_to + 512], x, x_from + 2560);
      copy_async_where<16>(x_i + 48 < 100, &tile_of_x[tile_of_x_to + 1024], x, x_from + 3072);
      copy_async_where<16>(x_i + 56 < 100, &tile_of_x[tile_of_x_to + 1536], x, x_from + 3584);"
    `);
    const chosen = "tile_of_x[m,k] = select(64*tile + m < 90, x[64*tile + 32 + m,k], 0)";
    expect(lines([copy("m 32, k 64", chosen, { width: 8 })], { scratch: [tile] })).toMatchInlineSnapshot(`
      "const int tile_of_x_to = 64 * (thread / 8) + 8 * ((thread % 8) ^ (thread / 8));
      const int x_from = 4096 * tile + 8 * thread;
      const int x_i = 64 * tile + thread / 8;
      *(Piece<uint16_t, 8>*)&tile_of_x[tile_of_x_to] = x_i + 32 < 100 ? *(const Piece<uint16_t, 8>*)&x[x_from + 2048] : filled<Piece<uint16_t, 8>>((uint16_t)0);
      *(Piece<uint16_t, 8>*)&tile_of_x[tile_of_x_to + 512] = x_i + 40 < 100 ? *(const Piece<uint16_t, 8>*)&x[x_from + 2560] : filled<Piece<uint16_t, 8>>((uint16_t)0);
      *(Piece<uint16_t, 8>*)&tile_of_x[tile_of_x_to + 1024] = x_i + 48 < 100 ? *(const Piece<uint16_t, 8>*)&x[x_from + 3072] : filled<Piece<uint16_t, 8>>((uint16_t)0);
      *(Piece<uint16_t, 8>*)&tile_of_x[tile_of_x_to + 1536] = 64 * tile + thread / 8 + 24 < 90 && x_i + 56 < 100 ? *(const Piece<uint16_t, 8>*)&x[x_from + 3584] : filled<Piece<uint16_t, 8>>((uint16_t)0);"
    `);
  });

  it("is made by the first threads where there are few pieces, and by a loop where there are many", () => {
    const small = shared("small", "f16", "k 64");
    expect(
      lines([copy("k 64", "small[k] = x[tile,k]", { width: 4, transfer: "async" })], { scratch: [small] }),
    ).toMatchInlineSnapshot(`
      "const int x_from = 64 * tile + 4 * thread;
      if (thread < 16) copy_async<8>(&small[4 * thread], &x[x_from]);"
    `);
    expect(lines([copy("m 40, k 64", "out[m,k] = f32(x[m,k])")])).toMatchInlineSnapshot(`
      "#pragma unroll 4
      for (int piece = 0; piece < 40; piece++) {
        if (thread < 48) out[48 * piece + thread] = (float)(from_f16(x[thread + 64 * piece]));
      }"
    `);
  });

  it("is dealt to the lanes of each warp", () => {
    const own = shared("own", "f32", "w 2, n 48");
    const stored = copy("n 48", "out[2*tile + warp,n] = own[warp,n]", { width: 4, group: "warp" });
    expect(lines([stored], { scratch: [own] })).toMatchInlineSnapshot(`
      "const int out_to = 96 * tile + 48 * warp + 4 * lane;
      const int own_from = 48 * warp + 4 * lane;
      if (lane < 12) *(Piece<float, 4>*)&out[out_to] = *(const Piece<float, 4>*)&own[own_from];"
    `);
  });

  it("computes between a vector that is loaded and one that is stored", () => {
    const wide = shared("wide", "f32", "m 32, k 64");
    const scaled = "wide[m,k] = f32(x[32*tile + m,k]) * 0.5 + f32(x[0,m])";
    expect(lines([copy("m 4, k 64", scaled, { width: 4 })], { scratch: [wide] })).toMatchInlineSnapshot(`
      "const int x_from = 2048 * tile + 4 * thread;
      const int x_at = thread / 16;
      {
        const Piece<uint16_t, 4> x_piece_0 = *(const Piece<uint16_t, 4>*)&x[x_from];
        *(Piece<float, 4>*)&wide[4 * thread] = {{
          (float)(from_f16(x_piece_0.values[0])) * 0.5f + (float)(from_f16(x[x_at])),
          (float)(from_f16(x_piece_0.values[1])) * 0.5f + (float)(from_f16(x[x_at])),
          (float)(from_f16(x_piece_0.values[2])) * 0.5f + (float)(from_f16(x[x_at])),
          (float)(from_f16(x_piece_0.values[3])) * 0.5f + (float)(from_f16(x[x_at])),
        }};
      }"
    `);
  });

  it("is made only where its condition holds, which bounds its reads", () => {
    const when = { when: parseExpr("step + 1 < 4"), width: 8, transfer: "async" } as const;
    const ahead = copy("m 32, k 16", "tile_of_x[m,k] = x[m,16*(step + 1) + k]", when);
    expect(lines([loop("step", 4, [ahead])], { scratch: [tile] })).toMatchInlineSnapshot(`
      "const int tile_of_x_to = 64 * (thread / 2) + 8 * ((thread % 2) ^ (thread / 2 % 8));
      const int x_from = 64 * (thread / 2) + 8 * (thread % 2);
      #pragma unroll 1
      for (int step = 0; step < 4; step++) {
        if (step + 1 < 4) {
          copy_async<16>(&tile_of_x[tile_of_x_to], &x[x_from + 16 * step + 16]);
        }
      }"
    `);
  });

  it("is refused where elements of a piece may lie apart, or cannot be copied asynchronously", () => {
    const refuse =
      (equations: string, options: Partial<Copy>): (() => string) =>
      () =>
        lines([copy("m 32, k 64", equations, options)], { scratch: [tile] });
    expect(refuse("tile_of_x[m,k] = x[m,k+1]", { width: 8 })).toThrow(
      "internal: 8 elements of x[$piece/8,8*($piece%8)+$element+1] are to move at once, which lie at",
    );
    expect(refuse("tile_of_x[m,k] = select(k < 5, x[m,k], 0)", { width: 8 })).toThrow(
      "< 5 parts 8 elements that are to move at once",
    );
    expect(refuse("tile_of_x[m,k] = x[m,k] * x[m,k]", { width: 8, transfer: "async" })).toThrow(
      "an asynchronous copy cannot compute",
    );
    expect(refuse("tile_of_x[m,k] = x[m,k]", { width: 1, transfer: "async" })).toThrow(
      "2 bytes at once of 2048 pieces: cp.async moves 4, 8 or 16",
    );
    expect(refuse("tile_of_x[m,k] = select(m < 3, x[m,k], 1)", { width: 8, transfer: "async" })).toThrow(
      "moves elements, or fills with zeros",
    );
  });
});

describe("a fetch", () => {
  const file = (operand: "a" | "b", count: number, intrinsic = MMA): RegisterFile => ({
    name: operand,
    intrinsic,
    operand,
    count,
  });
  const fetch = (
    register: string,
    place: string,
    by: "elements" | "ldmatrix" | "ldmatrix.trans" | "instruction",
    count = 1,
    along = 1,
  ): Statement => {
    const at = parseExpr(place);
    if (at.kind !== "access") throw new Error("no access");
    const several = count > 1 ? { several: { count, along } } : {};
    return {
      kind: "fetch",
      register: { file: register, index: number(0) },
      tile: { axes: ["u", "v"], access: at, by, ...several },
    };
  };

  it("by ldmatrix names one row a lane, and loads neighbouring tiles at once", () => {
    const a = shared("a_tile", "f16", "m 32, k 64", "64*m + 8*((k/8) ^ (m%8)) + k%8");
    const b = shared("b_tile", "f16", "k 16, n 64");
    const parts = { scratch: [a, b], registers: [file("a", 1), file("b", 6)] };
    expect(lines([fetch("a", "a_tile[16*warp + u,48 + v]", "ldmatrix")], parts)).toMatchInlineSnapshot(`
      "const int a_tile_row = 1024 * warp + 64 * (lane % 16) + 8 * ((lane / 16 + 6) ^ (lane % 8));
      load_4_matrices(a[0][0], a[0][1], a[0][2], a[0][3], &a_tile[a_tile_row]);"
    `);
    expect(lines([fetch("b", "b_tile[u,16 + v]", "ldmatrix.trans", 3)], parts)).toMatchInlineSnapshot(`
      "const int b_tile_row = 64 * (lane % 16) + 8 * (lane / 16);
      const int b_tile_row_1 = 64 * (lane % 16);
      load_4_matrices_transposed(b[0][0], b[0][1], b[1][0], b[1][1], &b_tile[b_tile_row + 16]);
      load_2_matrices_transposed(b[2][0], b[2][1], &b_tile[b_tile_row_1 + 32]);"
    `);
    expect(lines([fetch("b", "a_tile[8*warp + v,u]", "ldmatrix")], parts)).toMatchInlineSnapshot(`
      "const int a_tile_row = 512 * warp + 64 * (lane % 8) + 8 * ((lane / 8 % 2) ^ (lane % 8));
      load_2_matrices(b[0][0], b[0][1], &a_tile[a_tile_row]);"
    `);
  });

  it("by elements is one read a register where they lie side by side, else several", () => {
    const a = shared("a_tile", "f16", "m 16, k 24");
    const turned = shared("b_tile", "f16", "k 16, n 9");
    const parts = { scratch: [a, turned], registers: [file("a", 1), file("b", 1)] };
    expect(lines([fetch("a", "a_tile[u,v]", "elements")], parts)).toMatchInlineSnapshot(`
      "const int a_tile_at = 24 * (lane / 4) + 2 * (lane % 4);
      a[0][0] = *(const unsigned*)&a_tile[a_tile_at];
      a[0][1] = *(const unsigned*)&a_tile[a_tile_at + 192];
      a[0][2] = *(const unsigned*)&a_tile[a_tile_at + 8];
      a[0][3] = *(const unsigned*)&a_tile[a_tile_at + 200];"
    `);
    expect(lines([fetch("b", "b_tile[u,v]", "elements")], parts)).toMatchInlineSnapshot(`
      "const int b_tile_at = 18 * (lane % 4) + lane / 4;
      b[0][0] = (unsigned)(uint16_t)b_tile[b_tile_at] | (unsigned)(uint16_t)b_tile[b_tile_at + 9] << 16;
      b[0][1] = (unsigned)(uint16_t)b_tile[b_tile_at + 72] | (unsigned)(uint16_t)b_tile[b_tile_at + 81] << 16;"
    `);
    const bytes = rowNamed("mma.m16n8k32.s32.s8");
    const bytesOfB = shared("b_tile", "s8", "k 32, n 8");
    const on = { scratch: [bytesOfB], registers: [file("b", 1, bytes)], intrinsic: bytes };
    expect(lines([fetch("b", "b_tile[u,v]", "elements")], on).split("\n")[2]).toMatchInlineSnapshot(
      `"b[0][1] = (unsigned)(uint8_t)b_tile[b_tile_at + 128] | (unsigned)(uint8_t)b_tile[b_tile_at + 136] << 8 | (unsigned)(uint8_t)b_tile[b_tile_at + 144] << 16 | (unsigned)(uint8_t)b_tile[b_tile_at + 152] << 24;"`,
    );
  });

  it("by the instruction is given the distance between rows", () => {
    const wmma = rowNamed("wmma.m16n16k16.f32.f16");
    const a = shared("a_tile", "f16", "m 32, k 40");
    const parts = { scratch: [a], registers: [file("a", 2, wmma)], intrinsic: wmma };
    expect(lines([fetch("a", "a_tile[u,v]", "instruction", 2, 0)], parts)).toMatchInlineSnapshot(`
      "wmma::load_matrix_sync(a[0], (const __half*)(&a_tile[0]), 80 / 2);
      wmma::load_matrix_sync(a[1], (const __half*)(&a_tile[640]), 80 / 2);"
    `);
    const swizzled = shared("a_tile", "f16", "m 32, k 64", "64*m + 8*((k/8) ^ (m%8)) + k%8");
    expect(() => lines([fetch("a", "a_tile[u,v]", "instruction")], { ...parts, scratch: [swizzled] })).toThrow(
      /internal: a tile of a lies at .* of a_tile/,
    );
  });

  it("is refused where rows of 16 bytes do not lie side by side, and where a register is not known", () => {
    const a = shared("a_tile", "f16", "m 32, k 20");
    const parts = { scratch: [a], registers: [file("a", 1)] };
    expect(() => lines([fetch("a", "a_tile[u,v]", "ldmatrix")], parts)).toThrow(
      "internal: a_tile: ldmatrix wants rows of 16 bytes, at multiples of 16",
    );
    const clear: Statement = { kind: "clear", register: { file: "a", index: axis("step") } };
    expect(() => lines([loop("step", 2, [clear])], parts)).toThrow(/register step of 1 is not known/);
  });
});

describe("a drain", () => {
  const sums: RegisterFile = { name: "c", intrinsic: MMA, operand: "c", count: 1 };
  const drain = (equation: string): Statement => ({
    kind: "drain",
    register: { file: "c", index: number(0) },
    axes: ["u", "v"],
    element: "sum",
    equation: parseEquation(equation),
  });
  const drained = (equation: string, columns = 48): string => {
    const computation = defineComputation({ ...COMPUTATION_SPEC, extents: { i: 100, j: columns, l: 64 } });
    return lines([drain(equation)], { computation, registers: [sums] });
  };
  const COMPUTATION_SPEC = {
    name: "matmul",
    equation: "out[i,j] += f32(x[i,l]) * f32(y[l,j])",
    tensors: { x: "f16", y: "f16" },
  } as const;

  it("stores at once the neighbours that one lane holds and that are inside together", () => {
    expect(drained("out[16*tile + u,8*warp + v] = sum[]")).toMatchInlineSnapshot(`
      "const int out_to = 768 * tile + 48 * (lane / 4) + 8 * warp + 2 * (lane % 4);
      *(Piece<float, 2>*)&out[out_to] = {{c[0][0], c[0][1]}};
      *(Piece<float, 2>*)&out[out_to + 384] = {{c[0][2], c[0][3]}};"
    `);
    expect(drained("out[96*tile + u,40 + 8*warp + v] = max(sum[], 0)")).toMatchInlineSnapshot(`
      "const int out_to = 4608 * tile + 48 * (lane / 4) + 8 * warp + 2 * (lane % 4);
      const int out_i = 96 * tile + lane / 4;
      const int out_j = 8 * warp + 2 * (lane % 4);
      if (out_i < 100 && out_j + 40 < 48) *(Piece<float, 2>*)&out[out_to + 40] = {{(float)(at_least<float>((c[0][0]), (0.0f))), (float)(at_least<float>((c[0][1]), (0.0f)))}};
      if (out_i + 8 < 100 && out_j + 40 < 48) *(Piece<float, 2>*)&out[out_to + 424] = {{(float)(at_least<float>((c[0][2]), (0.0f))), (float)(at_least<float>((c[0][3]), (0.0f)))}};"
    `);
  });

  it("stores elements one by one where one may be outside without the other, or they lie apart", () => {
    expect(drained("out[16*tile + u,8*warp + v] = sum[]", 47)).toMatchInlineSnapshot(`
      "const int out_to = 752 * tile + 47 * (lane / 4) + 8 * warp + 2 * (lane % 4);
      out[out_to] = c[0][0];
      out[out_to + 1] = c[0][1];
      out[out_to + 376] = c[0][2];
      out[out_to + 377] = c[0][3];"
    `);
    expect(drained("out[8*warp + v,16*tile + u] = sum[] where v < 5")).toMatchInlineSnapshot(`
      "const int out_to = 384 * warp + 96 * (lane % 4) + 16 * tile + lane / 4;
      if (2 * (lane % 4) < 5) out[out_to] = c[0][0];
      if (2 * (lane % 4) + 1 < 5) out[out_to + 48] = c[0][1];
      if (2 * (lane % 4) < 5) out[out_to + 8] = c[0][2];
      if (2 * (lane % 4) + 1 < 5) out[out_to + 56] = c[0][3];"
    `);
  });

  it("by the instruction writes a tile of shared memory", () => {
    const wmma = rowNamed("wmma.m16n16k16.f32.f16");
    const own = shared("own", "f32", "w 2, m 16, n 20");
    const store: Statement = { ...drain("own[warp,u,v] = sum[]"), by: "instruction" } as Statement;
    const registers = [{ name: "c", intrinsic: wmma, operand: "c", count: 1 }];
    expect(lines([store], { scratch: [own], registers, intrinsic: wmma })).toMatchInlineSnapshot(
      `"wmma::store_matrix_sync((float*)(&own[320 * warp]), c[0], 80 / 4, wmma::mem_row_major);"`,
    );
  });
});

describe("a scalar statement", () => {
  it("is made by one lane of a warp", () => {
    const joined: Statement = {
      kind: "scalar",
      equation: parseEquation("out[8*tile + step,warp] max= f32(x[0,step])"),
    };
    expect(lines([loop("step", 4, [joined])])).toMatchInlineSnapshot(`
      "const int out_to = 384 * tile + warp;
      const int out_at = 384 * tile + warp;
      #pragma unroll 1
      for (int step = 0; step < 4; step++) {
        if (lane == 0) out[out_to + 48 * step] = most<float>(out[out_at + 48 * step], (float)(from_f16(x[step])));
      }"
    `);
  });

  it("keeps two signs apart, which C would read as a decrement", () => {
    const negated: Statement = { kind: "scalar", equation: parseEquation("out[tile,warp] = -(-f32(x[0,warp])) - -2") };
    expect(lines([negated])).toContain("= -(-(float)(from_f16(x[warp]))) - -2.0f;");
  });
});

describe("a kernel", () => {
  it("declares shared memory up to 48 KiB, requests more at its launch, and returns CUDA's error code", () => {
    const large = (m: number): string =>
      source([copy(`m ${m}, k 64`, "tile_of_x[m,k] = x[m%100,k]")], {
        scratch: [shared("tile_of_x", "f16", `m ${m}, k 64`)],
      });
    expect(large(384)).toContain("__shared__ __align__(128) uint16_t tile_of_x[24576];");
    expect(large(385)).toContain("uint16_t* const tile_of_x = (uint16_t*)(dynamic_shared() + 0);");
    expect(large(385)).toContain(
      "error = cudaFuncSetAttribute(phase_0, cudaFuncAttributeMaxDynamicSharedMemorySize, 49280);\n  if (error != cudaSuccess) return error;",
    );
    expect(large(385)).toContain("cudaLaunchKernel(phase_0, dim3(2), dim3(64), arguments, 49280, stream);");
  });

  it("becomes one kernel a phase, and one more that packs constants ahead of time", () => {
    const packed: Scratch = { name: "packed", dtype: "f16", elements: 64 * 48, scope: "workspace" };
    const block = (inner: readonly Statement[], mode: LoopMode = "block"): Statement => loop("tile", 2, inner, mode);
    const nest: LoopNest = {
      scratch: [packed],
      registers: [],
      prepare: [block([copy("e 1536", "packed[1536*tile + e] = y[32*tile + e/48,e%48]")])],
      body: [
        block([copy("e 48", "out[tile,e] = f32(packed[48*tile + e])")]),
        { kind: "barrier" },
        block([copy("e 48", "out[50 + tile,e] = f32(packed[e])")]),
      ],
    };
    const text = generateCuda(COMPUTATION, MMA, nest, { lines: [] }).source;
    expect(text.match(/^static __global__ .*$/gm)).toMatchInlineSnapshot(`
      [
        "static __global__ void __launch_bounds__(32) prepare_0(const uint16_t* __restrict__ y, uint16_t* packed) {",
        "static __global__ void __launch_bounds__(32) phase_0(float* __restrict__ out, uint16_t* packed) {",
        "static __global__ void __launch_bounds__(32) phase_1(float* __restrict__ out, uint16_t* packed) {",
      ]
    `);
    expect(text.match(/cudaLaunchKernel\(\w+/g)).toEqual(
      ["prepare_0", "phase_0", "phase_1"].map((k) => `cudaLaunchKernel(${k}`),
    );
  });

  it("is refused with more threads than a block has, and where loops over blocks stand inside", () => {
    expect(() => source([], { warps: 33 })).toThrow(
      expect.objectContaining({ name: "UsageError", hint: "take fewer warps a block" }),
    );
    const inside = loop("late", 2, [loop("block", 2, [], "block")]);
    expect(() => source([inside])).toThrow("internal: the loop block at block stands within what warps run");
  });

  it("indexes tensors of 2^31 elements in more than an int", () => {
    const computation = stated(
      `out[i,j] += f32(x[i,l]) * f32(y[l,j]) --i ${2 ** 17} --j ${2 ** 14} --l 64 --dtype f16`,
    );
    const far: Expr = binary("*", number(2), axis("tile"));
    const store: Statement = {
      kind: "copy",
      axes: [{ name: "n", extent: 64 }],
      width: 1,
      transfer: "plain",
      group: "block",
      equation: { target: access("out", [far, axis("n")]), op: "=", value: number(0) },
    };
    expect(lines([store], { computation })).toMatchInlineSnapshot(`
      "const long tile = blockIdx.x;
      const long thread = threadIdx.x % 64;
      const long out_to = 32768 * tile + thread;
      out[out_to] = 0.0f;"
    `);
  });
});
