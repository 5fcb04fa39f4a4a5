/**
 * @file Rewrites a sum so that parts of its terms which many outputs share are computed once, into tensors of their own.
 *
 *     out[m,n] += a[m,2*b+h] * ((f32(select(h == 0, w[n,b] % 16, w[n,b] / 16)) - 8) * s[n])
 *
 *     once0[b,h,n] = (f32(select(h == 0, w[n,b] % 16, w[n,b] / 16)) - 8) * s[n]      out[m,n] += a[m,2*b+h] * once0[b,h,n]
 *
 * The axis of outputs that are summed side by side lies innermost, so that an element which is read across rows is read along them afterwards. Every
 * operation stays, in its type, so the results are the same.
 */

import { pointsIn, rowMajor, strideIn } from "../../abstraction/affine.ts";
import { mapValues, sumOf, unique } from "../../abstraction/collections.ts";
import {
  type Axis,
  type Computation,
  elementCount,
  keptIn,
  pointCount,
  targetOf,
  tensorOf,
} from "../../abstraction/computation.ts";
import {
  access,
  accessesIn,
  axesIn,
  axis,
  changeParts,
  type Expr,
  readsIndices,
} from "../../abstraction/expression.ts";
import { typeOf } from "../../abstraction/typing.ts";
import { isReachedOutside } from "./reference-padding.ts";

/** Fewer points that share a value would not pay for storing it. */
const LEAST_SHARED = 2;
/** The most elements of a new tensor for each element that it is computed from: windows of a convolution have more. */
const MOST_GROWTH = 4;

interface Once {
  readonly computation: Computation;
  /** What is computed before, each from the computation's inputs. */
  readonly made: readonly Computation[];
}

/** @param computation whose outputs can be computed in any order, without epilogue */
export function sharedOnce(computation: Computation): Once {
  const { equation, axes, tensors } = computation;
  const along = keptIn(axes).at(-1);
  if (!along || readsIndices(equation.value)) return { computation, made: [] };
  const dtypes = mapValues(tensors, ({ dtype }) => dtype);
  const prefix = freePrefix(Object.keys(tensors));
  const made: Computation[] = [];
  const change = (e: Expr): Expr => {
    const named = axesIn(e);
    const own = [...axes.filter((a) => a !== along && named.includes(a.name)), along];
    if (!named.includes(along.name) || !isWorth(e, own, computation)) return changeParts(e, change);
    const dims = own.map(({ name, extent }) => ({ name, extent }));
    const read = unique(accessesIn(e).map(({ tensor }) => tensor)).map((name) => tensorOf(computation, name));
    const name = `${prefix}${made.length}`;
    const tensor = { ...targetOf(computation), name, dtype: typeOf(e, dtypes) ?? "f64", dims, storage: rowMajor(dims) };
    const target = access(
      name,
      own.map((a) => axis(a.name)),
    );
    made.push({
      name: `${computation.name} (${name})`,
      equation: { target, op: "=", value: e },
      axes: own.map((a) => ({ ...a, kind: "spatial" })),
      tensors: Object.fromEntries([tensor, ...read].map((t) => [t.name, t])),
    });
    return target;
  };
  const value = change(equation.value);
  const own = made.map((one) => [targetOf(one).name, targetOf(one)] as const);
  return {
    computation: {
      ...computation,
      equation: { ...equation, value },
      tensors: { ...tensors, ...Object.fromEntries(own) },
    },
    made,
  };
}

/** The beginning of a name that none has. */
const freePrefix = (names: readonly string[], prefix = "once"): string =>
  names.some((name) => name.startsWith(prefix)) ? freePrefix(names, `${prefix}_`) : prefix;

function isWorth(e: Expr, along: readonly Axis[], computation: Computation): boolean {
  const read = unique(accessesIn(e).map(({ tensor }) => tensor)).map((name) => tensorOf(computation, name));
  const count = pointsIn(along);
  return (
    LEAST_SHARED * count <= pointCount(computation) &&
    count <= MOST_GROWTH * sumOf(read, elementCount) &&
    !read.some((tensor) => isReachedOutside(tensor, computation)) &&
    isSlow(e, along.at(-1)?.name ?? "", computation)
  );
}

/** Whether a value is computed, or is an element that does not lie beside the one of the next output. */
function isSlow(e: Expr, along: string, computation: Computation): boolean {
  if (e.kind === "cast") return isSlow(e.value, along, computation);
  if (e.kind !== "access") return true;
  const { dims } = tensorOf(computation, e.tensor);
  const steps = e.index.map((part) => strideIn(part, along) ?? 0);
  const isInner = steps.every((step, d) => step === 0 || pointsIn(dims.slice(d + 1)) === 1);
  return !isInner || steps.some((step) => Math.abs(step) > 1);
}
