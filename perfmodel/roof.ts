/**
 * @file The least time that a calibrated machine needs for a computation. A faster kernel contradicts the calibration.
 *
 *     instruction   its issues for the points that count, at the rate measured from registers
 *     l1 .. dram    what must be read from there, at the rate measured there: of each input the elements that are read, once, less
 *                   what the caches inside can have kept from the call before
 *
 * All counts are lower bounds: a kernel that peels its borders may leave out points whose reads lie outside a tensor.
 */

import { affineForm, boundsOf, type Extents } from "../abstraction/affine.ts";
import { product, sortedBy, sumOf, volumeOf } from "../abstraction/collections.ts";
import { type Computation, extentsOf, inputsOf, type Tensor } from "../abstraction/computation.ts";
import { conditionOf, conjunctsOf, pointsHeld } from "../abstraction/condition.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { elementExtents } from "../abstraction/epilogue.ts";
import { type Access, accessesIn, axesIn, between, type Expr, testsElements } from "../abstraction/expression.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { Target } from "../abstraction/machine.ts";
import type { Calibration } from "./calibrate.ts";

/** A lower bound on the time. */
export interface Bound {
  /** Name of an instruction or of a level of memory. */
  readonly name: string;
  readonly kind: "instruction" | "memory";
  /** Seconds of one call. */
  readonly seconds: number;
}

/** The conditions under which the kernel ran. */
interface RoofConditions {
  /** Undefined when the products are not computed by a single instruction, as on lanes. */
  readonly intrinsic: Intrinsic | undefined;
  readonly threads: number;
}

/**
 * Factor by which a kernel may beat a bound before the calibration is considered wrong. An instruction's issue rate from registers is fixed:
 * medians of calibrations differed by 5 % on two virtual cores of a Xeon, 2026-11. A memory's rate is that of a plain loop, which prefetching
 * and larger pages can beat.
 */
const SLACK: Readonly<Record<Bound["kind"], number>> = { instruction: 1.05, memory: 1.2 };

/** All bounds, the longest first; it is the roof. */
export function boundsOn(
  computation: Computation,
  { intrinsic, threads }: RoofConditions,
  calibration: Calibration,
  machine: Pick<Target, "memories">,
): readonly Bound[] {
  const clock = calibration.clockHz.median * threads;
  const points = neededPoints(computation);
  const timing = intrinsic && calibration.intrinsics[intrinsic.name];
  const products = volumeOf(intrinsic?.computation.axes ?? []);
  const issues: Bound[] =
    intrinsic && timing
      ? [
          {
            name: intrinsic.name,
            kind: "instruction",
            seconds: ((points / products) * timing.issueCycles.median) / clock,
          },
        ]
      : [];
  const bytes = points === 0 ? 0 : bytesRead(computation);
  const reads = Object.entries(calibration.memory).map(([name, { readBytesPerCycle }]): Bound => {
    const beyond = Math.max(0, bytes - bytesInside(name, machine, threads));
    return { name, kind: "memory", seconds: beyond / readBytesPerCycle.median / clock };
  });
  return sortedBy([...issues, ...reads], (a) => -a.seconds);
}

/** The bound that a kernel broke by most, among those that noise does not explain. @param seconds upper end of the kernel's interval */
export function brokenBound(bounds: readonly Bound[], seconds: number): Bound | undefined {
  return sortedBy(
    bounds.filter((b) => b.seconds > SLACK[b.kind] * seconds),
    (a) => -(a.seconds / SLACK[a.kind]),
  )[0];
}

/** Bytes held by caches closer to the core than a level, over all threads. */
function bytesInside(level: string, { memories }: Pick<Target, "memories">, threads: number): number {
  const at = memories.findIndex((m) => m.name === level);
  const inside = memories.slice(at + 1).filter((m) => m.kind === "cache");
  return sumOf(inside, ({ bytes, count = threads }) => (bytes?.value ?? 0) * Math.min(threads, count));
}

// ---- What must be read

/**
 * Bytes of the distinct elements that are read. For a tensor whose indices share axes only those along one dimension are certain; for one read
 * under a condition none are.
 */
function bytesRead(computation: Computation): number {
  const { equation, epilogue } = computation;
  const conditional = equation.where === undefined ? [] : axesIn(equation.where);
  const within: readonly (readonly [Expr, Extents])[] = [
    [equation.value, extentsOf(computation)],
    ...(epilogue ? [[epilogue.equation.value, elementExtents(epilogue.equation, epilogue.sum)] as const] : []),
  ];
  return inputsOf(computation).reduce((sum, tensor) => {
    const counts = within.flatMap(([value, extents]) =>
      accessesIn(value).flatMap((access) => {
        if (access.tensor !== tensor.name || axesIn(access).some((a) => conditional.includes(a))) return [];
        return [elementsRead(access, tensor, extents)];
      }),
    );
    return sum + bytesOf(tensor.dtype) * Math.max(0, ...counts);
  }, 0);
}

function elementsRead({ index }: Access, { dims }: Tensor, extents: Extents): number {
  const extentOf = (d: number): number => dims[d]?.extent ?? 1;
  const counts = index.map((e, d) => valuesOf(e, extentOf(d), extents));
  const axes = index.flatMap((e) => axesIn(e));
  if (new Set(axes).size === axes.length) return product(counts);
  // An element that one dimension keeps inside may be put outside by another.
  const whole = index.every((e, d) => isInside(e, extentOf(d), extents));
  return whole ? Math.max(0, ...counts) : 0;
}

function isInside(e: Expr, extent: number, extents: Extents): boolean {
  const [min, max] = boundsOf(e, extents);
  return min >= 0 && max < extent;
}

/** A lower bound on the number of distinct values of an index that lie in `0 .. extent-1`. */
function valuesOf(e: Expr, extent: number, extents: Extents): number {
  const form = affineForm(e);
  if (!form) return isInside(e, extent, extents) ? 1 : 0;
  // While a coefficient is no larger than the run so far, the values have no gaps; beyond, each step of the axis repeats them.
  let run = 1;
  let count = 1;
  const terms = [...form.terms].map(([axis, c]) => [Math.abs(c), extents[axis] ?? 1] as const);
  for (const [c, n] of terms.toSorted(([a], [b]) => a - b)) {
    if (c <= run && run === count) count += c * (n - 1);
    else if (c >= run) count *= n;
    run += c * (n - 1);
  }
  const [min, max] = boundsOf(e, extents);
  return Math.max(0, count - Math.max(0, -min) - Math.max(0, max - extent + 1));
}

// ---- What must be computed

/** Points whose condition holds and whose reads all lie inside, at least; 0 for programs of several equations. */
export function neededPoints(computation: Computation): number {
  const { program, equation } = computation;
  if (program || (equation.where && testsElements(equation.where))) return 0;
  const extents = extentsOf(computation);
  const conditions = conditionsOf(computation, extents);
  const counts = componentsOf(Object.keys(extents), conditions).map((axes) => {
    const own = conditions.filter((c) => axesIn(c).some((a) => axes.includes(a)));
    const box = axes.map((a) => [a, [0, (extents[a] ?? 1) - 1]] as const);
    return pointsHeld({ kind: "and", parts: own.map(conditionOf) }, box, "never");
  });
  return product(counts);
}

/** That of the computation, and that each index which may leave its tensor lies inside. */
function conditionsOf({ equation, tensors }: Computation, extents: Extents): Expr[] {
  const inside = accessesIn(equation.value).flatMap(({ tensor, index }) =>
    index.flatMap((of, d): Expr[] => {
      const below = tensors[tensor]?.dims[d]?.extent;
      return below === undefined || isInside(of, below, extents) ? [] : [between(of, 0, below)];
    }),
  );
  return equation.where === undefined ? inside : [...inside, ...conjunctsOf(equation.where)];
}

/** Sets of axes that share conditions. */
function componentsOf(axes: readonly string[], conditions: readonly Expr[]): readonly (readonly string[])[] {
  return conditions.reduce<readonly (readonly string[])[]>(
    (groups, condition) => {
      const tied = axesIn(condition);
      const joined = groups.filter((g) => g.some((a) => tied.includes(a)));
      return [...groups.filter((g) => !joined.includes(g)), joined.flat()];
    },
    axes.map((a) => [a]),
  );
}
