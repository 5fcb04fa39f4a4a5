import { describe, expect, it } from "vitest";
import { longestFirst } from "../../runtime/compiler.ts";

/** Jobs that end when they are told to, and the order in which they began. */
function jobs(most: number) {
  const inTurn = longestFirst(most);
  const begun: string[] = [];
  const ends = new Map<string, (failure?: Error) => void>();
  const add = (name: string, length: number): Promise<string> =>
    inTurn(length, () => {
      begun.push(name);
      return new Promise((resolve, reject) => ends.set(name, (failure) => (failure ? reject(failure) : resolve(name))));
    });
  return { add, begun, end: (name: string, failure?: Error) => ends.get(name)?.(failure) };
}

describe("jobs side by side", () => {
  it("start as far as there is room, then the longest waiting first, equal ones in order of arrival", async () => {
    const { add, begun, end } = jobs(2);
    const all = [add("a", 1), add("b", 1), add("short", 2), add("long", 9), add("c", 5), add("d", 5)];
    expect(begun).toEqual(["a", "b"]);
    for (const [at, name] of ["b", "a", "c", "long", "d", "short"].entries()) {
      await expect.poll(() => begun).toContain(name);
      end(name);
      await all[["a", "b", "short", "long", "c", "d"].indexOf(name)];
      expect(begun.length).toBeLessThanOrEqual(at + 3);
    }
    expect(begun).toEqual(["a", "b", "long", "c", "d", "short"]);
  });

  it("continue after a job that fails, and each has its own outcome", async () => {
    const { add, begun, end } = jobs(1);
    const [first, second] = [add("first", 1), add("second", 1)];
    end("first", new Error("no room"));
    await expect(first).rejects.toThrow("no room");
    await expect.poll(() => begun).toEqual(["first", "second"]);
    end("second");
    await expect(second).resolves.toBe("second");
  });
});
