/**
 * @file Turns the scales and zero points of a quantised layer into constant inputs, so that layers that differ only in them share one task and one
 * record.
 *
 *     res[n,k] = sat_u8(round(f32(out[n,k]) * 0.031 + f32(s32(x[n,k]) - 113) * 1.62))
 *     res[n,k] = sat_u8(round(f32(out[n,k]) * e0[] + f32(s32(x[n,k]) - e1[]) * e2[]))        e0 = 0.031, e1 = 113, e2 = 1.62
 *
 * Results are bit-identical. An integer without a zero point gets a zero point of 0, because other layers of the task may have one.
 */

import { type DType, isInteger } from "../abstraction/dtype.ts";
import { type Access, access, binary, type Expr, rewrite } from "../abstraction/expression.ts";
import { rebuilt } from "../abstraction/rebuild.ts";
import { typeOf } from "../abstraction/typing.ts";
import type { Step } from "./network.ts";
import { numbersFor } from "./numbers.ts";
import type { Value } from "./value.ts";

/** The step with the numbers of its epilogue as constants; unchanged when its sums are not integers. */
export function liftedNumbers(step: Step): Step {
  const { computation, reads } = step;
  const { epilogue } = computation;
  if (!epilogue || !isInteger(epilogue.sum.dtype)) return step;
  const held = Object.values({ ...computation.tensors, [epilogue.sum.name]: epilogue.sum });
  const lifted = new Lifted(new Map(held.map(({ name, dtype }) => [name, dtype])), step.output.name);
  const value = rewrite(epilogue.equation.value, (e) => lifted.changed(e), "value");
  if (lifted.values.size === 0) return step;
  const scalars = [...lifted.values].map(([name, { type }]) => [name, { dtype: type, shape: [], constant: true }]);
  return {
    ...step,
    computation: rebuilt(computation, {
      epilogue: { ...epilogue.equation, value },
      tensors: Object.fromEntries(scalars),
    }),
    reads: { ...reads, ...Object.fromEntries(lifted.values) },
  };
}

/** Types of scales and zero points. */
type Scalar = Value & { readonly type: "f32" | "s32" };

class Lifted {
  readonly values = new Map<string, Scalar>();
  private readonly types: Map<string, DType>;
  private readonly of: string;

  constructor(types: Map<string, DType>, of: string) {
    this.types = types;
    this.of = of;
  }

  /** An expression whose parts have already been rewritten. */
  changed(e: Expr): Expr {
    if (e.kind === "cast" && e.value.kind === "number") return this.lifted(e.value.value, e.dtype) ?? e;
    if (e.kind === "cast" && e.dtype === "f32" && e.value.kind === "access") return this.lessZero(e, e.value);
    if (e.kind !== "binary") return e;
    const { left, right } = e;
    if (right.kind === "number") return { ...e, right: this.lifted(right.value, this.typeOf(left)) ?? right };
    if (left.kind === "number") return { ...e, left: this.lifted(left.value, this.typeOf(right)) ?? left };
    return e;
  }

  /** `f32(x)` of narrow integers as `f32(s32(x) - 0)`. */
  private lessZero(e: Extract<Expr, { kind: "cast" }>, read: Access): Expr {
    const type = this.types.get(read.tensor);
    const zero = type === "u8" || type === "s8" ? this.lifted(0, "s32") : undefined;
    return zero ? { ...e, value: binary("-", { ...e, dtype: "s32" }, zero) } : e;
  }

  private typeOf(e: Expr): DType | undefined {
    return typeOf(e, Object.fromEntries(this.types));
  }

  private lifted(value: number, type: DType | undefined): Access | undefined {
    if (type !== "f32" && type !== "s32") return undefined;
    let number = 0;
    while (this.types.has(`e${number}`)) number++;
    const name = `e${number}`;
    const constant = numbersFor(type, 1, this.of);
    constant[0] = value;
    this.types.set(name, type);
    this.values.set(name, { name: `${this.of}.${name}`, type, shape: [], constant });
    return access(name, []);
  }
}
