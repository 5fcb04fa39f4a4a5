/**
 * @file Lanes as the threads of a warp: a register is a scalar of each thread, a shift is a shuffle, a parallel loop is dealt to warps.
 *
 *     Z0 = fmaf(x[28 * b + lane], w[q], __shfl_up_sync(0xffffffffu, Z0, 1));
 *
 * Constants that all lanes read alike lie in constant memory; a product that is added is one
 * instruction, and says so: nvcc is told -fmad=false. Emulation: runtime/emulation/cuda.h.
 */

import type { Extents } from "../abstraction/affine.ts";
import type { Computation } from "../abstraction/computation.ts";
import type { DType } from "../abstraction/dtype.ts";
import { type Equation, identityOf } from "../abstraction/equation.ts";
import { accessesIn, axesIn, type Expr, printAccess, substitute, walk } from "../abstraction/expression.ts";
import { WARP } from "../abstraction/intrinsic.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import type { LoopNest } from "../abstraction/loop-nest.ts";
import { axisName, type Code, code, list, NOTHING, skeleton, tensorName } from "../abstraction/source-text.ts";
import { typeOf } from "../abstraction/typing.ts";
import { allOf } from "./c-expressions.ts";
import { conjunction, equationsIn, guarded, joinedValue, joinScalars, pinnedLane, tested } from "./lane-statement.ts";
import type { Named } from "./named.ts";
import { registerName } from "./vector-expressions.ts";
import type { LanguagePrinter, Loop, Of } from "./walk.ts";
import { WarpExpressions } from "./warp-expressions.ts";

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
    const own = typeOf(e, this.dtypes) ?? dtype;
    if (e.kind !== "binary" || e.op !== "+" || (own !== "f32" && own !== "f64")) return super.value(e, dtype, extents);
    const [product, held] = isProduct(e.right) ? [e.right, e.left] : [e.left, e.right];
    if (!isProduct(product)) return super.value(e, dtype, extents);
    const parts = [product.left, product.right, held].map((part) => this.value(part, own, extents));
    return code`${own === "f32" ? "fmaf" : "fma"}(${list(parts)})`;
  }
}

type Product = Extract<Expr, { readonly kind: "binary" }>;

function isProduct(e: Expr): e is Product {
  return e.kind === "binary" && e.op === "*";
}

export class CudaLanes implements LanguagePrinter {
  private readonly c: ThreadExpressions;
  private readonly nest: LoopNest;
  /** Memory that is both written and read: lanes wait for one another around a write. */
  private readonly exchanged: ReadonlySet<string>;

  constructor(computation: Computation, nest: LoopNest, constants: ReadonlySet<string>) {
    this.nest = nest;
    this.c = new ThreadExpressions(computation, nest, constants);
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

  /** Outside a loop of lanes one thread of the warp writes. */
  scalar({ equation }: Of<"scalar">, extents: Extents): Code[] {
    return this.alone(equation, code`threadIdx.x % ${WARP}`, extents, []);
  }

  lanes(loop: Loop, extents: Extents): Code[] {
    return loop.body.flatMap((s): Code[] => {
      if (s.kind !== "scalar") throw new Error(`internal: lanes of ${loop.axis} run a ${s.kind}`);
      this.c.lane = loop.axis;
      try {
        return this.statement(s.equation, loop, { ...extents, [loop.axis]: loop.extent });
      } finally {
        this.c.lane = undefined;
      }
    });
  }

  private statement(equation: Equation, { axis: lane, extent }: Loop, extents: Extents): Code[] {
    const { target, value, where } = equation;
    if (!target.index.some((e) => axesIn(e).includes(lane))) return this.fold(equation, lane, extent, extents);

    const dtype = this.typeOf(target.tensor);
    const register = this.c.ownRegister(target);
    const place = register ? undefined : this.c.placeOf(target, extents);
    const to = place
      ? code`${this.c.tensor(target.tensor)}[${this.c.index(place.at, extents)}]`
      : code`${register ?? NOTHING}`;
    const guards = [
      ...this.inUse(equation, lane, extent),
      ...this.tests([...conjunction(where), ...(place?.guards ?? [])], lane, extents),
    ];
    const conditional = guards.length > 0 || [...walk(value)].some((n) => n.kind === "select");
    return this.withShuffles(conditional, () => {
      const text = this.c.value(joinedValue(equation), dtype, extents);
      return this.synchronised(target.tensor, guarded(guards, [code`${to} = ${text};`]));
    });
  }

  private tests(conditions: readonly Expr[], lane: string, extents: Extents): Code[] {
    return tested(conditions, lane, extents).map((e) => this.c.condition(e, extents));
  }

  /** Threads beyond the last lane may compute what nobody uses, but touch no memory. */
  private inUse({ target, value }: Equation, lane: string, extent: number): Code[] {
    const touches = [target, ...accessesIn(value)].some(
      (a) => this.c.registerOf(a) === undefined && a.index.some((e) => axesIn(e).includes(lane)),
    );
    return extent < WARP && touches ? [code`${axisName(lane)} < ${extent}`] : [];
  }

  /** A target without the lane axis: a fold of all lanes, or with `=` the value of the one lane that meets the condition. */
  private fold(equation: Equation, lane: string, extent: number, extents: Extents): Code[] {
    const { target, op, value, where } = equation;
    const thread = axisName(lane);
    const tests = [
      ...(extent < WARP ? [code`${thread} < ${extent}`] : []),
      ...this.tests(conjunction(where), lane, extents),
    ];
    const dtype = this.typeOf(target.tensor);
    const register = this.c.registerOf(target);
    if (op === "=") {
      const pinned = conjunction(where)
        .map((e) => pinnedLane(e, lane))
        .find((e) => e !== undefined);
      if (pinned === undefined)
        throw new Error(
          `internal: ${printAccess(target)} is assigned from several lanes; where ${lane} == n says which`,
        );
      if (!register) {
        const { at, guards } = this.c.place(target, extents);
        return this.withShuffles(true, () =>
          this.synchronised(
            target.tensor,
            guarded(
              [...tests, ...guards],
              [code`${this.c.tensor(target.tensor)}[${at}] = ${this.c.value(value, dtype, extents)};`],
            ),
          ),
        );
      }
      const alone = substitute(value, new Map([[lane, pinned]]));
      const others = conjunction(where).filter((e) => pinnedLane(e, lane) === undefined);
      const conditions = others.map((e) =>
        this.c.condition(substitute(e, new Map([[lane, pinned]]), "index"), extents),
      );
      return this.alone({ target, op, value: alone }, code`${thread}`, extents, conditions);
    }
    const name = op === "+=" ? "sum" : op === "max=" ? "most" : "least";
    const start = this.c.literal(identityOf(op, dtype), dtype);
    return this.withShuffles(true, () => {
      const own = this.c.value(value, dtype, extents);
      const taken = tests.length === 0 ? own : code`${allOf(tests)} ? ${own} : ${start}`;
      const result = tensorName(target.tensor).with(`_${name}`);
      const held = this.c.value(target, dtype, extents);
      const joined = joinScalars(op, register ? code`${register.name}` : held, code`${result}`, dtype);
      const lines = register
        ? [code`if (${thread} == ${this.c.index(register.lane, extents)}) ${register.name} = ${joined};`]
        : this.synchronised(
            target.tensor,
            guarded(
              [code`${thread} == 0`, ...this.c.place(target, extents).guards],
              [code`${this.c.tensor(target.tensor)}[${this.c.place(target, extents).at}] = ${joined};`],
            ),
          );
      return [code`const ${C_TYPES[dtype]} ${result} = ${name}_of_lanes<${C_TYPES[dtype]}>(${taken});`, ...lines];
    });
  }

  /** A statement of one thread: the first, or the one whose lane of a register it is. */
  private alone(equation: Equation, thread: Code, extents: Extents, conditions: readonly Code[]): Code[] {
    const { target, where } = equation;
    const dtype = this.typeOf(target.tensor);
    const register = this.c.registerOf(target);
    const place = register ? undefined : this.c.place(target, extents);
    const tests = [
      code`${thread} == ${register ? this.c.index(register.lane, extents) : 0}`,
      ...conditions,
      ...conjunction(where).map((e) => this.c.condition(e, extents)),
      ...(place?.guards ?? []),
    ];
    const to = register ? code`${register.name}` : code`${this.c.tensor(target.tensor)}[${place?.at ?? NOTHING}]`;
    return this.withShuffles(true, () => {
      const value = this.c.value(equation.value, dtype, extents);
      const held = equation.op === "=" ? NOTHING : register ? to : this.c.value(target, dtype, extents);
      const lines = guarded(tests, [code`${to} = ${joinScalars(equation.op, held, value, dtype)};`]);
      return this.synchronised(target.tensor, lines);
    });
  }

  /** Names the shuffles of a statement that not every lane finishes. */
  private withShuffles(named: boolean, print: () => Code[]): Code[] {
    this.c.named = named;
    this.c.shuffles.clear();
    this.c.declared.length = 0;
    const lines = print();
    const before = [...this.c.declared];
    const declares = before.length > 0 || lines.some((l) => skeleton(l).startsWith("const "));
    return declares ? guarded([], [...before, ...lines], true) : lines;
  }

  /** Around a write to memory that other lanes read. */
  private synchronised(target: string, lines: readonly Code[]): Code[] {
    return this.exchanged.has(target) ? [code`__syncwarp();`, ...lines, code`__syncwarp();`] : [...lines];
  }

  private typeOf(name: string): DType {
    const dtype = this.c.dtypes[name];
    if (dtype === undefined) throw new Error(`internal: no type of "${name}"`);
    return dtype;
  }
}
