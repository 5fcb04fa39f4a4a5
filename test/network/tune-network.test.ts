/** @file The time of a search divided among the tasks of a network, by fake searches. */

import { describe, expect, it } from "vitest";
import { type Computation, computationKey } from "../../abstraction/computation.ts";
import type { Network } from "../../network/network.ts";
import { leastSecondsOnGpu } from "../../perfmodel/grid.ts";
import { inHalfOnGpu, openGraph, tunedTasks } from "../../session/network/network.ts";
import { Field, type State } from "../../session/network/network-field.ts";
import { type Share, type TuneNetworkOptions, tuneNetwork } from "../../session/network/tune-network.ts";
import { nativeTarget } from "../../targets/index.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { onnx } from "../support/networks.ts";

type Search = NonNullable<TuneNetworkOptions["search"]>;

/** Products of these widths, one behind the other. */
function products(widths: readonly number[]): Network {
  const lines = widths.slice(1).map((n, i) => `x${i + 1} = Gemm<transB=1>(x${i}, [${n},${widths[i]}]{${i}})`);
  return openGraph(onnx([`x0[4,${widths[0]}]`, ...lines, `return x${lines.length}`].join("\n"))).program;
}

/** A search that ends at once without a kernel. */
const nothing = (computation: Computation): Awaited<ReturnType<Search>> => ({
  status: "exhausted",
  computation,
  best: undefined,
  trials: [],
  failed: {},
  seconds: 0,
  waitedSeconds: 0,
  database: ":memory:",
});

/** The same with a kernel that takes so long, of which only its time is read. */
const timed = (computation: Computation, median: number, status = "exhausted") =>
  ({ ...nothing(computation), status, best: { measurement: { status: "ok", median } } }) as Awaited<ReturnType<Search>>;

/** A network on a CPU or a GPU, and where it is searched for. */
function openedOn(where: string, text: string) {
  const opened = openGraph(onnx(text));
  return where === "a GPU"
    ? { program: inHalfOnGpu(opened).program, on: { machine: nvidiaTarget("h100") } }
    : { program: opened.program, on: {} };
}

describe("the network's time", () => {
  it.each([1, 2])("is spent on %i searches at once, each task by one", async (beside) => {
    const program = products([8, 16, 32, 64, 24]);
    const waiting: (() => void)[] = [];
    const begun: string[] = [];
    let most = 0;
    const search: Search = async ({ computation }) => {
      begun.push(computationKey(computation));
      // Nobody ends before as many have begun as may.
      await new Promise<void>((resolve) => {
        waiting.push(resolve);
        most = Math.max(most, waiting.length);
        if (waiting.length === beside) for (const end of waiting.splice(0)) end();
      });
      return nothing(computation);
    };
    const tasks = await tuneNetwork(program, { seconds: 9, database: ":memory:", search, beside });
    expect(tasks.map(({ searched }) => searched)).toEqual([true, true, true, true]);
    expect(new Set(begun).size).toBe(4);
    expect(begun).toHaveLength(4);
    expect(most).toBe(beside);
  });

  it("is said to each search, with the steps that its kernel computes and the network's name", async () => {
    const said: unknown[] = [];
    const search: Search = async ({ computation, network }) => {
      said.push({ ...network, seconds: Math.ceil(network?.seconds ?? 0) });
      return Promise.resolve(nothing(computation));
    };
    const program = { ...products([16, 16, 16, 8]), name: `bad\u0007\nname ${"n".repeat(200)}` };
    await tuneNetwork(program, { seconds: 9, database: ":memory:", search });
    const name = `bad\\u0007 name ${"n".repeat(64)}…`;
    expect(said).toEqual([
      { name, steps: 2, seconds: 9 },
      { name, steps: 1, seconds: 9 },
    ]);
  });

  it.each([
    // Four tasks: less than 4 s for each.
    [7, 2],
    [600, 4],
  ])("of %d s gives the first task %d trials before any other is searched", async (seconds, most) => {
    const trials: unknown[] = [];
    const search: Search = async ({ computation }, options = {}) => {
      trials.push(options.trials);
      return Promise.resolve(nothing(computation));
    };
    await tuneNetwork(products([8, 16, 32, 64, 24]), { seconds, database: ":memory:", search });
    expect(trials).toHaveLength(4);
    expect(trials[0]).toBe(most);
  });

  it.each(["a CPU", "a GPU"])("is spent on chains too, once each: on %s", async (where) => {
    const { program, on } = openedOn(
      where,
      "a = Softmax<axis=1>(MatMul(x[64,64], [64,64]{1}))\nSoftmax<axis=1>(MatMul(a, [64,64]{2}))",
    );
    const begun: Computation[] = [];
    const search: Search = async ({ computation }, options = {}) => {
      begun.push(computation);
      expect(options.kinds).toBe(computation.program ? "all" : "mappings");
      return Promise.resolve(nothing(computation));
    };
    const tasks = await tuneNetwork(program, { seconds: 600, database: ":memory:", search, ...on });
    expect(begun.map(({ program: one }) => one?.parts.length ?? 1).sort()).toEqual([1, 4]);
    expect(tasks.map(({ task }) => task.steps.length)).toEqual([2, 2]);
  });

  it.each(["a CPU", "a GPU"])("is spent on plain loops where nothing else is to be tuned: on %s", async (where) => {
    const { program, on } = openedOn(
      where,
      "a = MaxPool<kernel_shape=[3,3]>(x[1,16,20,20])\nMaxPool<kernel_shape=[2,2],strides=[2,2]>(a)",
    );
    const offered: string[] = [];
    const search: Search = async ({ computation }, options = {}) => {
      offered.push(...(options.intrinsics ?? []).map(({ family }) => family));
      return Promise.resolve(nothing(computation));
    };
    const tasks = await tuneNetwork(program, { seconds: 600, database: ":memory:", search, ...on });
    expect(tasks.map(({ searched }) => searched)).toEqual([true, true]);
    expect(new Set(offered)).toEqual(new Set([where === "a GPU" ? "thread" : "loops"]));
  });

  it("is not spent on plain loops that gain less than a product, nor where each step has one kernel", async () => {
    const { program } = openGraph(
      onnx("x = MatMul(a[256,512], [512,512]{1})\nMaxPool<kernel_shape=[2,2]>(Reshape(x, s64{1,1,256,512}))"),
    );
    const searched: number[] = [];
    const search: Search = async ({ computation }) => {
      searched.push(computation.axes.length);
      return Promise.resolve(timed(computation, 1));
    };
    const counts: number[] = [];
    const onTasks = (count: number) => counts.push(count);
    const tasks = await tuneNetwork(program, { seconds: 9, database: ":memory:", search, onTasks });
    expect([tasks.length, searched.length, counts]).toEqual([1, 1, [1]]);
    const pool = openGraph(onnx("MaxPool<kernel_shape=[2,2]>(x[1,16,20,20])")).program;
    const machine = { ...nativeTarget(), isa: [] };
    await expect(tuneNetwork(pool, { seconds: 9, database: ":memory:", search, machine })).rejects.toThrow(
      /nothing to tune: each of its steps has one kernel/,
    );
  });

  it.each([
    [false, ["instructions", "mappings"]],
    [true, ["mappings", "mappings"]],
  ])("is spent on forms of a convolution with fewer products, unless it must be exact: %s", async (exact, kinds) => {
    const { program } = openGraph(
      onnx("a = Conv<pads=[1,1,1,1]>(x[1,16,8,8], [16,16,3,3]{drawn})\nConv(a, [16,16,1,1]{drawn})"),
    );
    const asked: unknown[] = [];
    const search: Search = async ({ computation }, options = {}) => {
      asked.push(options.kinds);
      return Promise.resolve(nothing(computation));
    };
    await tuneNetwork(program, { seconds: 60, database: ":memory:", search, exact });
    expect(asked).toEqual(kinds);
  });

  it("is not hoped for by the rate of a form with fewer products", () => {
    const program = openGraph(
      onnx("a = Conv<pads=[1,1,1,1]>(x[1,16,8,8], [16,16,3,3]{drawn})\nConv(a, [16,16,1,1]{drawn})"),
    ).program;
    const gainsWith = (seconds: number): readonly number[] => {
      const states = tunedTasks(program).map((task, i): State => {
        const best = i === 0 ? seconds : 1e-3;
        return { task, place: i, cache: "warm", searched: true, best, fruitless: 0, over: false };
      });
      const field = new Field(states, () => 0);
      return states.map((state) => field.gainOf(state));
    };
    const [slow, fast] = [gainsWith(1), gainsWith(1e-6)];
    expect(fast[1]).toBe(slow[1]);
    expect(fast[0]).toBeLessThan(slow[0] ?? 0);
  });

  it("continues with the other tasks when the search for one fails, and names that task", async () => {
    const program = products([8, 16, 32]);
    const [, wide] = tunedTasks(program);
    const told: Share[] = [];
    const search: Search = async ({ computation }) => {
      await Promise.resolve();
      if (wide && computationKey(computation) === computationKey(wide.computation)) throw new Error("internal: lost");
      return nothing(computation);
    };
    const tasks = await tuneNetwork(program, {
      seconds: 9,
      database: ":memory:",
      search,
      onShare: (s) => told.push(s),
    });
    expect(tasks.map(({ searched, failed }) => ({ searched, failed }))).toEqual([
      { searched: true, failed: undefined },
      { searched: true, failed: "internal: lost" },
    ]);
    expect(told.map(({ place, outcome }) => [place, outcome.status])).toEqual([
      [2, "failed"],
      [1, "exhausted"],
    ]);
  });

  it("is not spent again on a task whose results take longer than its search", async () => {
    const program = products([8, 16, 32]);
    const [narrow, wide] = tunedTasks(program).map(({ computation }) => computationKey(computation));
    const begun: string[] = [];
    const told: Share[] = [];
    const search: Search = ({ computation }) => {
      begun.push(computationKey(computation));
      const unanswered = begun.at(-1) === wide ? { needs: 90, limit: 60 } : undefined;
      const outcome = { ...nothing(computation), status: "time-spent", ...(unanswered && { unanswered }) };
      return Promise.resolve(outcome as Awaited<ReturnType<Search>>);
    };
    let tasks = 0;
    await tuneNetwork(program, {
      seconds: 600,
      database: ":memory:",
      search,
      onTasks: (count) => {
        tasks = count;
      },
      onShare: (share) => told.push(share),
    });
    expect(tasks).toBe(2);
    expect(begun.filter((key) => key === wide)).toHaveLength(1);
    expect(begun.filter((key) => key === narrow).length).toBeGreaterThan(1);
    expect(told.map(({ outcome }) => "unanswered" in outcome && outcome.unanswered !== undefined)).toContain(true);
  });

  /** Searches for products([8, 16, 32, 64, 24]) whose kernels stay at these rates, and the places of the tasks that got them. */
  const atRates = async (
    rates: readonly number[],
    status: "time-spent" | "exhausted",
    program = products([8, 16, 32, 64, 24]),
  ): Promise<readonly Share[]> => {
    const tasks = tunedTasks(program);
    const shares: Share[] = [];
    const search: Search = ({ computation }) => {
      const at = tasks.findIndex((task) => computationKey(task.computation) === computationKey(computation));
      const rate = rates[at];
      if (rate === undefined)
        return Promise.resolve({ ...nothing(computation), status } as Awaited<ReturnType<Search>>);
      const median = (tasks[at]?.multiplyAdds ?? 0) / rate;
      return Promise.resolve(timed(computation, median, status));
    };
    // More than any machine needs: what is left to gain ends it.
    await tuneNetwork(program, { seconds: 600, database: ":memory:", search, onShare: (share) => shares.push(share) });
    return shares;
  };

  it("goes to the task that loses most against the best rate of all, and to others when that gains nothing", async () => {
    const places = (await atRates([1e3, 1e4, 1e4, 5e3], "time-spent")).map(({ place }) => place);
    // Work: 512, 2048, 8192, 6144 products. The first loses 0.9 of its time, the last half of it.
    expect(places.slice(0, 4)).toEqual([3, 4, 2, 1]);
    // The other two are at the best rate, of which somewhat more is hoped for.
    expect(places.slice(4, 10)).toEqual([4, 1, 4, 1, 4, 3]);
    expect(new Set(places.slice(4))).toEqual(new Set([1, 2, 3, 4]));
  });

  it("goes on where the network has one product, and where no kernel works yet", async () => {
    const one = await atRates([1e4], "time-spent", products([8, 64]));
    expect(one.map(({ place }) => place).slice(0, 3)).toEqual([1, 1, 1]);
    const none = await atRates([], "time-spent");
    expect(new Set(none.slice(4).map(({ place }) => place))).toEqual(new Set([1, 2, 3, 4]));
  });

  it("is not spent on tasks whose searches have nothing new to measure", async () => {
    expect(await atRates([1e3, 1e4, 1e4, 5e3], "exhausted")).toHaveLength(4);
  });

  it("on a GPU goes by what the bytes of a task allow, from the first share on", async () => {
    const { program } = openGraph(
      onnx("Conv(Conv<group=64, pads=[1,1,1,1]>(x[1,64,56,56], [64,1,3,3]{1}), [64,64,1,1]{1})"),
    );
    const machine = nvidiaTarget("h100");
    const places = [] as number[];
    const seconds = [] as number[];
    const search: Search = ({ computation }, options) => {
      seconds.push(options?.within ?? 0);
      const isDeep = computationKey(computation) === computationKey(program.steps[0]?.computation ?? computation);
      // The depthwise layer has a hundredth of the rate of the other, but moves its bytes almost as fast as the memory can.
      const median = (isDeep ? 1.02 : 3) * leastSecondsOnGpu(computation, machine);
      return Promise.resolve(timed(computation, median, "time-spent"));
    };
    await tuneNetwork(program, {
      seconds: 600,
      database: ":memory:",
      search,
      machine,
      beside: 1,
      onShare: ({ place }) => places.push(place),
    });
    expect(new Set(places.slice(0, 2))).toEqual(new Set([1, 2]));
    expect(places.slice(2, 5)).toEqual([2, 2, 2]);
    expect(new Set(seconds)).toEqual(new Set([30]));
  });
});
