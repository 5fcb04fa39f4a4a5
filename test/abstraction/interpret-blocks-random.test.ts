/** @file The interpreter as a judge of races: random right pipelines, and each of their faults, one at a time. */

import { expect, it } from "vitest";
import { NestFault } from "../../abstraction/blocks/fault.ts";
import { ADVERSE_ORDERS, type NestOrder } from "../../abstraction/blocks/run.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { pick, seededRandom } from "../../abstraction/random.ts";
import { faultsOf, pipeline, randomForm } from "../support/pipeline.ts";
import { inFull } from "../support/slow.ts";
import { smallIntegers } from "../support/subjects.ts";
import { scrambled } from "../support/warp-nest.ts";

const FORMS = inFull(400, 5);

it("a right pipeline is accepted and each fault of one refused, in any order", { timeout: 3_600_000 }, () => {
  const random = seededRandom(Number(process.env["AUTOMAP_TEST_SEED"] ?? 1));
  let faults = 0;
  let lucky = 0;
  for (let drawn = 0; drawn < FORMS; drawn++) {
    const form = randomForm(random);
    const { computation, nest } = pipeline(form);
    const inputs = smallIntegers(computation, random);
    const expected = interpret(computation, inputs);
    const orders = inFull(ADVERSE_ORDERS, [pick(random, ADVERSE_ORDERS), pick(random, ADVERSE_ORDERS)]);
    for (const order of orders)
      expect(
        interpretNest(nest, computation, inputs, 2, order),
        `${JSON.stringify(order)}\n${printNest(nest)}`,
      ).toEqual(expected);
    for (const fault of faultsOf(form)) {
      faults++;
      const faulty = pipeline(form, fault).nest;
      const order = pick(random, ADVERSE_ORDERS);
      const label = `${JSON.stringify(fault)} ${JSON.stringify(order)}\n${printNest(faulty)}`;
      expect(() => interpretNest(faulty, computation, inputs, 1, order), label).toThrow(NestFault);
      // The values that the same run would have given: often the right ones.
      if (drawn % 4 > 0) continue;
      const values = interpretNest(faulty, computation, inputs, 1, { ...order, races: "ignored" });
      if (values.every((value, i) => value === expected[i])) lucky++;
    }
  }
  expect(faults).toBeGreaterThan(8 * FORMS);
  expect(lucky).toBeGreaterThan(FORMS / 4);
});

it("a scrambled nest is accepted only if all orders give one result", { timeout: 3_600_000 }, () => {
  const random = seededRandom(Number(process.env["AUTOMAP_TEST_SEED"] ?? 2));
  let accepted = 0;
  let wrong = 0;
  let refused = 0;
  while (accepted < inFull(1000, 12)) {
    const { computation, nest: right } = pipeline({ ...randomForm(random), blocks: [1, 1], slices: 1 });
    const inputs = smallIntegers(computation, random);
    const expected = interpret(computation, inputs);
    for (let i = 0; i < 6; i++) {
      const nest = scrambled(random() < 0.5 ? right : scrambled(right, random), random);
      const run = (order: NestOrder): Float64Array | undefined => {
        try {
          return interpretNest(nest, computation, inputs, 1, order);
        } catch (error) {
          if (error instanceof NestFault) return undefined;
          throw error;
        }
      };
      const [first, ...others] = ADVERSE_ORDERS.map(run);
      for (const other of others) expect(other, printNest(nest)).toEqual(first);
      if (!first) refused++;
      else if (first.every((value, at) => value === expected[at])) accepted++;
      else wrong++;
    }
  }
  // Some still compute the product, some something else, most have no order.
  expect(Math.min(wrong, refused)).toBeGreaterThan(0);
});
