/** @file `automap network` and `automap tune-network`: lists, tasks, libraries, and what is refused. */

import { mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { EXIT } from "../../abstraction/exit-codes.ts";
import { openDatabase, runsIn } from "../../db/index.ts";
import { GraphBuilder } from "../../network/builder.ts";
import { runChild } from "../../runtime/child.ts";
import { complaint, printed } from "../support/cli.ts";
import { commandLine } from "../support/command-line.ts";
import { compilerHere } from "../support/here.ts";
import { onnxBytes } from "../support/onnx-bytes.ts";
import { scratchFolder } from "../support/scratch.ts";

const folder = scratchFolder();
const at = (name: string): string => join(folder, name);

function perceptron(): string {
  const net = new GraphBuilder("perceptron");
  const x = net.input("x", ["batch", 32]);
  const w = net.constant(
    "w",
    [16, 32],
    new Float32Array(512).map((_, i) => Math.sin(i)),
  );
  net.output(net.node("Relu", [net.node("Gemm", [x, w], { transB: 1 })]));
  writeFileSync(at("perceptron.onnx"), onnxBytes(net.graph));
  return at("perceptron.onnx");
}

describe("automap network", () => {
  it("shows the tasks of a model, tunes them, and writes its library with the tuned kernels", async () => {
    const model = perceptron();
    const shown = JSON.parse(await printed(`network show ${model} --dim batch=4 --db ${at("none.db")} --json`)) as {
      tasks: object[];
    };
    expect(shown.tasks).toMatchObject([{ ops: ["Gemm", "Relu"], multiplyAdds: 2048, kind: "model" }]);
    const tuned = await commandLine(`tune-network ${model} --dim batch=4 --time 4 --db ${at("net.db")}`);
    expect(tuned.code, tuned.err).toBe(0);
    expect(tuned.err).toMatch(
      /task 1 of 1, 1 times: [\d.]+ us, (at most \d+ s left|time is up) {3}\S.*\bm 4\b.*\bn 16\b/,
    );
    const again = JSON.parse(await printed(`network show ${model} --dim batch=4 --db ${at("net.db")} --json`)) as {
      tasks: object[];
    };
    expect(again.tasks).toMatchObject([{ kind: "record" }]);
    const report = await printed(`report --network ${model} --dim batch=4 --db ${at("net.db")} -o -`);
    expect(report).toContain("100.0 % of it is measured");
    expect(report).toContain("<strong>1 of 1 operators</strong>");
    const written = await printed(`network emit ${model} --dim batch=4 --db ${at("net.db")} --to ${at("lib")} --prove`);
    expect(written).toContain("right: 1 steps");
    // The records of four rows are near those of five and six.
    const taught = (): number => {
      const db = openDatabase(at("net.db"), { readonly: true });
      const runs = runsIn(db).map(({ run }) => run.options);
      db.close();
      return runs.filter((options) => "prior" in options).length;
    };
    await commandLine(`tune-network ${model} --dim batch=5 --time 2 --no-transfer --db ${at("net.db")}`);
    expect(taught()).toBe(0);
    await commandLine(`tune-network ${model} --dim batch=6 --time 2 --db ${at("net.db")}`);
    expect(taught()).toBeGreaterThan(0);
  });

  it("keeps to its time, and names the tasks that got none", async () => {
    // Two tasks that differ in a constant of the epilogue, and are called the same.
    const net = new GraphBuilder("alike");
    let x = net.input("x", [4, 16, 8, 8]);
    for (const alpha of [0.1, 0.2]) {
      const w = net.constant(`w${alpha}`, [16, 16, 1, 1], new Float32Array(256).fill(alpha));
      x = net.node("LeakyRelu", [net.node("Conv", [x, w])], { alpha });
    }
    net.output(x);
    writeFileSync(at("alike.onnx"), onnxBytes(net.graph));
    const tuned = await commandLine(`tune-network ${at("alike.onnx")} --time 1 --db ${at("alike.db")} --json`);
    expect(tuned.code, tuned.err).toBe(0);
    const { tasks, seconds } = JSON.parse(tuned.out) as {
      tasks: { task: string; seconds?: number }[];
      seconds: number;
    };
    expect(tasks).toMatchObject([{ searched: true, seconds }, { searched: false }]);
    expect(tasks[1]).not.toHaveProperty("seconds");
    expect(tasks[0]?.task).toBe(tasks[1]?.task);
    expect(tuned.err).toContain(
      `1 of 2 tasks got no time; --time with more seconds reaches them\n  1 times   ${tasks[1]?.task}`,
    );
  });

  it("refuses a file it cannot read, with a sentence", async () => {
    const model = perceptron();
    writeFileSync(at("text.onnx"), "no protobuf");
    expect(
      [
        await complaint(`network show ${model}`),
        await complaint(`network show ${model} --dim batch`),
        await complaint(`network show ${model} --dim batch=0`),
        await complaint(`network show ${model} --dim bach=4`),
        await complaint(`network show ${at("none.onnx")}`, EXIT.nothingFound),
        await complaint(`network show ${at("text.onnx")}`),
        await complaint("network show resnet81"),
        await complaint(`network show ${model} --dim batch=1 --constant x=${at("text.onnx")}`),
        await complaint(`network emit ${model} --dim batch=1`),
        // The output path is checked before the model is read.
        await complaint(`network emit ${at("none.onnx")} --to ${at("text.onnx")}`),
      ].map((text) => text.replaceAll(folder, "FOLDER")),
    ).toMatchInlineSnapshot(`
      [
        "automap: the size "batch" of input x is not known
        give it: --dim batch=1",
        "automap: --dim "batch" is not name=value
        for example --dim batch=1",
        "automap: --dim batch=0: a size is a whole number, 1 at least",
        "automap: no input has a size "bach"
        did you mean "batch"?",
        "automap: FOLDER/none.onnx cannot be read: there is no such file or directory",
        "automap: FOLDER/text.onnx is no ONNX model: illegal tag: field no 13 wire type 6",
        "automap: there is no network "resnet81"
        did you mean "resnet18"?; or a file, model.onnx",
        "automap: FOLDER/text.onnx is no tensor of ONNX: illegal tag: field no 13 wire type 6",
        "automap: network emit needs --to: the folder to write",
        "automap: FOLDER/text.onnx is a file
        name a folder; it is made when it is missing",
      ]
    `);
  });
});

it("takes the name of a network built here where a folder is called the same, as its package is", async () => {
  const before = process.cwd();
  mkdirSync(at("mi-lstm"));
  process.chdir(folder);
  try {
    expect(await printed("network show mi-lstm")).toMatch(/^mi_lstm: \d+ nodes/);
    rmSync("mi-lstm", { recursive: true });
    writeFileSync("mi-lstm", "no protobuf");
    expect(await complaint("network show mi-lstm")).toMatch(/^automap: mi-lstm is no ONNX model/);
  } finally {
    process.chdir(before);
  }
});

describe("a network of f16 on a CPU", () => {
  it("is computed in f32, which the command says", async () => {
    const net = new GraphBuilder("halves");
    net.output(net.node("Relu", [net.input("x", [4, 4], "f16")]));
    writeFileSync(at("halves.onnx"), onnxBytes(net.graph));
    const words = `network emit ${at("halves.onnx")} --to ${at("halves")} --verify --json`;
    const { code, out, err } = await commandLine(words);
    expect(code, err).toBe(0);
    expect(err).toBe("automap: the model has f16, which is computed in f32 here: input x converted\n");
    expect(JSON.parse(out)).toMatchObject({
      proof: "right: 1 steps",
      widened: { constants: 0, inputs: ["x"], outputs: [] },
    });
  });
});

describe("two networks in one program", () => {
  it("are named after their files, and share no symbol", async () => {
    const files = ["2 add.onnx", "class.onnx"];
    const names = ["network_2_add", "network_class"];
    for (const [i, file] of files.entries()) {
      // Exporters call most networks the same.
      const net = new GraphBuilder("main_graph");
      const x = net.input("x", [4, 4]);
      const weights = net.constant("w", [4, 4], new Float32Array(16).fill(i + 1));
      net.output(net.node("Relu", [net.node("MatMul", [x, weights])]));
      writeFileSync(at(file), onnxBytes(net.graph));
      const words = ["network", "emit", at(file), "--threads", String(i + 1), "--to", at(`linked${i}`), "--json"];
      const { code, out, err } = await commandLine(words);
      expect(code, err).toBe(0);
      expect(JSON.parse(out)).toMatchObject({ name: names[i] });
    }
    writeFileSync(
      at("both.cpp"),
      `#include "linked0/network_2_add.h"
#include "linked1/network_class.h"
#include <stdio.h>
int main() {
  float x[16], a[16], b[16];
  for (int i = 0; i < 16; i++) x[i] = i;
  network_2_add_net* first;
  network_class_net* second;
  if (network_2_add_create(&first, 0) || network_class_create(&second, 0)) return 1;
  if (network_2_add_run(first, x, a) || network_class_run(second, x, b)) return 1;
  network_2_add_destroy(first);
  network_class_destroy(second);
  printf("%g %g %g %g\\n", a[0], a[15], b[0], b[15]);
}
`,
    );
    const compiler = await compilerHere();
    const objects: string[] = [];
    for (const i of [0, 1]) {
      const build = join(at(`linked${i}`), "build.sh");
      expect(await runChild(["sh", build], { timeLimitMs: 900_000 })).toMatchObject({ status: "ok" });
      const built = join(at(`linked${i}`), "build");
      objects.push(...readdirSync(built).flatMap((name) => (name.endsWith(".o") ? [join(built, name)] : [])));
    }
    const linked = [...compiler.command, "-pthread", at("both.cpp"), ...objects, "-o", at("both")];
    expect(await runChild(linked, { timeLimitMs: 900_000 })).toMatchObject({ status: "ok" });
    const ran = await runChild([at("both")], { timeLimitMs: 900_000 });
    expect(ran).toMatchObject({ status: "ok", stdout: "6 54 12 108\n" });
  });
});
