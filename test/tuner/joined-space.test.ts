import { describe, expect, it } from "vitest";
import { seededRandom } from "../../abstraction/random.ts";
import { joinedSpace } from "../../tuner/joined-space.ts";
import type { SearchSpace } from "../../tuner/space.ts";

interface Word {
  readonly kind: "a" | "b";
  readonly n: number;
}

/** Words `a0 .. a4`: a neighbour is the next, a mixture the greater. */
const words = (kind: Word["kind"], more: Partial<SearchSpace<Word>> = {}) => ({
  kind,
  space: {
    size: 5,
    key: ({ n }: Word) => `${kind}${n}`,
    random: (random: () => number) => ({ kind, n: Math.floor(random() * 5) }),
    mutate: ({ n }: Word) => ({ kind, n: (n + 1) % 5 }),
    crossover: (a: Word, b: Word) => (a.n > b.n ? a : b),
    all: () => [0, 1, 2, 3, 4].map((n) => ({ kind, n })),
    distance: (a: Word, b: Word) => Math.abs(a.n - b.n),
    ...more,
  },
});
const a = (n: number): Word => ({ kind: "a", n });
const b = (n: number): Word => ({ kind: "b", n });

describe("two search spaces joined", () => {
  const space = joinedSpace<Word>([words("a"), words("b")]);

  it("holds the candidates of both and counts them", () => {
    expect([...space.all()].map((word) => space.key(word))).toHaveLength(10);
    expect(space.size).toBe(10);
    expect(joinedSpace<Word>([words("a", { size: undefined }), words("b")]).size).toBeUndefined();
  });

  it("promises the candidates that either promises", () => {
    const promising = words("a", { promising: [a(3)] });
    expect(joinedSpace<Word>([promising, words("b", { promising: [b(1)] })]).promising).toEqual([a(3), b(1)]);
    expect(joinedSpace<Word>([promising, words("b")]).promising).toEqual([a(3)]);
  });

  it("draws from both", () => {
    const random = seededRandom(1);
    const drawn = Array.from({ length: 40 }, () => space.random(random).kind);
    expect(new Set(drawn)).toEqual(new Set(["a", "b"]));
  });

  it("mutates and crosses candidates within their own space", () => {
    const random = seededRandom(1);
    expect(space.mutate(a(4), random)).toEqual(a(0));
    expect(space.mutate(b(1), random)).toEqual(b(2));
    expect(space.crossover(b(1), b(3), random)).toEqual(b(3));
  });

  it("knows the length of code of either, none where a space does not", () => {
    const joined = joinedSpace<Word>([words("a", { codeSize: ({ n }) => 10 * n }), words("b")]);
    expect([joined.codeSize?.(a(3)), joined.codeSize?.(b(3))]).toEqual([30, 0]);
  });

  it("returns one parent when the parents are of different spaces, which lie far apart", () => {
    const random = seededRandom(1);
    const children = Array.from({ length: 40 }, () => space.crossover(a(1), b(1), random).kind);
    expect(new Set(children)).toEqual(new Set(["a", "b"]));
    expect(space.distance?.(a(1), b(1))).toBeGreaterThan(space.distance?.(a(0), a(4)) ?? 99);
  });
});
