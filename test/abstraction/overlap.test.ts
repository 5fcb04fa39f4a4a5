/** Rows of results stored beside the next block's products: the order of statements, and that nothing else changes. */
import { describe, expect, it } from "vitest";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import type { LoopNest } from "../../abstraction/loop-nest.ts";
import { type Mapping, printMatching } from "../../abstraction/mapping.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { lowerSchedule } from "../../mapper/lower/scheduled.ts";
import { mappingsOnto, operation, rowNamed, smallIntegers } from "../support/subjects.ts";

const ORDER = ["n", "p", "q", "k", "r", "s", "c"];

function convolution(name: string, k: number, epilogue?: string): Mapping {
  const computation = operation(`conv2d c=4 k=${k} h=3 w=20 r=1 s=1 pad=0 NHWC`, "u8s8", {
    ...(epilogue === undefined ? {} : { epilogue }),
  });
  const wanted = name.startsWith("amx") ? "m <- q   n <- k   k <- c" : "n <- k   k <- c";
  const mapping = mappingsOnto(computation, rowNamed(name)).find((m) => printMatching(m.matching) === wanted);
  if (!mapping) throw new Error(`no mapping ${wanted}`);
  return mapping;
}

function lowered(mapping: Mapping, block: Readonly<Record<string, number>>, threads: number): LoopNest {
  const a = mapping.intrinsic.name.startsWith("amx") ? "padded" : "tiled";
  return lowerSchedule(mapping, { order: ORDER, block, placement: { a, b: "tiled" }, threads });
}

/** What is cleared, spilled and stored, in order. */
function steps(nest: LoopNest): string[] {
  const text = printNest(nest);
  return text
    .slice(text.lastIndexOf("barrier"))
    .split("\n")
    .filter((l) => /identity|<- c_register|^ *for (parallel )?(n|p|q|k|once)_?(outer|rest)?\b|res\[/.test(l))
    .map((l) => l.replace(/ = sat_u8.*| by 16/g, ""));
}

function expectEqual(mapping: Mapping, nest: LoopNest): void {
  const { computation } = mapping;
  const inputs = smallIntegers(computation);
  expect([...interpretNest(nest, computation, inputs, 2)]).toEqual([...interpret(computation, inputs)]);
}

describe("an epilogue of tiles", () => {
  it("is stored after the next block is computed and before that is spilled, in loops of several blocks", () => {
    const mapping = convolution("amx.tdpbusd", 64, "requantize");
    const nest = lowered(mapping, { k: 2 }, 1);
    expect(steps(nest).join("\n")).toMatchInlineSnapshot(`
      "  for parallel once in 0..1
          for p_outer in 0..3
              c_register{k_block} <- identity
              c_results[k_block*256 ..] <- c_register{k_block}
            for k_outer in 0..1
                c_register{k_block} <- identity
                    res[0,(k_outer*2+k_block)*16+n_inner,p_outer,m_inner]
                c_results[k_block*256 ..] <- c_register{k_block}
              c_register{k_block} <- identity
                  res[0,(2+k_block)*16+n_inner,p_outer,m_inner]
              c_results[k_block*256 ..] <- c_register{k_block}
            for k_outer in 0..1
                c_register{k_block} <- identity
                    res[0,(k_outer*2+k_block)*16+n_inner,p_outer,16+m_inner]
                c_results[k_block*256 ..] <- c_register{k_block}
                  res[0,(2+k_block)*16+n_inner,p_outer,16+m_inner]"
    `);
    expectEqual(mapping, nest);
  });

  it("gives the same with several threads, and with partial last tiles", () => {
    for (const [k, threads] of [
      [64, 2],
      [40, 1],
      [40, 3],
      [16, 1],
    ] as const)
      for (const block of [{}, { k: 2 }, { q: 2 }, { p: 2, k: 1 }]) {
        if ("k" in block && k === 16) continue;
        const mapping = convolution("amx.tdpbusd", k, "requantize");
        expectEqual(mapping, lowered(mapping, block, threads));
      }
  });

  it("is stored at once by vectors, and plain sums go straight to the output", () => {
    const vectors = steps(lowered(convolution("avx512.vpdpbusd", 64, "requantize"), { k: 2 }, 1));
    expect(vectors.findIndex((l) => l.includes("identity"))).toBe(vectors.findLastIndex((l) => l.includes("identity")));
    const sums = steps(lowered(convolution("amx.tdpbusd", 64), { k: 2 }, 1));
    expect(sums.findIndex((l) => /out\[.*<- c_register/.test(l))).toBe(
      sums.findIndex((l) => l.includes("identity")) + 1,
    );
  });
});
