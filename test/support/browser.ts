/**
 * @file A real browser for tests, driven through its pipe of JSON: no port, no profile that stays, no package.
 *
 *     const page = await openPage(browser, "/tmp/report.html", { width: 400, dark: true })
 *     await page.evaluate("document.title")
 */

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";
import { z } from "zod";

/** Where one is found; undefined where none is. */
export const BROWSER = ["chromium", "chromium-browser", "google-chrome"].find(
  (name) => spawnSync(name, ["--version"], { stdio: "ignore" }).status === 0,
);

const message = z.object({
  id: z.number().optional(),
  method: z.string().optional(),
  sessionId: z.string().optional(),
  params: z.unknown().optional(),
  result: z.unknown().optional(),
  error: z.object({ message: z.string() }).optional(),
});
type Message = z.infer<typeof message>;

export class Browser {
  readonly #child: ChildProcess;
  readonly #profile = mkdtempSync(join(tmpdir(), "automap-browser-"));
  readonly #waiting = new Map<number, (answer: Message) => void>();
  readonly #listeners = new Set<(event: Message) => void>();
  readonly #out: Writable;
  #next = 1;

  constructor(command: string) {
    const options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"];
    this.#child = spawn(command, [...options, `--user-data-dir=${this.#profile}`, "about:blank"], {
      stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"],
    });
    const [, , , out, back] = this.#child.stdio;
    if (!(out instanceof Writable) || !(back instanceof Readable)) throw new Error("no pipe to the browser");
    this.#out = out;
    let text = "";
    back.setEncoding("utf8").on("data", (chunk: string) => {
      const parts = (text + chunk).split("\0");
      text = parts.pop() ?? "";
      for (const part of parts) this.#take(message.parse(JSON.parse(part)));
    });
  }

  #take(answer: Message): void {
    if (answer.id === undefined) for (const listener of this.#listeners) listener(answer);
    else this.#waiting.get(answer.id)?.(answer);
  }

  listen(listener: (event: Message) => void): void {
    this.#listeners.add(listener);
  }

  /** One command of the Chrome DevTools Protocol. */
  async send(method: string, params: object = {}, sessionId?: string): Promise<unknown> {
    const id = this.#next++;
    const answer = await new Promise<Message>((resolve) => {
      this.#waiting.set(id, resolve);
      this.#out.write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    });
    this.#waiting.delete(id);
    if (answer.error) throw new Error(`${method}: ${answer.error.message}`);
    return answer.result;
  }

  async close(): Promise<void> {
    const gone = new Promise((resolve) => this.#child.once("exit", resolve));
    this.#out.write(`${JSON.stringify({ id: 0, method: "Browser.close" })}\0`);
    await gone;
    rmSync(this.#profile, { recursive: true, force: true, maxRetries: 5 });
  }
}

export interface Page {
  /** What the page complained of: errors, and what its content policy refused. */
  readonly complaints: readonly string[];
  /** The value of an expression, as JSON has it. */
  readonly evaluate: (expression: string) => Promise<unknown>;
  readonly press: (key: "Enter" | "Tab") => Promise<void>;
  /** One command of the Chrome DevTools Protocol, to this page. */
  readonly send: (method: string, params?: object) => Promise<unknown>;
}

const CODES = {
  Enter: { code: "Enter", windowsVirtualKeyCode: 13, text: "\r" },
  Tab: { code: "Tab", windowsVirtualKeyCode: 9 },
};

/** @param place a file, or an address */
export async function openPage(
  browser: Browser,
  place: string,
  { width, dark = false, paper = false }: { readonly width: number; readonly dark?: boolean; readonly paper?: boolean },
): Promise<Page> {
  const { targetId } = z
    .object({ targetId: z.string() })
    .parse(await browser.send("Target.createTarget", { url: "about:blank" }));
  const { sessionId } = z
    .object({ sessionId: z.string() })
    .parse(await browser.send("Target.attachToTarget", { targetId, flatten: true }));
  const send = (method: string, params?: object): Promise<unknown> => browser.send(method, params, sessionId);
  const complaints: string[] = [];
  const loaded = new Promise<void>((resolve) => {
    browser.listen((event) => {
      if (event.sessionId !== sessionId) return;
      if (event.method === "Page.loadEventFired") resolve();
      if (event.method === "Runtime.exceptionThrown" || event.method === "Log.entryAdded")
        complaints.push(JSON.stringify(event.params));
    });
  });
  for (const domain of ["Page", "Runtime", "Log"]) await send(`${domain}.enable`);
  await send("Emulation.setDeviceMetricsOverride", { width, height: 900, deviceScaleFactor: 1, mobile: false });
  await send("Emulation.setEmulatedMedia", {
    media: paper ? "print" : "screen",
    features: [{ name: "prefers-color-scheme", value: dark ? "dark" : "light" }],
  });
  await send("Page.navigate", { url: place.startsWith("http:") ? place : pathToFileURL(place).href });
  await loaded;
  const evaluated = z.object({
    result: z.object({ value: z.unknown().optional() }),
    exceptionDetails: z.unknown().optional(),
  });
  return {
    complaints,
    send,
    evaluate: async (expression) => {
      const { result, exceptionDetails } = evaluated.parse(
        await send("Runtime.evaluate", { expression, returnByValue: true, awaitPromise: true }),
      );
      if (exceptionDetails !== undefined) throw new Error(JSON.stringify(exceptionDetails));
      return result.value;
    },
    press: async (key) => {
      await send("Input.dispatchKeyEvent", { type: "keyDown", key, ...CODES[key] });
      await send("Input.dispatchKeyEvent", { type: "keyUp", key, ...CODES[key] });
    },
  };
}
