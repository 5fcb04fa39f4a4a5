/** @file A ranking by the model is cut by the time and by a signal, and says where. */

import { expect, it } from "vitest";
import { run } from "../../cli/program.ts";
import { following } from "../../runtime/until.ts";
import { rankByModel, rankByModelInTime } from "../../session/tune/rank.ts";
import { captured } from "../support/command-line.ts";
import { processorWatch } from "../support/processor-time.ts";
import { stated } from "../support/subjects.ts";

const EQUATION = "c[a,b,d,e,f,g,h,i,j,k] += x[a,b,d,e,f,l,m,n,o,p] * y[g,h,i,j,k,l,m,n,o,p]";
const LOOPS = [..."abdefghijklmnop"];
const long = stated(`${EQUATION} ${LOOPS.map((name) => `--${name} 2`).join(" ")}`);
const small = stated("c[i,j] += a[i,k] * b[k,j] --i 16 --j 16 --k 16");

it("a ranking in slices equals a ranking at once", async () => {
  const options = { count: 3, seed: 2 };
  expect(await rankByModelInTime(small, options)).toEqual({
    ranking: rankByModel(small, options),
    cut: undefined,
  });
});

it("a ranking over 15 loops ends when its time is up, with the candidates ranked by then", async () => {
  const seconds = processorWatch();
  const { ranking, cut } = await rankByModelInTime(long, { seconds: 0.1 });
  expect(seconds()).toBeLessThan(10);
  expect(cut).toMatchObject({ what: expect.any(String), done: expect.any(Number) });
  expect("refused" in ranking ? 0 : ranking.length).toBeGreaterThan(0);
});

it("a ranking ends soon after its signal, with the candidates ranked by then or the signal's reason", async () => {
  const controller = new AbortController();
  let seconds = processorWatch();
  setTimeout(() => {
    seconds = processorWatch();
    controller.abort(new Error("enough"));
  }, 100);
  const outcome = await rankByModelInTime(long, { signal: controller.signal }).catch(String);
  expect(seconds()).toBeLessThan(5);
  expect(typeof outcome === "string" ? outcome : outcome.cut).toEqual(
    typeof outcome === "string"
      ? expect.stringContaining("enough")
      : expect.objectContaining({ of: expect.any(Number) }),
  );
});

it("automap tune says that the time cut its ranking short", async () => {
  const words = ["tune", EQUATION, ...LOOPS.flatMap((l) => [`--${l}`, "2"]), "--model-only"];
  const { code, out, err } = await captured(() => run([...words, "--time", "1"]));
  expect({ code, err }).toEqual({
    code: 0,
    err: expect.stringMatching(/the time cut the ranking short at \d+ of \d+/),
  });
  expect(out).toContain("predicted by the model with the rates of the reference machine");
});

it("a signal that follows another has its reason", async () => {
  const controller = new AbortController();
  const late = following(controller.signal, 1);
  controller.abort(new Error("enough"));
  await expect.poll(() => late.signal.reason).toBe(controller.signal.reason);
});
