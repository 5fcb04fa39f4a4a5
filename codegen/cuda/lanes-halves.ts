/**
 * @file Windows of f16 on the threads of a warp, two elements in each register: half2 of CUDA.
 *
 *     A[0,lane] += X[0,lane] * w[q]        A0 = fma_halves(X0, spread_half(constants::w[q]), A0);
 *     A[1,lane] += X[1,lane] * w[q]
 *     A[0,lane] += X[1,lane] * w[q]        A0 = fma_halves(joined_halves<0x5432>(X0, X1), spread_half(constants::w[q]), A0);
 *     A[1,lane] += X[2,lane] * w[q]
 *
 * Register 2k and the one after it are pair k. Each multiply-add is rounded to f16. Helpers: cuda-helpers.ts.
 */

import type { Extents } from "../../abstraction/affine.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { type Equation, printEquation } from "../../abstraction/equation.ts";
import { internal, UsageError } from "../../abstraction/error.ts";
import { type Access, axis, type Expr, isSame } from "../../abstraction/expression.ts";
import type { LoopNest } from "../../abstraction/loop-nest.ts";
import { type Code, code, hexadecimal } from "../../abstraction/source-text.ts";
import { type LaneAccess, registerIn, registerName } from "../lane-statement.ts";
import type { Loop, Named } from "../walk.ts";
import { type LaneRegister, ThreadExpressions } from "../warp-expressions.ts";
import type { Aligned } from "./cuda-copies.ts";
import { CudaLanes } from "./lanes-cuda.ts";

/** Elements of a register. */
const PAIR = 2;

const pairOf = (register: number): number => Math.floor(register / PAIR);

/** The two bytes of an element of a pair, as digits of PRMT's selector; those of the second pair count from 4. */
const bytesAt = (register: number, second: boolean): number =>
  (register % PAIR === 0 ? 0x10 : 0x32) + (second ? 0x44 : 0);

/** An access to a register names the pair that holds it. */
class HalfExpressions extends ThreadExpressions {
  override registerOf(access: Access): LaneRegister | undefined {
    const found = super.registerOf(access);
    return found && { ...found, name: registerName(found.file.name, pairOf(found.register)) };
  }
}

/** @throws UsageError, where it prints, for statements that do not compute neighbouring elements two by two */
export class HalfLanes extends CudaLanes {
  protected override readonly perRegister = PAIR;

  constructor(computation: Computation, nest: LoopNest, constants: ReadonlySet<string>, aligned: Aligned) {
    super(new HalfExpressions(computation, nest, undefined, constants), aligned);
  }

  override declarations({ registers }: Named): Code[] {
    return (this.nest.vectors ?? []).flatMap(({ name }) => {
      const pairs = new Set((registers.get(name) ?? []).filter((i) => !this.isUnread(name, i)).map(pairOf));
      return [...pairs].map((i) => code`uint32_t ${registerName(name, i)} = 0;`);
    });
  }

  override lanes(loop: Loop, extents: Extents): Code[] {
    const lines: Code[] = [];
    let held: Equation | undefined;
    for (const s of loop.body) {
      if (s.kind !== "scalar") internal(`lanes of ${loop.axis} run a ${s.kind}`);
      if (s.together) {
        lines.push(...this.statement(s, loop, extents));
        if (s.prefetch) lines.push(...this.prefetched(s.prefetch, s.isDistant ?? false, loop, extents));
      } else if (held === undefined) {
        held = s.equation;
        continue;
      } else lines.push(this.both(held, s.equation, loop, extents));
      if (s.together && held) throw this.unpaired(held);
      held = undefined;
    }
    if (held) throw this.unpaired(held);
    this.c.begin(undefined);
    return lines;
  }

  private unpaired(equation: Equation): UsageError {
    return new UsageError(
      `${this.c.computation.name}: lanes of cuda compute f16 two by two, and ${printEquation(equation)} stands alone`,
      "give each lane of a window 2, 4 or 8 outputs, or compute in --dtype f32",
    );
  }

  /** Two statements on neighbouring registers as one. */
  private both(first: Equation, second: Equation, loop: Loop, extents: Extents): Code {
    const one = dataOf(first);
    const two = dataOf(second);
    if (!one || !two) throw this.unpaired(first);
    const alike = one.factor === two.factor || (one.factor && two.factor && isSame(one.factor, two.factor));
    const a = this.register(first.target);
    const b = this.register(second.target);
    if (!a || !b || a.file !== b.file || a.register % PAIR !== 0 || b.register !== a.register + 1)
      throw this.unpaired(first);
    if (first.op !== second.op || first.where || second.where || !alike) throw this.unpaired(first);
    this.c.begin({ lane: loop.axis });
    const sum = this.named(a);
    const [low, high] = [one, two].map(({ data }) => (data.kind === "access" ? this.register(data) : undefined));
    const isOwn = ({ lane }: LaneAccess): boolean => isSame(lane, axis(loop.axis));
    if (!low || !high || ![a, b, low, high].every(isOwn)) throw this.unpaired(first);
    const data = this.joined(low, high);
    const weight = one.factor && code`@spread_half(${this.c.value(one.factor, "f16", extents)})`;
    return code`${sum} = ${this.combined(first, sum, data, weight)};`;
  }

  private combined({ op }: Equation, sum: Code, data: Code, weight: Code | undefined): Code {
    if (op === "=") return weight ? code`@multiplied_halves(${data}, ${weight})` : data;
    if (op !== "+=") internal(`pairs of f16 are added, not combined by ${op}`);
    return weight ? code`@fma_halves(${data}, ${weight}, ${sum})` : code`@added_halves(${sum}, ${data})`;
  }

  /** Two elements as a pair. */
  private joined(low: LaneAccess, high: LaneAccess): Code {
    const first = this.named(low);
    if (low.file === high.file && low.register % PAIR === 0 && high.register === low.register + 1) return first;
    const selector = bytesAt(low.register, false) + (bytesAt(high.register, true) << 8);
    return code`@joined_halves<${hexadecimal(selector)}>(${first}, ${this.named(high)})`;
  }

  private named({ file, register }: LaneAccess): Code {
    return code`${registerName(file.name, pairOf(register))}`;
  }

  private register(access: Access): LaneAccess | undefined {
    return registerIn(this.nest, access);
  }
}

/** `data * factor`, or data alone; undefined for any other value. */
function dataOf({ value }: Equation): { readonly data: Expr; readonly factor?: Expr } | undefined {
  if (value.kind !== "binary") return { data: value };
  if (value.op !== "*") return undefined;
  return { data: value.left, factor: value.right };
}
