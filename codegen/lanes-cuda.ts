/**
 * @file Lanes as the threads of a warp: a register is a scalar of each thread, a shift is a shuffle, a parallel loop is dealt to warps.
 *
 *     Z0 = fmaf(x[28 * b + lane], w[q], __shfl_up_sync(0xffffffffu, Z0, 1));
 *
 * Constants that all lanes read alike lie in constant memory. Emulation: runtime/emulation/cuda.h.
 */

import type { Extents } from "../abstraction/affine.ts";
import type { Computation } from "../abstraction/computation.ts";
import type { DType } from "../abstraction/dtype.ts";
import { accessesIn, type Expr } from "../abstraction/expression.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import type { LoopNest } from "../abstraction/loop-nest.ts";
import { axisName, type Code, code, tensorName } from "../abstraction/source-text.ts";
import { equationsIn, registerName } from "./lane-statement.ts";
import type { Named } from "./named.ts";
import type { LanguagePrinter, Loop } from "./walk.ts";
import { WarpExpressions } from "./warp-expressions.ts";
import { WarpLanes } from "./warp-lanes.ts";

/** Scalar expressions of one thread; a product that is added is one instruction, and constants may lie in memory of their own. */
class ThreadExpressions extends WarpExpressions {
  private readonly constants: ReadonlySet<string>;

  constructor(computation: Computation, nest: LoopNest, constants: ReadonlySet<string>) {
    super(computation, nest);
    this.constants = constants;
  }

  override tensor(name: string): Code {
    return this.constants.has(name) ? code`constants::${tensorName(name)}` : super.tensor(name);
  }

  override value(e: Expr, dtype: DType, extents: Extents): Code {
    return this.multiplyAdd(e, dtype, extents) ?? super.value(e, dtype, extents);
  }
}

export class CudaLanes extends WarpLanes implements LanguagePrinter {
  /** Memory that is both written and read: lanes wait for one another around a write. */
  private readonly exchanged: ReadonlySet<string>;

  constructor(computation: Computation, nest: LoopNest, constants: ReadonlySet<string>) {
    super(new ThreadExpressions(computation, nest, constants), nest);
    const all = equationsIn([...nest.prepare, ...nest.body]);
    const read = new Set(all.flatMap(({ value }) => accessesIn(value).map((a) => a.tensor)));
    const vectors = new Set((nest.vectors ?? []).map((v) => v.name));
    this.exchanged = new Set(
      all.map(({ target }) => target.tensor).filter((name) => read.has(name) && !vectors.has(name)),
    );
  }

  declarations({ registers }: Named): Code[] {
    return (this.nest.vectors ?? []).flatMap(({ name, dtype }) =>
      (registers.get(name) ?? []).map((i) => code`${C_TYPES[dtype]} ${registerName(name, i)} = 0;`),
    );
  }

  openLoop({ axis, extent }: Loop): Code {
    const name = axisName(axis);
    return code`for (int ${name} = 0; ${name} < ${extent}; ${name}++) {`;
  }

  protected override synchronised(tensor: string, lines: Code[]): Code[] {
    return this.exchanged.has(tensor) ? [code`__syncwarp();`, ...lines, code`__syncwarp();`] : lines;
  }
}
