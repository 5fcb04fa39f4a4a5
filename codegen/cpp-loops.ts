/**
 * @file Prints plain loops as C++: a kernel for any computation that no instruction maps.
 *
 *     for (long row = 0; row < 64; row++) {
 *       sums[row] = sums[row] + exp_float(x[rest * 1000 + row_block * 64 + row] - m[rest]);
 *     }
 *
 * The compiler vectorises the rows: float functions are written as plain arithmetic (cpp-expressions.ts), and accesses
 * that the loops prove to be inside a tensor are not tested.
 */

import type { Extents } from "../abstraction/affine.ts";
import type { Computation } from "../abstraction/computation.ts";
import type { Access } from "../abstraction/expression.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { LoopNest } from "../abstraction/loop-nest.ts";
import { type Code, code, NOTHING } from "../abstraction/source-text.ts";
import { CExpressions, type Place } from "./c-expressions.ts";
import { CppWriter } from "./cpp.ts";
import { CPP_WORDS } from "./cpp-expressions.ts";
import { argumentsOf, packedConstants, type SourceNotes } from "./cpp-frame.ts";

/** Loops without instructions. */
interface Loops {
  readonly nest: LoopNest;
  /** Reads that are inside their tensors although their indices alone do not show it. */
  readonly inside: ReadonlySet<Access>;
}

/** @param features ISA features that the compiler may use, by flag name; none gives a kernel for any machine */
export function generateLoops(
  computation: Computation,
  loops: Loops,
  features: readonly string[],
  { lines: comments }: SourceNotes,
): Kernel {
  const writer = new CppWriter(new LoopExpressions(computation, loops), false);
  return {
    language: "c++",
    ...writer.source({ comments, prelude: NOTHING, registers: () => [] }),
    features,
    promises: undefined,
    arguments: argumentsOf(computation),
    packs: packedConstants(computation, loops.nest),
  };
}

class LoopExpressions extends CExpressions {
  private readonly inside: ReadonlySet<Access>;

  constructor(computation: Computation, { nest, inside }: Loops) {
    super(computation, nest, CPP_WORDS);
    this.inside = inside;
  }

  override placeOf(access: Access, extents: Extents): Place {
    const place = super.placeOf(access, extents);
    return this.inside.has(access) ? { ...place, guards: [] } : place;
  }

  /**
   * A tested read stays scalar. g++ 12 turns a vector of them into a masked load, and for some masks into a load of the
   * whole vector, which reads outside.
   */
  protected override elementAt(e: Access, at: Code, extents: Extents, isTested: boolean): Code {
    return super.elementAt(e, isTested ? code`@one_by_one(${at})` : at, extents, isTested);
  }
}
