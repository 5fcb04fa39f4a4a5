/** @file Divisions before rounding: folded into the factors of a layer, they give the same as on their own. */

import { describe, expect, it } from "vitest";
import { pick, randomInteger, seededRandom } from "../../abstraction/random.ts";
import { GraphBuilder } from "../../network/builder.ts";
import { fuse } from "../../network/fuse.ts";
import type { Graph } from "../../network/graph.ts";
import { lowerGraph } from "../../network/lower.ts";
import { runNetwork } from "../../network/run.ts";

/** A convolution to three channels, and what stands behind it; `y` is a second input. */
class Tail {
  private readonly net = new GraphBuilder("tail");
  private readonly random: () => number;
  private value: string;

  constructor(seed: number, hasBias: boolean) {
    this.random = seededRandom(seed);
    const image = this.net.input("x", [1, 2, 3, 3]);
    this.net.input("y", [1, 3, 3, 3]);
    const bias = hasBias ? [this.drawn([3])] : [];
    this.value = this.net.node("Conv", [image, this.drawn([3, 2, 1, 1]), ...bias]);
  }

  drawn(shape: readonly number[]): string {
    const count = shape.reduce((product, size) => product * size, 1);
    return this.constant(
      shape,
      Array.from({ length: count }, () => 3 * this.random() - 1),
    );
  }

  private constant(shape: readonly number[], elements: readonly number[]): string {
    return this.net.constant(`c${Math.trunc(1e9 * this.random())}`, shape, Float32Array.from(elements));
  }

  with(other: "list" | "number" | "input", op: "Add" | "Mul", onLeft: boolean): this {
    const beside = other === "input" ? "y" : this.drawn(other === "list" ? [3, 1, 1] : []);
    this.value = this.net.node(op, onLeft ? [beside, this.value] : [this.value, beside]);
    return this;
  }

  node(op: string, ...numbers: readonly number[]): this {
    this.value = this.net.node(op, [this.value, ...numbers.map((n) => this.constant([], [n]))]);
    return this;
  }

  quantised(scale: number): this {
    this.value = this.net.node("QuantizeLinear", [this.value, ...this.scaleOf(scale)]);
    return this;
  }

  shown(scale: number): this {
    this.value = this.net.node("DequantizeLinear", [this.value, ...this.scaleOf(scale)]);
    return this;
  }

  private scaleOf(scale: number): readonly string[] {
    const zero = this.net.constant(`z${Math.trunc(1e9 * this.random())}`, [], Uint8Array.of(128), "u8");
    return [this.constant([], [scale]), zero];
  }

  get graph(): Graph {
    this.net.output(this.value);
    return this.net.graph;
  }
}

/** How far the fused network is from the one that is not, at most. */
async function difference(graph: Graph): Promise<number> {
  const random = seededRandom(1);
  const draw = (length: number): Float32Array => Float32Array.from({ length }, () => 2 * random() - 1);
  const inputs = { x: draw(18), y: draw(27) };
  const program = lowerGraph(graph);
  const [plain = [], fused = []] = await Promise.all(
    [program, fuse(program)].map(async (p) => Array.from((await runNetwork(p, inputs)).values().next().value ?? [])),
  );
  expect(plain.length).toBe(27);
  expect(new Set(plain).size).toBeGreaterThan(3);
  return Math.max(...plain.map((x, i) => Math.abs(x - (fused[i] ?? Number.NaN))));
}

describe("a layer that is rounded after a division", () => {
  const cases = (["list", "number"] as const).flatMap((factor) =>
    [true, false].flatMap((onLeft) =>
      [true, false].flatMap((hasBias) =>
        ([undefined, "input", "list"] as const).map(
          (added) => [factor, onLeft ? "left" : "right", hasBias, added] as const,
        ),
      ),
    ),
  );
  it.each(cases)("times a %s on the %s, with a bias (%s) and %s added", async (factor, side, hasBias, added) => {
    const tail = new Tail(7, hasBias);
    if (added) tail.with(added, "Add", false);
    expect(await difference(tail.with(factor, "Mul", side === "left").quantised(0.05).graph)).toBeLessThanOrEqual(1);
  });

  it("may be rounded twice", async () => {
    const tail = new Tail(3, true).quantised(0.03).shown(0.03).with("list", "Add", false).quantised(0.05);
    expect(await difference(tail.graph)).toBeLessThanOrEqual(1);
  });

  it("may be followed by anything element by element", async () => {
    for (let seed = 1; seed <= 80; seed++) {
      const random = seededRandom(seed);
      const tail = new Tail(seed, random() < 0.5);
      const said: string[] = [];
      for (let n = randomInteger(random, 1, 4); n > 0; n--) {
        const kind = pick(random, ["Add", "Mul", "Relu", "Neg", "Clip", "Div"]);
        said.push(kind);
        if (kind === "Add" || kind === "Mul")
          tail.with(pick(random, ["list", "number", "input"]), kind, random() < 0.5);
        else tail.node(kind, ...(kind === "Clip" ? [-0.4, 0.7] : kind === "Div" ? [3] : []));
      }
      const program = tail.quantised(0.02).graph;
      const inputs = {
        x: new Float32Array(18).map((_, i) => Math.sin(i)),
        y: new Float32Array(27).map((_, i) => Math.cos(i)),
      };
      const plain = Array.from((await runNetwork(lowerGraph(program), inputs)).values().next().value ?? []);
      const fused = Array.from((await runNetwork(fuse(lowerGraph(program)), inputs)).values().next().value ?? []);
      for (const [i, x] of plain.entries())
        expect(Math.abs(x - (fused[i] ?? Number.NaN)), `${seed}: ${said.join(" ")}`).toBeLessThanOrEqual(1);
    }
  });
});
