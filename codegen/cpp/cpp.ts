/**
 * @file Prints a loop nest as C++ with intrinsics: one self-contained source with the C interface of
 * abstraction/kernel.ts.
 *
 *     for (long p_outer = 56 * part / parts; p_outer < 56 * (part + 1) / parts; p_outer++) {
 *       c0 = __m512i{};
 *       for (long r_outer = 0; r_outer < 3; r_outer++) {
 *         b0 = _mm512_loadu_si512(b_tiles + 128 * r_outer);
 *         c0 = dot_bytes(c0, a0, b0);
 *
 * Expressions call float functions in plain arithmetic, so that loops of them become vectors.
 *
 *     0.5 * x * (1 + erf(x * 0.7071))      0.5f * x * (1.0f + erf_float(x * 0.7071f))
 *
 * The row of a product's epilogue with `__builtin_erff` is a call for each element: about half of the processor time of a product of
 * 128 x 768 x 3072 with a gelu, 12.1 ms with the calls and 6.5 without (Zen 4, a busy machine).
 */

import type { Extents } from "../../abstraction/affine.ts";
import type { Computation } from "../../abstraction/computation.ts";
import type { DType } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import { type Access, accessesIn, axesIn, type Expr, number, substitute } from "../../abstraction/expression.ts";
import { fillTemplate, type Intrinsic, type Operand, operandOf } from "../../abstraction/intrinsic.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { LoopNest, MadeElements, RegisterAt, TileAt } from "../../abstraction/loop-nest.ts";
import { block, type Code, code, filled, NOTHING, tensorName } from "../../abstraction/source-text.ts";
import { compilerFeatures, isWritten, writesVectorRows } from "../../targets/features.ts";
import { halfBytesOf, isNumbered, laneArithmetic, preludeOf, widenedLoad } from "../../targets/registers.ts";
import { C_WORDS, CExpressions, type Place, type Words } from "../c-expressions.ts";
import { vectorFunction } from "../float-functions.ts";
import { ScheduledNest } from "../scheduled-nest.ts";
import { type LanguagePrinter, type Loop, type Named, type Of, phasesOf, printStatements } from "../walk.ts";
import { AVX512_HELPERS } from "./avx512-helpers.ts";
import { copyLoops, maskedRow, mixedRows, packedRun, turnedColumns, turnedRows, turnedTile } from "./copy-loops.ts";
import { argumentsOf, cppSource, intrinsicLine, openLoop, packedConstants, type SourceNotes } from "./cpp-frame.ts";
import { calledIn } from "./cpp-helpers.ts";
import { Avx512Rows, wideRow } from "./rows-avx512.ts";

const CPP_WORDS: Words = {
  ...C_WORDS,
  library: (name, dtype) => {
    const own = vectorFunction(name, dtype);
    return own === undefined ? C_WORDS.library(name, dtype) : code`@${own}`;
  },
};

/**
 * The kernel of a scheduled nest.
 * @param inside reads that are inside their tensors although their indices alone do not show it
 * @throws Error if the instruction is not available in C++
 */
export function generateCpp(
  computation: Computation,
  intrinsic: Intrinsic,
  nest: LoopNest,
  notes: SourceNotes,
  inside?: ReadonlySet<Access>,
): Kernel {
  if (!isWritten(intrinsic.isa)) throw new Error(`${intrinsic.name}: no kernels are written for ${intrinsic.isa}`);
  const features = compilerFeatures(intrinsic.features);
  const expressions = inside
    ? new LoopExpressions(computation, { nest, inside })
    : new CExpressions(computation, nest, CPP_WORDS);
  const writer = new CppWriter(expressions, writesVectorRows(intrinsic.isa));
  return {
    language: "c++",
    ...writer.source({
      comments: [intrinsicLine(intrinsic), ...notes.lines],
      prelude: preludeOf(intrinsic),
      registers: (named) => writer.registersFor(named, intrinsic),
    }),
    features,
    promises: intrinsic.mnemonic,
    arguments: argumentsOf(computation),
    packs: packedConstants(computation, nest),
  };
}

/** Guards for text that only compiles with AVX-512. */
const IF_AVX512 = code`#ifdef __AVX512BW__`;
const ELSE = code`#else`;
const END_IF = code`#endif`;

/** The parts of a source that depend on its instruction. */
interface Head {
  readonly comments: readonly string[];
  readonly prelude: Code;
  readonly registers: (named: Named) => readonly Code[];
}

/** Writes the statements of a nest as C++. With AVX-512, whole rows become vectors. */
class CppWriter extends ScheduledNest implements LanguagePrinter {
  /** Defined if the CPU has AVX-512. */
  private readonly rows: Avx512Rows | undefined;

  constructor(expressions: CExpressions, avx512: boolean) {
    super(expressions, "long");
    this.rows = avx512 ? new Avx512Rows(this.c) : undefined;
  }

  source({ comments, prelude, registers }: Head): Pick<Kernel, "source" | "apart" | "scratchBytes"> {
    const prepare = printStatements(this.nest.prepare, this);
    const phases = phasesOf(this.nest.body).map((p) => printStatements(p, this));
    const preludeOf = (text: readonly Code[]): readonly Code[] => {
      const helpers = calledIn(text, AVX512_HELPERS);
      return [prelude, ...(helpers.length > 0 ? [IF_AVX512, ...helpers, END_IF] : [])];
    };
    return cppSource(this.c.computation, this.nest, {
      comments,
      prelude: preludeOf([...prepare, ...phases.flat()]),
      preludeOf,
      prepare,
      phases,
      registers,
    });
  }

  // ---- leaves of the walk -----------------------------------------------------------------------------------------------------

  override openLoop(loop: Loop, extents: Extents): Code {
    return loop.mode === "parallel" && !loop.inTurn ? openLoop(loop) : super.openLoop(loop, extents);
  }

  protected override bounded(helper: "at_least" | "at_most", bound: Code, other: Code): Code {
    return code`@${helper}<long>(${bound}, ${other})`;
  }

  /**
   * Into the middle cache: what the next step reads would drive out of the near one what this step works on. The
   * address is a number, since no pointer may leave its tensor by more than one element.
   */
  ahead({ buffer, base }: TileAt, extents: Extents): Code[] {
    const tensor = tensorName(buffer);
    const at = code`sizeof *${tensor} * (${this.c.index(base, extents)})`;
    return [code`__builtin_prefetch((const char*)((uintptr_t)${tensor} + ${at}), 0, 2);`];
  }

  /** Rows become vectors only for a compiler with AVX-512, which an emulated instruction may lack. */
  row(loop: Loop, extents: Extents): readonly Code[] | undefined {
    const { c } = this;
    const copied = copyLoops(loop, c, extents);
    const packed = copied && packedRun(copied, c);
    if (packed) return packed;
    const wide = wideRow(loop, c, extents);
    const vectors =
      this.rows &&
      (this.rows.row(loop, extents) ??
        (copied &&
          (maskedRow(copied, c) ??
            turnedTile(copied, c) ??
            mixedRows(copied, c) ??
            turnedRows(copied) ??
            turnedColumns(copied, c))));
    if (!vectors) return wide;
    return [
      IF_AVX512,
      ...vectors,
      ELSE,
      ...(wide ?? block(this.openLoop(loop, extents), printStatements(loop.body, this, extents))),
      END_IF,
    ];
  }

  move({ kind, register, memory, made }: Of<"load" | "store">, extents: Extents): Code[] {
    const pointer = code`(${tensorName(memory.buffer)} + ${this.c.index(memory.base, extents)})`;
    const text = this.register(register);
    const { operand } = this.heldAt(register);
    const stored = this.c.dtypes[memory.buffer] ?? operand.dtype;
    if (made) return [code`${text} = ${madeValue(made, { operand, stored, ptr: pointer }, this.c, extents)};`];
    const widened = kind === "load" ? widenedLoad(operand, stored) : undefined;
    if (widened !== undefined) return [code`${text} = ${filled(widened, { ptr: pointer })};`];
    if (operand[kind] !== undefined) return [this.moved(kind, register, pointer, memory.stride)];
    return kind === "load"
      ? [code`memcpy(&${text}, ${pointer}, sizeof ${text});`]
      : [code`memcpy(${pointer}, &${text}, sizeof ${text});`];
  }

  scalar(statement: Of<"scalar">, extents: Extents): Code[] {
    return this.assigned(statement, extents);
  }

  // ---- registers ------------------------------------------------------------------------------------------------------------

  /** For AMX the tile number. The files of an AMX kernel share the tile numbers, one after another. */
  protected override register(at: RegisterAt): Code {
    const file = this.fileOf(at);
    const { index } = at;
    if (index.kind !== "number" || !isNumbered(operandOf(file.intrinsic, file.operand).file)) return super.register(at);
    const before = this.nest.registers.slice(0, this.nest.registers.indexOf(file)).reduce((sum, r) => sum + r.count, 0);
    return code`${before + index.value}`;
  }

  registersFor(named: Named, { setup }: Intrinsic): Code[] {
    const { registers } = named;
    return [...(setup !== undefined && registers.size > 0 ? [fillTemplate(setup)] : []), ...this.registersOf(named)];
  }
}

// ---- loops without instructions -----------------------------------------------------------------------------------------------

/*
 * Prints plain loops as C++: a kernel for any computation that no instruction maps.
 *
 *     for (long row = 0; row < 64; row++) {
 *       sums[row] = sums[row] + exp_float(x[rest * 1000 + row_block * 64 + row] - m[rest]);
 *     }
 *
 * The compiler vectorises the rows: float functions are written as plain arithmetic, and accesses
 * that the loops prove to be inside a tensor are not tested.
 */

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

interface MadeLoad {
  readonly operand: Operand;
  /** The type in memory. */
  readonly stored: DType;
  readonly ptr: Code;
}

/**
 * A vector whose elements are made of narrower ones in memory.
 *
 *     (f32(element[]) - 8) * s[n,g] of bytes            mul(sub(widened(b_tiles + ...), shared(8)), shared(s[...]))
 *     of half bytes, all lanes with one s[n,g]          picked(b_tiles + ..., mul(sub(numbers, shared(8)), shared(s[...])))
 *
 * What is made of half bytes in the same way in every lane is made of a table of the sixteen numbers, once for all loads that share it.
 */
function madeValue(made: MadeElements, { operand, stored, ptr }: MadeLoad, c: CExpressions, extents: Extents): Code {
  const words = laneArithmetic(operand) ?? internal(`${operand.name} has no arithmetic on lanes`);
  const half = made.halves && halfBytesOf(operand);
  const widened = half ? half.loaded : widenedLoad(operand, stored);
  const load = widened ?? internal(`no load of ${operand.name} widens ${stored}`);
  const isElement = ({ tensor }: Access): boolean => tensor === made.element;
  const differs = ({ index }: Access): boolean => index.some((e) => axesIn(e).includes(made.lane));

  /** @param held the elements; undefined where they are still in memory */
  const vector = (e: Expr, held?: Code): Code => {
    const reads = accessesIn(e);
    const isAlike = !reads.some(differs);
    if (held === undefined && half?.table !== undefined && isAlike && reads.some(isElement))
      return filled(load, { ptr, table: vector(e, half.table) });
    if (isAlike && !reads.some(isElement)) return filled(words.shared, { value: c.value(e, operand.dtype, extents) });
    if (e.kind === "binary" && (e.op === "+" || e.op === "-" || e.op === "*")) {
      const word = words[e.op] ?? internal(`no ${e.op} of lanes of ${operand.name}`);
      return filled(word, { left: vector(e.left, held), right: vector(e.right, held) });
    }
    const [read] = reads;
    if (read === undefined || isElement(read)) return held ?? filled(load, { ptr });
    const first = substitute(read.index[0] ?? number(0), new Map([[made.lane, number(0)]]), "index");
    return filled(words.loaded, { ptr: code`(${tensorName(read.tensor)} + ${c.index(first, extents)})` });
  };
  return vector(made.value);
}
