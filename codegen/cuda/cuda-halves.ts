/**
 * @file Values of f16 of a piece of a copy, two in a word (half2). Each operation rounds both as it would round one.
 *
 *     (f16(w[n,k/2] % 16) - 8) * s[n,k/32], (f16(w[n,k/2] / 16) - 8) * s[n,k/32]
 *         bits    1024 + low, 1024 + 16 * high    joined_halves<0x4040>(w_piece.values[0], 0x64) & 0xfff0ff0f
 *         - 8     low - 8, high - 8               fma_halves(..., (1, 1/16), (-1032, -72))
 *         * s                                     multiplied_halves(..., spread_half(s))
 *
 * A number of 8 bits in the fraction of 1024 is 1024 more than itself, and nothing is converted.
 */

import type { Extents } from "../../abstraction/affine.ts";
import { bytesOf, wrap } from "../../abstraction/dtype.ts";
import { type Expr, printAccess } from "../../abstraction/expression.ts";
import { shortBits } from "../../abstraction/short-floats.ts";
import { type Code, code, hexadecimal, keyOf, type Name } from "../../abstraction/source-text.ts";
import { typeOf } from "../../abstraction/typing.ts";
import type { CudaExpressions } from "./cuda-expressions.ts";

/** Where a value that was loaded with its neighbours is: element `at` of the vector `name`, or `name` itself. */
export interface LoadedAt {
  readonly name: Name;
  readonly at: number | undefined;
  /** Whether the vector is one of words rather than elements. nvcc takes vectors of bytes apart to make words of them. */
  readonly inWords: boolean;
}

/** A byte, or half of one, in a word of a loaded vector, or of a variable. */
interface Part {
  readonly name: Name;
  readonly word: number | undefined;
  readonly byte: number;
  readonly mask: 0x0f | 0xf0 | 0xff;
  readonly isSigned: boolean;
}

type Pair = readonly [Expr, Expr];

/** The float of which a number of eight bits is the fraction. */
const BASE = 1024;
/** What a byte with a sign exceeds itself by, when its sign bit is turned. */
const SIGNED = 128;
/** The whole numbers that f16 holds, all of them. */
const MOST_WHOLE = 2048;

export class Halves {
  private readonly c: CudaExpressions;
  private readonly loaded: ReadonlyMap<string, LoadedAt>;
  private readonly extents: Extents;

  /** @param loaded elements that are at hand, by the text of their access */
  constructor(c: CudaExpressions, loaded: ReadonlyMap<string, LoadedAt>, extents: Extents) {
    this.c = c;
    this.loaded = loaded;
    this.extents = extents;
  }

  /** Two values of f16 in a word, the first in its lower half. */
  pair(both: Pair): Code {
    const [low, high] = both;
    if (low.kind === "number" && high.kind === "number") return wordOf(low.value, high.value);
    const small = this.small(both, 0);
    if (small) return small;
    if (low.kind === "binary" && high.kind === "binary" && low.op === high.op) {
      const left: Pair = [low.left, high.left];
      const right: Pair = [low.right, high.right];
      switch (low.op) {
        case "*":
          return code`@multiplied_halves(${this.pair(left)}, ${this.pair(right)})`;
        case "+":
          return code`@added_halves(${this.pair(left)}, ${this.pair(right)})`;
        case "-": {
          const [less] = right;
          const isSame = less.kind === "number" && right[1].kind === "number" && less.value === right[1].value;
          const made = isSame ? this.small(left, less.value) : undefined;
          return made ?? code`@fma_halves(${this.pair(right)}, ${wordOf(-1, -1)}, ${this.pair(left)})`;
        }
        default:
          break;
      }
    }
    return this.elements(both) ?? this.joined(both);
  }

  /** Two values that are computed one by one. */
  private joined([low, high]: Pair): Code {
    const first = this.c.value(low, "f16", this.extents);
    const second = this.c.value(high, "f16", this.extents);
    return keyOf(first) === keyOf(second)
      ? code`@spread_half(${first})`
      : code`@joined_halves<0x5410>(${first}, ${second})`;
  }

  /** Elements of 16 bits of one loaded vector. Undefined for other values. */
  elements([low, high]: Pair): Code | undefined {
    if (low.kind !== "access" || high.kind !== "access") return undefined;
    const first = this.loaded.get(printAccess(low));
    const second = this.loaded.get(printAccess(high));
    if (first?.at === undefined || second?.at === undefined || first.name.id !== second.name.id) return undefined;
    const dtype = this.c.dtypes[low.tensor];
    if (dtype === undefined || bytesOf(dtype) !== 2 || !first.inWords) return undefined;
    const wordOf = ({ name }: LoadedAt, at: number): Code => code`${name}.values[${Math.floor(at / 2)}]`;
    const word = wordOf(first, first.at);
    if (second.at === first.at + 1 && first.at % 2 === 0) return word;
    const bytes = hexadecimal(0x5410 + (first.at % 2) * 0x22 + (second.at % 2) * 0x2200);
    return code`@joined_halves<${bytes}>(${word}, ${wordOf(second, second.at)})`;
  }

  /** Casts of loaded bytes, or of halves of bytes, less a whole number. Undefined for other values. */
  private small([low, high]: Pair, less: number): Code | undefined {
    if (low.kind !== "cast" || high.kind !== "cast" || low.dtype !== "f16" || high.dtype !== "f16") return undefined;
    const first = this.part(low.value);
    const second = this.part(high.value);
    if (first?.name.id !== second?.name.id || first?.word !== second?.word || !first || !second) return undefined;
    if (!Number.isInteger(less) || Math.abs(less) + BASE + SIGNED > MOST_WHOLE) return undefined;
    const { isSigned } = first;
    const word = first.word === undefined ? code`${first.name}` : code`${first.name}.values[${first.word}]`;
    const turned = isSigned ? code`${word} ^ 0x80808080u` : word;
    const bytes = code`@joined_halves<${hexadecimal(0x4040 + first.byte + second.byte * 0x100)}>(${turned}, 0x64u)`;
    const isWhole = first.mask === 0xff && second.mask === 0xff;
    // Half bytes two bytes apart stay where they are.
    const areInPlace = first.mask === second.mask && !isWhole && first.byte < 2 && second.byte === first.byte + 2;
    const moved = first.byte === 0 ? word : code`${word} >> 8`;
    const bits = areInPlace
      ? code`@small_halves<${hexadecimal(first.mask * 0x10001)}>(${moved})`
      : isWhole
        ? bytes
        : code`${bytes} & ${hexadecimal(0xff00ff00 + first.mask + second.mask * 0x10000)}u`;
    const by = (part: Part): number => (part.mask === 0xf0 ? 1 / 16 : 1);
    const offset = (part: Part): number => -by(part) * BASE - less - (isSigned ? SIGNED : 0);
    const offsets = wordOf(offset(first), offset(second));
    if (by(first) === 1 && by(second) === 1) return code`@added_halves(${bits}, ${offsets})`;
    return code`@fma_halves(${bits}, ${wordOf(by(first), by(second))}, ${offsets})`;
  }

  /** The loaded byte that an integer is, or is half of. */
  private part(e: Expr): Part | undefined {
    if (e.kind === "binary" && (e.op === "%" || e.op === "/") && e.right.kind === "number" && e.right.value === 16) {
      const whole = this.part(e.left);
      if (!whole || whole.isSigned || whole.mask !== 0xff) return undefined;
      return { ...whole, mask: e.op === "%" ? 0x0f : 0xf0 };
    }
    if (e.kind !== "access") return undefined;
    const dtype = typeOf(e, this.c.dtypes);
    const at = this.loaded.get(printAccess(e));
    if (!at || (dtype !== "u8" && dtype !== "s8")) return undefined;
    const own = { name: at.name, mask: 0xff, isSigned: dtype === "s8" } as const;
    if (at.at === undefined) return { ...own, word: undefined, byte: 0 };
    return at.inWords ? { ...own, word: Math.floor(at.at / 4), byte: at.at % 4 } : undefined;
  }
}

/** Two constants in a word. */
function wordOf(low: number, high: number): Code {
  const [first, second] = [low, high].map((value) => shortBits("f16", wrap("f16", value)));
  return code`${hexadecimal((first ?? 0) + (second ?? 0) * 0x10000)}u`;
}
