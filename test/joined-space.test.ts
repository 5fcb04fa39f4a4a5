import { describe, expect, it } from "vitest";
import { seededRandom } from "../abstraction/random.ts";
import { joinedSpace } from "../tuner/joined-space.ts";
import type { SearchSpace } from "../tuner/space.ts";

/** Words `a0 .. a4`: a neighbour is the next, a mixture the greater. */
const words = (letter: string): SearchSpace<string> => ({
  size: 5,
  key: (c) => c,
  random: (random) => `${letter}${Math.floor(random() * 5)}`,
  mutate: (c) => `${letter}${(Number(c.slice(1)) + 1) % 5}`,
  crossover: (a, b) => (a > b ? a : b),
  all: () => [0, 1, 2, 3, 4].map((i) => `${letter}${i}`),
  distance: (a, b) => Math.abs(Number(a.slice(1)) - Number(b.slice(1))),
});
const isA = (c: string): c is string => c.startsWith("a");

describe("two search spaces joined", () => {
  const space = joinedSpace(words("a"), words("b"), isA);

  it("holds the candidates of both and counts them", () => {
    expect([...space.all()]).toHaveLength(10);
    expect(space.size).toBe(10);
    expect(joinedSpace({ ...words("a"), size: undefined }, words("b"), isA).size).toBeUndefined();
  });

  it("promises the candidates that either promises", () => {
    const promising = { ...words("a"), promising: ["a3"] };
    expect(joinedSpace(promising, { ...words("b"), promising: ["b1"] }, isA).promising).toEqual(["a3", "b1"]);
    expect(joinedSpace(promising, words("b"), isA).promising).toEqual(["a3"]);
  });

  it("draws from both", () => {
    const random = seededRandom(1);
    const drawn = Array.from({ length: 40 }, () => space.random(random)[0]);
    expect(new Set(drawn)).toEqual(new Set(["a", "b"]));
  });

  it("mutates and crosses candidates within their own space", () => {
    const random = seededRandom(1);
    expect(space.mutate("a4", random)).toBe("a0");
    expect(space.mutate("b1", random)).toBe("b2");
    expect(space.crossover("b1", "b3", random)).toBe("b3");
  });

  it("knows the length of code of either, none where a space does not", () => {
    const joined = joinedSpace({ ...words("a"), codeSize: (c) => 10 * Number(c.slice(1)) }, words("b"), isA);
    expect([joined.codeSize?.("a3"), joined.codeSize?.("b3")]).toEqual([30, 0]);
  });

  it("returns one parent when the parents are of different spaces, which lie far apart", () => {
    const random = seededRandom(1);
    const children = Array.from({ length: 40 }, () => space.crossover("a1", "b1", random));
    expect(new Set(children)).toEqual(new Set(["a1", "b1"]));
    expect(space.distance?.("a1", "b1")).toBeGreaterThan(space.distance?.("a0", "a4") ?? 99);
  });
});
