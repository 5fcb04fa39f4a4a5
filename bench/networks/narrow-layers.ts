/**
 * @file Layers of language models with seeded weights of 4 bits, as tools of ONNX Runtime write them.
 *
 *     const net = new NarrowLayers("product", 1);
 *     net.output(net.narrow(net.input("x", [1, 4096]), "up", { n: 14336, k: 4096, group: 32, level: 4 }));
 */

import { seededRandom } from "../../abstraction/random.ts";
import { SeededLayers } from "../../network/models/layers.ts";

export interface NarrowShape {
  readonly n: number;
  readonly k: number;
  /** Weights that share a scale. */
  readonly group: number;
  /** `accuracy_level`: 0 computes in f32; 4 may quantise the other factor to s8, by row and group. */
  readonly level: 0 | 4;
}

/** Adds products by weights of 4 bits to a graph. */
export class NarrowLayers extends SeededLayers {
  private readonly bytes = seededRandom(1);

  /** A product whose outputs are about as large as its inputs. @returns its name */
  narrow(x: string, name: string, { n, k, group, level }: NarrowShape): string {
    const groups = k / group;
    const codes = Uint8Array.from({ length: (n * k) / 2 }, () => Math.floor(256 * this.bytes()));
    const w = this.constant(`${name}.w`, [n, groups, group / 2], codes, "u8");
    // Codes less 8 have a variance of 21.
    const scale = 1 / Math.sqrt(21 * k);
    const s = this.drawn(`${name}.s`, [n * groups], scale / 2, scale);
    return this.node("MatMulNBits", [x, w, s], { K: k, N: n, bits: 4, block_size: group, accuracy_level: level }, name);
  }
}
