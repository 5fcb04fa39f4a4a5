/** @file The text of a network's library on several threads: they are told when a call begins and ends. */

import { expect, it } from "vitest";
import { GraphBuilder } from "../network/builder.ts";
import { networkFiles } from "../package/network/index.ts";
import { networkSubject, openGraph } from "../session/network.ts";

function runFunction(threads: number): string {
  const net = new GraphBuilder("rectifier");
  net.output(net.node("Relu", [net.input("x", [4, 32])]));
  const { program } = openGraph(net.graph);
  const source = String(networkFiles(networkSubject(program, new Map(), { threads })).get("rectifier.cpp"));
  const [, run = ""] = /extern "C" int rectifier_run\(([\s\S]*?)^}/m.exec(source) ?? [];
  return run;
}

it("tells the threads of a network when a call begins and when it ends", () => {
  const calls = [...runFunction(2).matchAll(/net->pool->(\w+)\(/g)].map(([, name]) => name);
  expect(calls).toEqual(["begin", "run", "end"]);
});

it("has no threads for one", () => {
  expect(runFunction(1)).toContain("code.run(");
  expect(runFunction(1)).not.toContain("pool");
});
