/** @file The loop of a search, on a machine that is a formula. */

import { describe, expect, it } from "vitest";
import { seededRandom } from "../../abstraction/random.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import { exhaustive } from "../../tuner/exhaustive.ts";
import { genetic } from "../../tuner/genetic.ts";
import { random } from "../../tuner/random.ts";
import { replay } from "../../tuner/replay.ts";
import { type SearchOptions, search, type TimeLeft } from "../../tuner/search.ts";
import { leavesApart, type SearchSpace } from "../../tuner/space.ts";
import { STRATEGIES } from "../../tuner/strategies.ts";
import { fillOptions, type Strategy } from "../../tuner/strategy.ts";
import { secondsOf, type TrialOf } from "../../tuner/trials.ts";
import {
  failed,
  fakeTune,
  grid,
  gridWhere,
  memoryStore,
  mostlyWorks,
  nearlyRight,
  OPTIMUM,
  type Point,
  predicts,
  secondsAt,
  took,
} from "../support/fake-space.ts";

const base = { space: grid, predict: nearlyRight, answer: mostlyWorks, seed: 1, earlyStop: false } as const;
const searching = [genetic, random] as const;
const keys = (trials: readonly TrialOf<unknown>[]): string[] => trials.map(({ key }) => key);
const timeless = <C>(trials: readonly TrialOf<C>[]): Omit<TrialOf<C>, "at">[] =>
  trials.map(({ at: _, ...rest }) => rest);
const bestSeconds = (trials: readonly TrialOf<Point>[]): number =>
  Math.min(...trials.flatMap((trial) => secondsOf(trial) ?? []));

describe.each(searching)("a search by $name", (strategy) => {
  it("is the same for the same seed and the same answers", async () => {
    const [a, b] = [1, 2].map(() => fakeTune({ ...base, strategy, budget: { trials: 50 } }));
    expect(await a).toEqual(await b);
  });

  it("differs for another seed", async () => {
    const a = await fakeTune({ ...base, strategy, budget: { trials: 20 } });
    const b = await fakeTune({ ...base, strategy, budget: { trials: 20 }, seed: 2 });
    expect(a.measured).not.toEqual(b.measured);
  });

  it("begins like one with a larger budget", async () => {
    const long = await fakeTune({ ...base, strategy, budget: { trials: 40 } });
    const short = await fakeTune({ ...base, strategy, budget: { trials: 21 } });
    expect(short.result.trials).toEqual(long.result.trials.slice(0, 21));
  });

  it("measures nothing twice", async () => {
    const { measured } = await fakeTune({ ...base, strategy, budget: { trials: 200 } });
    expect(new Set(measured).size).toBe(200);
  });

  it("measures a space to its last candidate and says so", async () => {
    const space = gridWhere(({ m, n }) => m === 5 && n === 3);
    const { result, measured } = await fakeTune({ ...base, space, strategy, budget: {} });
    expect(result.status).toBe("exhausted");
    expect([...measured].sort()).toEqual([...space.all()].map((point) => space.key(point)).sort());
  });
});

/** A model that learns how far off it is for packed and unpacked points. */
function learner() {
  const factor = [1, 1];
  return {
    predict: (point: Point) => predicts(nearlyRight(point).seconds * (factor[point.packed] ?? 1)),
    learn: (trials: readonly TrialOf<Point>[]) => {
      for (const packed of [0, 1]) {
        const ratios = trials.flatMap((trial) => {
          const seconds = secondsOf(trial);
          return seconds === undefined || trial.candidate.packed !== packed
            ? []
            : [seconds / nearlyRight(trial.candidate).seconds];
        });
        if (ratios.length > 0) factor[packed] = ratios.reduce((a, b) => a + b) / ratios.length;
      }
    },
  };
}

describe.each(searching)("a search by $name that was killed", (strategy) => {
  const options = { ...base, strategy, budget: { trials: 60 } };

  it.each([0, 1, 7, 8, 9, 23, 41, 59, 60])(
    "after %i trials is resumed to the same end, measuring nothing twice",
    async (n) => {
      const whole = await fakeTune({ ...options, ...learner() });
      const store = memoryStore<Point>();
      let left = n;
      const killed = fakeTune({
        ...options,
        ...learner(),
        store,
        answer: (point) => {
          if (left-- === 0) throw new Error("killed");
          return mostlyWorks(point);
        },
      });
      if (n < 60) await expect(killed).rejects.toThrow("killed");
      else await killed;
      expect(store.trials).toHaveLength(n);

      const before = keys(store.trials);
      const resumed = await fakeTune({ ...options, ...learner(), store });
      expect(timeless(resumed.result.trials)).toEqual(timeless(whole.result.trials));
      expect(resumed.result.status).toBe(whole.result.status);
      expect(keys(resumed.result.finalists)).toEqual(keys(whole.result.finalists));
      expect([...before, ...resumed.measured]).toEqual(whole.measured);
    },
  );
});

it("a search tells its measurer the least median of earlier rounds, and nothing in the first", async () => {
  const told: (number | undefined)[] = [];
  const least: number[] = [];
  await search({
    ...base,
    strategy: random,
    budget: { trials: 32 },
    store: memoryStore<Point>(),
    now: () => 0,
    async *measure(batch, goal) {
      told.push(goal);
      least.push(Math.min(least.at(-1) ?? Number.POSITIVE_INFINITY, ...batch.map(secondsAt)));
      for (const point of batch) yield await Promise.resolve(took(secondsAt(point)));
    },
  });
  expect(told.length).toBeGreaterThan(2);
  expect(told).toEqual([undefined, ...least.slice(0, -1)]);
});

describe("a search that is stopped", () => {
  it("by the signal finishes the measurement under way and gives the best so far", async () => {
    const stop = new AbortController();
    let cleaned = false;
    const measured: string[] = [];
    const result = await search({
      ...base,
      strategy: random,
      budget: { trials: 100 },
      store: memoryStore<Point>(),
      now: () => 0,
      signal: stop.signal,
      async *measure(batch) {
        try {
          for (const point of batch) {
            measured.push(grid.key(point));
            if (measured.length === 11) stop.abort();
            yield took(secondsAt(point));
          }
        } finally {
          cleaned = true;
        }
      },
    });
    expect(result.status).toBe("interrupted");
    expect(keys(result.trials)).toEqual(measured);
    expect(measured).toHaveLength(11);
    expect(result.best && secondsOf(result.best)).toBe(bestSeconds(result.trials));
    expect(cleaned).toBe(true);
  });

  it("before it began tries nothing", async () => {
    const run = await fakeTune({ ...base, strategy: random, budget: { trials: 9 }, signal: AbortSignal.abort() });
    expect(run.result).toEqual({ status: "interrupted", trials: [], best: undefined, finalists: [], contenders: [] });
    expect(run.measured).toEqual([]);
  });

  it("by a signal that its machine heard too is interrupted, not broken", async () => {
    const stop = new AbortController();
    const result = await search({
      ...base,
      strategy: random,
      budget: { trials: 100 },
      store: memoryStore<Point>(),
      now: () => 0,
      signal: stop.signal,
      async *measure([first]) {
        if (first) yield mostlyWorks(first);
        stop.abort();
      },
    });
    expect([result.status, result.trials.length]).toEqual(["interrupted", 1]);
  });

  it("hears a signal from the event loop even while the store knows every answer", async () => {
    const whole = await fakeTune({ ...base, strategy: random, budget: { trials: 800 } });
    const stop = new AbortController();
    setImmediate(() => stop.abort());
    const store = memoryStore(whole.result.trials);
    const { result } = await fakeTune({
      ...base,
      strategy: random,
      budget: { trials: 800 },
      store,
      signal: stop.signal,
    });
    expect(result.status).toBe("interrupted");
  });

  it("by the clock keeps its trials", async () => {
    const { result } = await fakeTune({ ...base, strategy: random, budget: { trials: 100, seconds: 12.5 } });
    expect([result.status, result.trials.length]).toEqual(["time-spent", 13]);
  });
});

describe("early stop", () => {
  const perfect = { ...base, predict: (p: Point) => predicts(secondsAt(p)), answer: (p: Point) => took(secondsAt(p)) };

  it("ends a guided search after rounds without gain when the model predicts nothing better", async () => {
    const options = { ...perfect, strategy: genetic, budget: { trials: 400 }, earlyStop: { rounds: 2, margin: 0 } };
    const { result, events } = await fakeTune(options);
    expect(result.status).toBe("no-gain");
    expect(result.best?.candidate).toEqual(OPTIMUM);
    const rounds = events.filter(({ kind }) => kind === "round").length;
    const lastBest = events.findLastIndex(({ kind }) => kind === "best");
    const roundsAfter = events.slice(lastBest).filter(({ kind }) => kind === "round").length;
    expect(roundsAfter).toBe(2);
    expect(result.trials.length).toBe(8 * rounds);
  });

  it("waits for a given number of rounds without gain", async () => {
    const trials = async (rounds: number): Promise<number> => {
      const options = { ...perfect, strategy: genetic, budget: { trials: 400 }, earlyStop: { rounds, margin: 0 } };
      return (await fakeTune(options)).result.trials.length;
    };
    expect((await trials(4)) - (await trials(2))).toBe(16);
  });

  it("does not come while a candidate within the margin is left", async () => {
    const options = { ...perfect, strategy: genetic, budget: { trials: 80 }, earlyStop: { rounds: 2, margin: 1 } };
    expect((await fakeTune(options)).result.status).toBe("trials-spent");
  });

  it("never ends an unguided search, one that disables it, or one without a model", async () => {
    const early = { earlyStop: { rounds: 1, margin: 0 } };
    const budget = { trials: 120 };
    const status = async (run: Parameters<typeof fakeTune<Point>>[0]) => (await fakeTune(run)).result.status;
    expect(await status({ ...perfect, ...early, strategy: random, budget })).toBe("trials-spent");
    expect(await status({ ...perfect, earlyStop: false, strategy: genetic, budget })).toBe("trials-spent");
    expect(await status({ ...perfect, ...early, strategy: genetic, budget, predict: () => undefined })).toBe(
      "trials-spent",
    );
  });
});

describe("the model", () => {
  const answer = (point: Point) => took(secondsAt(point));
  const expectations = async (
    options: Partial<Parameters<typeof fakeTune<Point>>[0]>,
  ): Promise<(number | undefined)[]> => {
    const run = { ...base, answer, strategy: exhaustive, batch: 4, budget: { trials: 8 }, ...options };
    const { events } = await fakeTune<Point>(run);
    return events.flatMap((event) => (event.kind === "round" ? [event.expectedSeconds] : []));
  };
  const [first = 0, second = 0] = [0, 4].map((from) => {
    const round = [...grid.all()].slice(from, from + 4);
    return Math.min(...round.map(secondsAt));
  });

  it("is scaled to the trials, which corrects predictions three times too high", async () => {
    const tripled = await expectations({ predict: (point) => predicts(3 * secondsAt(point)) });
    expect(tripled).toEqual([expect.closeTo(3 * first, 15), expect.closeTo(second, 15)]);
  });

  it("is asked again once it has learnt, and learns from all trials between rounds", async () => {
    const lessons: number[] = [];
    let offset = 1;
    const predict = (point: Point) => predicts(secondsAt(point) + offset);
    const learn = (trials: readonly TrialOf<Point>[]) => {
      lessons.push(trials.length);
      offset = 0;
    };
    expect(await expectations({ predict, learn, budget: { trials: 12 } })).toHaveLength(3);
    expect(lessons).toEqual([4, 8]);
    offset = 1;
    expect(await expectations({ predict, learn })).toEqual([expect.closeTo(1 + first, 15), expect.closeTo(second, 15)]);
  });

  it("is recorded for each trial with its prediction from before it learnt from that trial", async () => {
    let offset = 1;
    const predict = (point: Point) => predicts(secondsAt(point) + offset);
    const learn = () => {
      offset++;
    };
    const { result } = await fakeTune({
      ...base,
      predict,
      learn,
      strategy: exhaustive,
      batch: 2,
      budget: { trials: 4 },
    });
    expect(result.trials.map(({ prediction }) => Math.floor(prediction?.seconds ?? 0))).toEqual([1, 1, 2, 2]);
  });
});

describe("failures", () => {
  it("never win, even when the model prefers them", async () => {
    const answer = (p: Point): Measurement => (p.m === 5 ? failed("illegal-instruction") : took(secondsAt(p)));
    const { result } = await fakeTune({ ...base, answer, strategy: genetic, budget: { trials: 80 } });
    expect(result.trials.some(({ measurement }) => measurement.status === "illegal-instruction")).toBe(true);
    expect(result.best?.candidate.m).not.toBe(5);
    expect(result.best?.measurement.status).toBe("ok");
  });

  it.each(searching)("of all runs leave no best and do not stop $name", async (strategy) => {
    const { result } = await fakeTune({ ...base, answer: () => failed("crashed"), strategy, budget: { trials: 30 } });
    expect([result.status, result.trials.length, result.best, result.finalists]).toEqual([
      "trials-spent",
      30,
      undefined,
      [],
    ]);
  });

  it("of the machine itself are thrown after finished measurements are recorded", async () => {
    const store = memoryStore<Point>();
    const options = { ...base, strategy: random, store, budget: { trials: 9 }, now: () => 0 };
    const short = search({ ...options, measure: (batch) => Promise.resolve(batch.slice(1).map(mostlyWorks)) });
    await expect(short).rejects.toThrow("tune: measure answered 7 of 8 candidates");
    expect(store.trials).toHaveLength(7);
  });

  it("are not counted where the time ends a round before the search's own clock does", async () => {
    const store = memoryStore<Point>();
    const time = new AbortController();
    async function* measure(batch: readonly Point[]): AsyncGenerator<Measurement> {
      await Promise.resolve();
      yield* batch.slice(0, 3).map(mostlyWorks);
      time.abort();
    }
    const options = { ...base, strategy: random, store, now: () => 0, budget: { seconds: 1 }, time: time.signal };
    expect(await search({ ...options, measure })).toMatchObject({ status: "time-spent", trials: { length: 3 } });
  });
});

describe("the exhaustive strategy", () => {
  it("visits everything once, in the order of the space, and finds the optimum", async () => {
    const space = gridWhere(({ unroll, n }) => unroll === 2 && n === 3);
    const answer = (point: Point) => took(secondsAt(point));
    const { result, measured } = await fakeTune({ ...base, space, answer, strategy: exhaustive, budget: {} });
    expect(measured).toEqual([...space.all()].map((point) => space.key(point)));
    expect([result.status, result.best?.candidate]).toEqual(["exhausted", OPTIMUM]);
  });

  it("takes a candidate that the space lists twice once", async () => {
    const space: SearchSpace<Point> = { ...grid, all: () => [OPTIMUM, OPTIMUM, { ...OPTIMUM, m: 1 }, OPTIMUM] };
    const { measured } = await fakeTune({ ...base, space, strategy: exhaustive, budget: {}, batch: 1 });
    expect(measured).toEqual(["m5 n3 k6 u2 p1", "m1 n3 k6 u2 p1"]);
  });
});

describe("the replay strategy", () => {
  it("proposes the stored trials in their order, and measures none of them", async () => {
    const { result } = await fakeTune({ ...base, strategy: random, budget: { trials: 20 } });
    const again = await fakeTune({ ...base, strategy: replay, store: memoryStore(result.trials), budget: {} });
    expect(again.result).toEqual({ ...result, status: "exhausted" });
    expect(again.measured).toEqual([]);
  });

  it("measures a trial again that the store no longer has", async () => {
    const { result } = await fakeTune({ ...base, strategy: random, budget: { trials: 20 } });
    const store = { ...memoryStore(result.trials), known: () => undefined };
    const again = await fakeTune({ ...base, strategy: replay, store, budget: {} });
    expect(again.measured).toEqual(keys(result.trials));
    expect(store.trials).toHaveLength(40);
  });
});

const leftIn = ({ left }: { readonly left: TimeLeft | undefined }): string => {
  if (!left) return "unknown";
  const { seconds, isEstimate, mayEndSooner } = left;
  return `${isEstimate ? "about" : "at most"} ${seconds} s${mayEndSooner ? " or less" : ""}`;
};

/** A search whose rounds take this many seconds before their first result; each kernel takes one. @returns the time left at each event */
async function timesLeft(
  before: number,
  options: Pick<SearchOptions<Point>, "budget"> & Partial<SearchOptions<Point>>,
): Promise<string[]> {
  const lines: string[] = [];
  let clock = 0;
  await search({
    ...base,
    strategy: exhaustive,
    store: memoryStore<Point>(),
    batch: 4,
    ...options,
    now: () => clock,
    onEvent: (event) => {
      if (event.kind === "round") lines.push(`${clock / 1000} s, round ${event.round}: ${leftIn(event)}`);
      if (event.kind === "trial")
        lines.push(`${clock / 1000} s, trial ${event.number} of ${event.of}: ${leftIn(event)}`);
    },
    async *measure(batch) {
      clock += 1000 * before;
      for (const point of batch) {
        clock += 1000;
        yield took(secondsAt(point));
      }
    },
  });
  return lines;
}

describe("the time left", () => {
  it("is that of the limit of seconds until two results of a round are there, and then what the trials left take", async () => {
    expect(await timesLeft(10, { budget: { trials: 8, seconds: 100 } })).toEqual([
      "0 s, round 1: at most 100 s",
      "11 s, trial 1 of 8: at most 89 s",
      "12 s, trial 2 of 8: about 16 s",
      "13 s, trial 3 of 8: about 15 s",
      "14 s, trial 4 of 8: about 14 s",
      "14 s, round 2: about 14 s",
      "25 s, trial 5 of 8: about 3 s",
      "26 s, trial 6 of 8: about 2 s",
      "27 s, trial 7 of 8: about 1 s",
      "28 s, trial 8 of 8: about 0 s",
    ]);
  });

  it("is what the limit of seconds leaves where that is less", async () => {
    const lines = await timesLeft(0, { budget: { trials: 100, seconds: 6 } });
    expect(lines.slice(-2)).toEqual(["5 s, trial 5 of 100: at most 1 s", "6 s, trial 6 of 100: at most 0 s"]);
  });

  it("ends with the space where that is smaller than the limit of trials", async () => {
    const space = gridWhere(({ m, n, unroll, packed }) => m === 5 && n === 3 && unroll === 2 && packed === 1);
    const lines = await timesLeft(0, { space, budget: { trials: 100, seconds: 60 } });
    expect(lines[2]).toBe("2 s, trial 2 of 8: about 6 s");
  });

  it("says that a guided search may end sooner, once enough rounds are left for that", async () => {
    const guided = { ...exhaustive, guided: true };
    const earlyStop = { rounds: 5, margin: 0 };
    const [first] = await timesLeft(0, { strategy: guided, earlyStop, budget: { trials: 100, seconds: 60 } });
    expect(first).toBe("0 s, round 1: at most 60 s or less");
    const [short] = await timesLeft(0, { strategy: guided, earlyStop, budget: { trials: 20, seconds: 60 } });
    expect(short).toBe("0 s, round 1: at most 60 s");
    const [bold] = await timesLeft(0, { strategy: guided, budget: { trials: 100, seconds: 60 } });
    expect(bold).toBe("0 s, round 1: at most 60 s");
  });

  it("is unknown without limits", async () => {
    const space = { ...gridWhere(({ m, k }) => m === 5 && k === 2), size: undefined };
    const lines = await timesLeft(0, { space, budget: {} });
    expect(lines[1]).toBe("1 s, trial 1 of undefined: unknown");
  });
});

describe("events", () => {
  it("report the rounds, the trials, each new best and the time left", async () => {
    const space = gridWhere(({ m, n, unroll, packed }) => m === 5 && n === 3 && unroll === 2 && packed === 1);
    const answer = (p: Point) => (p.k === 1 ? failed("timed-out") : took(secondsAt(p)));
    const known = memoryStore<Point>();
    await fakeTune({ ...base, space, answer, store: known, strategy: exhaustive, budget: { trials: 1 } });
    const options = { ...base, space, answer, store: known, strategy: exhaustive, batch: 3, budget: { trials: 5 } };
    const { events } = await fakeTune(options);
    const lines = events.map((event) => {
      switch (event.kind) {
        case "round":
          return `round ${event.round}: ${event.proposed} proposed, ${event.known} known, ${leftIn(event)}`;
        case "trial": {
          const { measurement } = event.trial;
          const outcome =
            measurement.status === "ok" ? `${(1e6 * measurement.median).toFixed(1)} us` : measurement.status;
          return `trial ${event.number} of ${event.of}: ${outcome}${event.known ? " (known)" : ""}, ${leftIn(event)}`;
        }
        case "best":
          return `best ${event.trial.key}, was ${event.previous?.key ?? "none"}`;
        case "phase":
          return event.kind;
        case "stop":
          return `${event.status}: ${event.trials} trials, ${event.measured} measured in ${event.seconds} s`;
        default:
          return event satisfies never;
      }
    });
    expect(`\n${lines.join("\n")}`).toMatchInlineSnapshot(`
      "
      round 1: 3 proposed, 1 known, unknown
      trial 1 of 5: 4.6 us (known), unknown
      best m5 n3 k0 u2 p1, was none
      trial 2 of 5: timed-out, unknown
      trial 3 of 5: 2.6 us, about 2 s
      best m5 n3 k2 u2 p1, was m5 n3 k0 u2 p1
      round 2: 2 proposed, 0 known, about 2 s
      trial 4 of 5: 1.9 us, about 1 s
      best m5 n3 k3 u2 p1, was m5 n3 k2 u2 p1
      trial 5 of 5: 1.4 us, about 0 s
      best m5 n3 k4 u2 p1, was m5 n3 k3 u2 p1
      trials-spent: 5 trials, 4 measured in 4 s"
    `);
  });
});

describe("options", () => {
  it.each(STRATEGIES)("of $name have a default within their range and a description", (strategy: Strategy) => {
    for (const option of Object.values(strategy.options)) expect(option.summary).not.toBe("");
    const defaults = Object.entries(strategy.options).map(([name, option]) => [name, option.default]);
    expect(fillOptions(strategy, {})).toEqual(Object.fromEntries(defaults));
  });

  it.each(STRATEGIES)("of $name may be the ends of their range, and nothing beyond them", (strategy: Strategy) => {
    for (const [name, { min, max, whole }] of Object.entries(strategy.options)) {
      for (const end of [min, max]) expect(fillOptions(strategy, { [name]: end })[name]).toBe(end);
      const beyond = whole ? 1 : 1e-6;
      for (const value of [min - beyond, max + beyond])
        expect(() => fillOptions(strategy, { [name]: value })).toThrow(`${strategy.name}: ${name} must be a `);
    }
  });

  it("are refused when they are unknown or out of range", async () => {
    expect(() => fillOptions(genetic, { population: 2.5 })).toThrow(
      "genetic: population must be a whole number from 4 to 10000, got 2.5",
    );
    expect(() => fillOptions(genetic, { mutation: Number.NaN })).toThrow(
      "genetic: mutation must be a number from 0 to 1",
    );
    expect(() => fillOptions(random, { popsize: 1 })).toThrow("random: no option popsize, there are none");
    const wrong = [
      { budget: { trials: 0 } },
      { budget: { seconds: -1 } },
      { budget: {}, batch: 1.5 },
      { budget: {}, seed: Number.NaN },
      { budget: {}, earlyStop: { rounds: 0, margin: 0 } },
    ];
    for (const options of wrong)
      await expect(fakeTune({ ...base, strategy: random, ...options })).rejects.toThrow(/^tune: .* must be a/);
  });

  it("names each strategy once", () => {
    expect(STRATEGIES.map(({ name }) => name)).toEqual(["genetic", "random", "exhaustive", "replay"]);
  });
});

describe("the difference of plain data", () => {
  it("counts the leaves that differ, missing ones too", () => {
    expect(leavesApart({ tile: [4, 8], order: "mnk" }, { tile: [4, 2], order: "mnk" })).toBe(1);
    expect(leavesApart({ tile: [4, 8] }, { tile: [4], threads: 2 })).toBe(2);
    const point = grid.random(seededRandom(1));
    expect(leavesApart(point, { ...point })).toBe(0);
  });
});
