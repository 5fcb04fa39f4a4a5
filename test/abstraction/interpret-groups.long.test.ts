/**
 * @file Warpgroups and their asynchronous products in the interpreter: each fence, commit, wait and stage is needed.
 */

import { describe, expect, it } from "vitest";
import { NestFault } from "../../abstraction/blocks/fault.ts";
import { ADVERSE_ORDERS } from "../../abstraction/blocks/run.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { GROUP_INPUTS, type GroupMatmulOptions, groupMatmul } from "../support/group-matmul.ts";

/** What the judge says in each adverse order: nothing where the result is right. */
function verdicts(options: GroupMatmulOptions): string[] {
  const { computation, nest } = groupMatmul(options);
  const expected = interpret(computation, GROUP_INPUTS);
  const said = ADVERSE_ORDERS.map((order) => {
    try {
      const got = interpretNest(nest, computation, GROUP_INPUTS, 1, order);
      return got.every((v, i) => v === expected[i]) ? "right" : "wrong";
    } catch (error) {
      if (!(error instanceof NestFault)) throw error;
      return error.message;
    }
  });
  return [
    ...new Set(
      said.map((text) =>
        text
          .split("\n")
          .filter((l) => /^\S|missing/.test(l.replace(/^ {2}/, "")))
          .join("\n"),
      ),
    ),
  ];
}

describe("a product of warpgroups", () => {
  it("is right in every order, with rows along the sum and across it", () => {
    expect(verdicts({})).toEqual(["right"]);
    expect(verdicts({ turned: true })).toEqual(["right"]);
    expect(verdicts({ stages: 2, inFlight: 0 })).toEqual(["right"]);
  });

  it("prints as this program", () => {
    expect(printNest(groupMatmul().nest)).toMatchInlineSnapshot(`
      "shared a_ring: f16[stage 3, m 128, k 64] at 8192*stage + 64*m + 8*(k/8 ^ m%8) + k%8
      shared b_ring: f16[stage 3, k 64, n 32] at 2048*stage + 32*k + 8*(n/8 ^ k/2%4) + n%8
      registers c: 1 x wgmma.m64n32k16.f32.f16.c
      for at block block in 0..1
        for at warpgroup g in 0..2
          c{0} <- identity
          copy r 128, t 64 by 8, async, by block   a_ring[0%3,r,t] = x[r,64*0+t]
          copy t 64, s 32 by 8, async, by block   b_ring[0%3,t,s] = y[64*0+t,s]
          commit
          for step in 0..4
            wait 0
            fence wgmma memory
            barrier block
            fence wgmma registers
            for unrolled part in 0..4
              c{0} <- wgmma.m64n32k16.f32.f16(a_ring[step%3,64*g+u,16*part+w] over u, w, b_ring[step%3,16*part+w,v] over w, v)
            commit wgmma
            wait wgmma 1
            copy r 128, t 64 by 8, async, by block where step+1 < 4   a_ring[(step+1)%3,r,t] = x[r,64*(step+1)+t]
            copy t 64, s 32 by 8, async, by block where step+1 < 4   b_ring[(step+1)%3,t,s] = y[64*(step+1)+t,s]
            commit
          wait wgmma 0
          for u, v of c{0}   out[64*g+u,v] = sum[]"
    `);
  });

  it("needs a fence that publishes the threads' writes to the instruction", () => {
    expect(verdicts({ without: "fence memory" })).toMatchInlineSnapshot(`
      [
        "a_ring[stage 0, m 0, k 0] is read by an instruction that does not see what was written
        copy r 128, t 64 by 8, async, by block   a_ring[0%3,r,t] = x[r,64*0+t]
        c{0} <- wgmma.m64n32k16.f32.f16(a_ring[step%3,64*g+u,16*part+w] over u, w, b_ring[step%3,16*part+w,v] over w, v)
        missing: a fence of memory by the thread that wrote it, behind the write and ahead of the barrier",
        "a_ring[stage 0, m 64, k 0] is read by an instruction that does not see what was written
        copy r 128, t 64 by 8, async, by block   a_ring[0%3,r,t] = x[r,64*0+t]
        c{0} <- wgmma.m64n32k16.f32.f16(a_ring[step%3,64*g+u,16*part+w] over u, w, b_ring[step%3,16*part+w,v] over w, v)
        missing: a fence of memory by the thread that wrote it, behind the write and ahead of the barrier",
      ]
    `);
  });

  it("needs the registers fenced, the issues committed and awaited", () => {
    expect(verdicts({ without: "fence registers" })).toMatchInlineSnapshot(`
      [
        "no fence of registers stands between the last commit and this issue: missing: fence wgmma registers
        c{0} <- wgmma.m64n32k16.f32.f16(a_ring[step%3,64*g+u,16*part+w] over u, w, b_ring[step%3,16*part+w,v] over w, v)",
      ]
    `);
    expect(verdicts({ without: "commit" })).toMatchInlineSnapshot(`
      [
        "a_ring[stage 0, m 0, k 0] is overwritten while another thread may still read it
        c{0} <- wgmma.m64n32k16.f32.f16(a_ring[step%3,64*g+u,16*part+w] over u, w, b_ring[step%3,16*part+w,v] over w, v)
        copy r 128, t 64 by 8, async, by block where step+1 < 4   a_ring[(step+1)%3,r,t] = x[r,64*(step+1)+t]
        missing: a commit of the issue and a wait for it, and then a barrier of the block, or a ring of more stages",
        "a_ring[stage 0, m 16, k 0] is overwritten while another thread may still read it
        c{0} <- wgmma.m64n32k16.f32.f16(a_ring[step%3,64*g+u,16*part+w] over u, w, b_ring[step%3,16*part+w,v] over w, v)
        copy r 128, t 64 by 8, async, by block where step+1 < 4   a_ring[(step+1)%3,r,t] = x[r,64*(step+1)+t]
        missing: a commit of the issue and a wait for it, and then a barrier of the block, or a ring of more stages",
      ]
    `);
    expect(verdicts({ without: "wait" })).toMatchInlineSnapshot(`
      [
        "a_ring[stage 0, m 0, k 0] is overwritten while another thread may still read it
        c{0} <- wgmma.m64n32k16.f32.f16(a_ring[step%3,64*g+u,16*part+w] over u, w, b_ring[step%3,16*part+w,v] over w, v)
        copy r 128, t 64 by 8, async, by block where step+1 < 4   a_ring[(step+1)%3,r,t] = x[r,64*(step+1)+t]
        missing: a wait for the issue, and then a barrier of the block, or a ring of more stages",
        "a_ring[stage 0, m 16, k 0] is overwritten while another thread may still read it
        c{0} <- wgmma.m64n32k16.f32.f16(a_ring[step%3,64*g+u,16*part+w] over u, w, b_ring[step%3,16*part+w,v] over w, v)
        copy r 128, t 64 by 8, async, by block where step+1 < 4   a_ring[(step+1)%3,r,t] = x[r,64*(step+1)+t]
        missing: a wait for the issue, and then a barrier of the block, or a ring of more stages",
      ]
    `);
  });

  it("needs a barrier between the copies and the products, and the copies awaited", () => {
    expect(verdicts({ without: "barrier" })).toMatchInlineSnapshot(`
      [
        "a_ring[stage 0, m 0, k 0] is read before what writes it has ended
        copy r 128, t 64 by 8, async, by block   a_ring[0%3,r,t] = x[r,64*0+t]
        c{0} <- wgmma.m64n32k16.f32.f16(a_ring[step%3,64*g+u,16*part+w] over u, w, b_ring[step%3,16*part+w,v] over w, v)
        missing: a barrier of the block behind the wait for the copy",
        "a_ring[stage 0, m 80, k 0] is read before what writes it has ended
        copy r 128, t 64 by 8, async, by block   a_ring[0%3,r,t] = x[r,64*0+t]
        c{0} <- wgmma.m64n32k16.f32.f16(a_ring[step%3,64*g+u,16*part+w] over u, w, b_ring[step%3,16*part+w,v] over w, v)
        missing: a barrier of the block behind the wait for the copy",
        "a_ring[stage 0, m 64, k 0] is read before what writes it has ended
        copy r 128, t 64 by 8, async, by block   a_ring[0%3,r,t] = x[r,64*0+t]
        c{0} <- wgmma.m64n32k16.f32.f16(a_ring[step%3,64*g+u,16*part+w] over u, w, b_ring[step%3,16*part+w,v] over w, v)
        missing: a barrier of the block behind the wait for the copy",
      ]
    `);
    expect(verdicts({ without: "arrival" })).toMatchInlineSnapshot(`
      [
        "a_ring[stage 0, m 0, k 0] is read before what writes it has ended
        copy r 128, t 64 by 8, async, by block   a_ring[0%3,r,t] = x[r,64*0+t]
        c{0} <- wgmma.m64n32k16.f32.f16(a_ring[step%3,64*g+u,16*part+w] over u, w, b_ring[step%3,16*part+w,v] over w, v)
        missing: a wait for the copy, and then a barrier of the block",
        "a_ring[stage 0, m 64, k 0] is read before what writes it has ended
        copy r 128, t 64 by 8, async, by block   a_ring[0%3,r,t] = x[r,64*0+t]
        c{0} <- wgmma.m64n32k16.f32.f16(a_ring[step%3,64*g+u,16*part+w] over u, w, b_ring[step%3,16*part+w,v] over w, v)
        missing: a wait for the copy, and then a barrier of the block",
      ]
    `);
  });

  it("needs one more stage for products that stay in flight", () => {
    expect(verdicts({ stages: 3, inFlight: 1, ahead: 2 })).toMatchInlineSnapshot(`
      [
        "a_ring[stage 0, m 0, k 0] is overwritten while another thread may still read it
        c{0} <- wgmma.m64n32k16.f32.f16(a_ring[step%3,64*g+u,16*part+w] over u, w, b_ring[step%3,16*part+w,v] over w, v)
        copy r 128, t 64 by 8, async, by block where step+2 < 4   a_ring[(step+2)%3,r,t] = x[r,64*(step+2)+t]
        missing: a barrier of the block behind the wait for the issue, or a ring of more stages",
        "a_ring[stage 0, m 16, k 0] is overwritten while another thread may still read it
        c{0} <- wgmma.m64n32k16.f32.f16(a_ring[step%3,64*g+u,16*part+w] over u, w, b_ring[step%3,16*part+w,v] over w, v)
        copy r 128, t 64 by 8, async, by block where step+2 < 4   a_ring[(step+2)%3,r,t] = x[r,64*(step+2)+t]
        missing: a wait for the issue, and then a barrier of the block, or a ring of more stages",
      ]
    `);
  });

  it("reads only layouts that a start, two distances and a swizzle describe", () => {
    expect(verdicts({ turned: true, crooked: true })).toMatchInlineSnapshot(`
      [
        "b from b_ring[stage 0, n 0, k 0] on lies in no form that wgmma.m64n32k16.f32.f16 reads: a start, two distances, a swizzle
        c{0} <- wgmma.m64n32k16.f32.f16(a_ring[step%3,64*g+u,16*part+w] over u, w, b_ring[step%3,v,16*part+w] over w, v)",
      ]
    `);
  });
});
