/**
 * @file Checks the packages with a compiled part, which `npm ci --ignore-scripts` or another version of Node can make unusable.
 *
 *     for (const finding of await examineNatives()) console.log(finding.status, finding.subject);
 *     const koffi = await loadKoffi();
 */

import { EnvironmentError, type EnvironmentProblem, MachineFault, messageOf } from "../abstraction/error.ts";
import { openDatabase } from "../db/index.ts";
import type { Finding } from "../runtime/doctor.ts";

/** Loads koffi, which calls compiled kernels from Node. @throws EnvironmentError when it cannot be loaded */
export async function loadKoffi(): Promise<typeof import("koffi")["default"]> {
  const { default: koffi } = await import("koffi").catch((error: unknown) => {
    throw new EnvironmentError(
      {
        what: `koffi cannot be loaded: ${firstLine(error)}`,
        why: "it calls the compiled kernel from Node",
        remedy: "npm rebuild koffi, on a platform it supports (koffi.dev)",
      },
      error,
    );
  });
  return koffi;
}

/** Whether both packages can be used. */
export async function examineNatives(): Promise<readonly Finding[]> {
  return [
    await examined("better-sqlite3", "databases are read and written with it", () => openDatabase(":memory:").close()),
    await examined("koffi", "it calls compiled kernels from Node", loadKoffi),
  ];
}

async function examined(subject: string, why: string, use: () => unknown): Promise<Finding> {
  try {
    await use();
    return { subject, status: "ok", detail: "loaded", why };
  } catch (error) {
    if (!(error instanceof MachineFault)) throw error;
    const problem: Partial<EnvironmentProblem> = error instanceof EnvironmentError ? error.problem : {};
    return {
      subject,
      status: "missing",
      why: problem.why ?? why,
      detail: problem.what ?? firstLine(error),
      remedy: problem.remedy ?? `npm rebuild ${subject}`,
    };
  }
}

function firstLine(error: unknown): string {
  return messageOf(error).split("\n", 1)[0] ?? "";
}
