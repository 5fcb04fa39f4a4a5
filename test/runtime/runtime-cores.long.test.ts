/**
 * @file Locks and cores between processes: a dead process holds none, no work runs on a measuring core, no process
 * starves.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { shareCores } from "../../runtime/cores.ts";
import { type Lock, tryLock, untilFree } from "../../runtime/lock.ts";
import type { Core } from "../../runtime/processor.ts";
import { compileProgram } from "../support/program.ts";
import { scratchFolder } from "../support/scratch.ts";

const folder = scratchFolder();
const children: ChildProcess[] = [];
beforeAll(() => {
  compileProgram(folder, ["runtime/cores.ts"]);
});
afterEach(() => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
  vi.useRealTimers();
});

let realms = 0;
/** A name that no other test or process uses. */
const newRealm = (): string => `test-${process.pid}-${realms++}/`;

/** A process that runs a script; its lines as they come. */
function run(script: string): {
  readonly child: ChildProcess;
  readonly said: (line: RegExp) => Promise<string>;
  /** What {@link UNTIL_TOLD} waits for. */
  readonly tell: () => void;
} {
  const file = join(folder, `script-${children.length}-${realms}.js`);
  writeFileSync(
    file,
    `import { tryLock } from "./runtime/lock.js"; import { shareCores } from "./runtime/cores.js"; import { setTimeout } from "node:timers/promises";\n${script}`,
  );
  const child = spawn(process.execPath, [file], { stdio: ["pipe", "pipe", "inherit"] });
  children.push(child);
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text;
  });
  const said = async (line: RegExp): Promise<string> => {
    await expect.poll(() => output).toMatch(line);
    return output;
  };
  return { child, said, tell: () => child.stdin.end() };
}

const UNTIL_TOLD = `await new Promise((told) => process.stdin.on("end", told).resume());`;

const holding = (name: string): string =>
  `await tryLock(${JSON.stringify(name)}, "process " + process.pid + " measures"); console.log("held"); await setTimeout(1e9);`;

describe("a lock", () => {
  it("belongs to one process; others are told which, until it is released", async () => {
    const name = `${newRealm()}a`;
    const lock = await tryLock(name, "the first");
    expect(await tryLock(name, "the second")).toBeUndefined();
    const heard: string[] = [];
    const free = untilFree(name, { onHolder: (who) => heard.push(who) }).then(() => "free");
    await expect.poll(() => heard).toEqual(["the first"]);
    expect(lock?.isWanted()).toBe(true);
    expect(await Promise.race([free, setTimeout(50, "held")])).toBe("held");
    await lock?.release();
    expect(await free).toBe("free");
    const again = await tryLock(name, "the second");
    expect(again).toBeDefined();
    await again?.release();
  });

  it.each(["SIGKILL", "SIGTERM"] as const)("is free at once when %s ends its process", async (signal) => {
    const name = `${newRealm()}a`;
    const { child, said } = run(holding(name));
    await said(/held/);
    expect(await tryLock(name, "this test")).toBeUndefined();
    const heard: string[] = [];
    const free = untilFree(name, { onHolder: (who) => heard.push(who) });
    await expect.poll(() => heard).toEqual([`process ${child.pid} measures`]);
    child.kill(signal);
    await free;
    let lock: Lock | undefined;
    await expect.poll(async () => (lock = await tryLock(name, "this test"))).toBeDefined();
    await lock?.release();
  });

  it("of a stopped process is still held, since the process may go on", async () => {
    const name = `${newRealm()}a`;
    const { child, said } = run(holding(name));
    await said(/held/);
    child.kill("SIGSTOP");
    const free = untilFree(name).then(() => "free");
    expect(await Promise.race([free, setTimeout(200, "held")])).toBe("held");
    child.kill("SIGKILL");
    expect(await free).toBe("free");
  });

  it("held by a hostile process is reported in one short line without terminal escapes", async () => {
    const name = `${newRealm()}a`;
    const { child, said } = run(`
      import { createServer } from "node:net";
      createServer((socket) => {
        socket.on("error", () => undefined);
        socket.write("\\u001b[31m" + "x".repeat(1e6) + "\\n".repeat(10));
      }).listen("\\0automap/${name}", () => console.log("held"));`);
    await said(/held/);
    const heard: string[] = [];
    const free = untilFree(name, { onHolder: (who) => heard.push(who) });
    await expect.poll(() => heard).toHaveLength(1);
    expect(heard[0]).toMatch(/^\\u001b\[31mx{100,200}$/);
    child.kill("SIGKILL");
    await free;
    expect(heard).toHaveLength(1);
  });

  it("is waited for no longer than the given time", async () => {
    const name = `${newRealm()}a`;
    const lock = await tryLock(name, "this test");
    const controller = new AbortController();
    const wait = untilFree(name, { signal: controller.signal });
    controller.abort();
    await wait;
    await lock?.release();
    await untilFree(`${newRealm()}nobody`);
  });
});

const CORES: readonly Core[] = [0, 1, 2].map((i) => ({ name: `core ${i}`, cpus: [i, i + 4], isFastest: i < 2 }));

/** Notes who is on which processor, and whether ever two were. */
class Watch {
  readonly seen: number[][] = [];
  clashes = 0;
  private readonly taken = new Map<number, number>();

  work =
    (until: number | Promise<void>, load?: number) =>
    async (cpus: readonly number[]): Promise<{ load?: number }> => {
      this.seen.push([...cpus]);
      for (const cpu of cpus) {
        const users = (this.taken.get(cpu % 4) ?? 0) + 1;
        this.taken.set(cpu % 4, users);
        if (users > 1) this.clashes++;
      }
      await (typeof until === "number" ? setTimeout(until) : until);
      for (const cpu of cpus) this.taken.set(cpu % 4, (this.taken.get(cpu % 4) ?? 0) - 1);
      return load === undefined ? {} : { load };
    };
}

/** A promise, and what fulfils it. */
function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

describe("cores", () => {
  it("carry one measurement at a time, the fastest core first, and compilers run elsewhere", async () => {
    const realm = newRealm();
    const [a, b, c] = [0, 1, 2].map(() => shareCores({ cores: CORES, realm }));
    const watch = new Watch();
    const { opened, open } = gate();
    const first = a?.measuring(1, watch.work(opened));
    await expect.poll(() => watch.seen).toEqual([[0]]);
    const second = b?.measuring(1, watch.work(opened));
    await expect.poll(() => watch.seen).toEqual([[0], [1]]);
    const third = c?.working((cpus) => watch.work(opened)([cpus[0] ?? -1]));
    const fourth = a?.measuring(1, watch.work(10));
    await expect.poll(() => watch.seen).toEqual([[0], [1], [2]]);
    open();
    await Promise.all([first, second, third, fourth]);
    expect(watch.clashes).toBe(0);
    expect([0, 1]).toContain(watch.seen[3]?.[0]);
  });

  it("for several threads are taken all at once, so that two searches never wait for each other", async () => {
    const realm = newRealm();
    const watch = new Watch();
    const all = Array.from({ length: 6 }, (_, i) =>
      shareCores({ cores: CORES, realm }).measuring([1, 2, 3][i % 3] ?? 1, watch.work(5)),
    );
    await Promise.all(all);
    expect(watch.clashes).toBe(0);
    expect(watch.seen.map((cpus) => cpus.length).sort()).toEqual([1, 1, 2, 2, 3, 3]);
  });

  it("run threads on their second processors when there are more threads than cores", async () => {
    const watch = new Watch();
    await shareCores({ cores: CORES.slice(0, 2), realm: newRealm() }).measuring(3, async (cpus) => {
      watch.seen.push([...cpus]);
      return {};
    });
    expect(watch.seen).toEqual([[0, 1, 4]]);
  });

  it("stay the same from one measurement to the next, unless other programs used them", async () => {
    const cores = shareCores({ cores: CORES, realm: newRealm() });
    const watch = new Watch();
    await cores.measuring(1, watch.work(1));
    await cores.measuring(1, watch.work(1, 0.5));
    await cores.measuring(1, watch.work(1));
    await cores.measuring(1, watch.work(1));
    expect(watch.seen.flat()).toEqual([0, 0, 1, 1]);
  });

  it("are lent to other work as far as they are free", async () => {
    const realm = newRealm();
    const { opened, open } = gate();
    const watch = new Watch();
    const busy = shareCores({ cores: CORES, realm }).measuring(1, watch.work(opened));
    await expect.poll(() => watch.seen).toEqual([[0]]);
    const had = await shareCores({ cores: CORES, realm }).working(async (cpus) => cpus, 8);
    expect([...had].sort()).toEqual([1, 2, 5, 6]);
    open();
    await busy;
  });

  it("take as many jobs of a process at once as they have processors, and no measurement until the last has ended", async () => {
    const realm = newRealm();
    const one = CORES.slice(0, 1);
    const cores = shareCores({ cores: one, realm });
    const first = gate();
    const second = gate();
    const watch = new Watch();
    let begun = 0;
    const jobs = [first, second].map(({ opened }) =>
      cores.working(() => {
        begun++;
        return opened;
      }),
    );
    await expect.poll(() => begun).toBe(2);
    first.open();
    await jobs[0];
    const measured = shareCores({ cores: one, realm }).measuring(1, watch.work(1));
    await setTimeout(30);
    expect(watch.seen).toEqual([]);
    second.open();
    await Promise.all([jobs[1], measured]);
    expect(watch.seen).toEqual([[0]]);
  });

  it("announce a wait for another process, not for one's own, and end it on a signal", async () => {
    const realm = newRealm();
    const heard: string[] = [];
    const one = CORES.slice(0, 1);
    const other = CORES.slice(1, 2);
    const { child, said, tell } = run(
      `await shareCores({ cores: ${JSON.stringify(one)}, realm: "${realm}" }).measuring(1, async () => { console.log("held"); ${UNTIL_TOLD} return {}; });`,
    );
    await said(/held/);
    const controller = new AbortController();
    const stopped = shareCores({ cores: one, realm, signal: controller.signal }).measuring(1, new Watch().work(1));
    const waiting = shareCores({ cores: one, realm, onWait: (text) => heard.push(text) });
    const waited = waiting.measuring(1, new Watch().work(1));
    const own = shareCores({ cores: other, realm, onWait: (text) => heard.push(text) });
    const { opened, open } = gate();
    const both = [own.measuring(1, new Watch().work(opened)), own.measuring(1, new Watch().work(1))];
    await setTimeout(100);
    controller.abort();
    await expect(stopped).rejects.toThrow("waiting for a core was stopped");
    await expect.poll(() => heard).toHaveLength(1);
    // Long enough for the other wait to be spoken of, were it.
    await setTimeout(300);
    open();
    tell();
    await Promise.all([waited, ...both]);
    expect(heard).toEqual([`waiting for a free core: process ${child.pid} measures on core 0`]);
    expect(waiting.waited()).toBeGreaterThan(1);
    expect(own.waited()).toBe(0);
  });

  it("go to a waiting process before the last holder takes them again", async () => {
    // This clock stands still, so that no time passes in which the first may come back.
    vi.useFakeTimers({ toFake: ["performance"] });
    const realm = newRealm();
    const cores = shareCores({ cores: CORES.slice(0, 1), realm });
    const watch = new Watch();
    const { opened, open } = gate();
    const first = cores.measuring(1, watch.work(opened));
    await expect.poll(() => watch.seen).toHaveLength(1);
    const heard: string[] = [];
    const free = untilFree(`${realm}core 0`, { onHolder: (who) => heard.push(who) });
    await expect.poll(() => heard).toHaveLength(1);
    open();
    await first;
    const again = cores.measuring(1, watch.work(1));
    await free;
    let lock: Lock | undefined;
    await expect.poll(async () => (lock = await tryLock(`${realm}core 0`, "this test"))).toBeDefined();
    expect(watch.seen).toHaveLength(1);
    await lock?.release();
    vi.advanceTimersByTime(1000);
    await again;
    expect(watch.seen).toHaveLength(2);
  });

  it("may be devices: one search at a time measures on each, and the others name what they wait for", async () => {
    const realm = newRealm();
    const heard: string[] = [];
    const gpu = { name: "gpu GPU-7c1e", cpus: [], isFastest: true };
    const { child, said, tell } = run(
      `await shareCores({ cores: ${JSON.stringify([gpu])}, realm: "${realm}" }).measuring(1, async () => { console.log("held"); ${UNTIL_TOLD} return {}; });`,
    );
    await said(/held/);
    const waiting = shareCores({ cores: [gpu], realm, what: "GPU", onWait: (text) => heard.push(text) });
    const measured = waiting.measuring(1, async (cpus) => ({ cpus }));
    await expect.poll(() => heard).toHaveLength(1);
    tell();
    expect(await measured).toEqual({ cpus: [] });
    expect(heard).toEqual([`waiting for a free GPU: process ${child.pid} measures on gpu GPU-7c1e`]);
    expect(waiting.waited()).toBeGreaterThan(1);
  });

  it("may be many, with many processes waiting", async () => {
    const many = Array.from({ length: 12 }, (_, i) => ({ name: `core ${i}`, cpus: [i], isFastest: true }));
    const realm = newRealm();
    const warnings: string[] = [];
    const onWarning = ({ message }: Error): void => void warnings.push(message);
    process.on("warning", onWarning);
    const { signal } = new AbortController();
    const { opened, open } = gate();
    const watch = new Watch();
    const busy = shareCores({ cores: many, realm }).measuring(12, watch.work(opened));
    await expect.poll(() => watch.seen).toHaveLength(1);
    const waiting = shareCores({ cores: many, realm, signal });
    const all = many.map(() => waiting.working(async () => undefined));
    await setTimeout(40);
    open();
    await Promise.all([...all, busy]);
    process.off("warning", onWarning);
    expect(warnings).toEqual([]);
  });

  it("of a killed holder go to a waiting process, and several processes take turns", async () => {
    const realm = newRealm();
    const one = JSON.stringify(CORES.slice(0, 1));
    const { child, said } = run(
      `await shareCores({ cores: ${one}, realm: "${realm}" }).measuring(1, async () => { console.log("held"); await setTimeout(1e9); return {}; });`,
    );
    await said(/held/);
    const turns = join(folder, `turns-${realms}`);
    writeFileSync(turns, "");
    // Goes on until the other has had a turn: it never ends where one has them all.
    const script = (name: string, other: string): string => `
      import { appendFileSync, readFileSync } from "node:fs";
      const cores = shareCores({ cores: ${one}, realm: "${realm}" });
      console.log("waits");
      for (let i = 0; i < 10 || !readFileSync("${turns}", "utf8").includes("${other}"); i++) await cores.measuring(1, async () => { appendFileSync("${turns}", "${name}"); await setTimeout(5); return {}; });
      console.log("done");`;
    const takers = [run(script("a", "b")), run(script("b", "a"))];
    for (const taker of takers) await taker.said(/waits/);
    await setTimeout(300);
    expect(readFileSync(turns, "utf8")).toBe("");
    child.kill("SIGKILL");
    for (const taker of takers) await taker.said(/done/);
    expect(readFileSync(turns, "utf8").length).toBeGreaterThanOrEqual(20);
  });
});
