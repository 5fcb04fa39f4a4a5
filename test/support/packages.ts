/**
 * @file Kernels to emit and load, made without a search: the plainest schedule of the first mapping that this machine
 * can run.
 */

import type { MappedCandidate, WindowCandidate } from "../../abstraction/candidate.ts";
import { candidateKey } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { printExpr } from "../../abstraction/expression.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import type { Environment } from "../../db/index.ts";
import { openDatabase, recordTrial } from "../../db/index.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { plainSchedule, unschedulable } from "../../mapper/schedule/mapped.ts";
import { type EmitSubject, packageName } from "../../package/index.ts";
import { nativeIntrinsics } from "../../session/kinds/choose.ts";
import { generate } from "../../session/kinds/mapping-kind.ts";
import { measured } from "./database.ts";
import { mappingsOnto } from "./subjects.ts";
import { windowSchedule } from "./window.ts";

export interface Plain {
  readonly candidate: MappedCandidate;
  readonly mapping: Mapping;
  readonly kernel: Kernel;
}

/** Instructions of this processor, and plain C++ for products that it has none for. */
const anyHere = (): readonly Intrinsic[] => [
  ...nativeIntrinsics(),
  ...intrinsicsNamed("portable").filter(({ name }) => /^portable\.(mla|dot|scalar|inner)/.test(name)),
];

/** A candidate of the first of these instructions that the computation maps onto; undefined when it maps onto none. */
export function plainCandidate(
  computation: Computation,
  intrinsics: readonly Intrinsic[] = anyHere(),
  threads = 1,
): Omit<Plain, "kernel"> | undefined {
  for (const intrinsic of intrinsics) {
    const mapping = mappingsOnto(computation, intrinsic).find((m) => unschedulable(m) === undefined);
    if (!mapping) continue;
    const operands = Object.fromEntries(Object.entries(mapping.binding).map(([o, bound]) => [o, printExpr(bound)]));
    const { matching } = mapping;
    return {
      candidate: {
        kind: "mapping",
        intrinsic: intrinsic.name,
        matching,
        operands,
        schedule: plainSchedule(mapping, threads),
      },
      mapping,
    };
  }
  return undefined;
}

/** A kernel of the computation for this machine; undefined when nothing maps. */
export function plainKernel(computation: Computation, threads = 1): Plain | undefined {
  const plain = plainCandidate(computation, anyHere(), threads);
  return plain && { ...plain, kernel: generate(plain.candidate, plain.mapping) };
}

export function subjectFor(computation: Computation, threads = 1): EmitSubject {
  const plain = plainKernel(computation, threads);
  return {
    name: packageName(computation.name),
    computation,
    threads,
    provenance: [plain ? `candidate ${candidateKey(plain.candidate)}` : "nothing maps"],
    ...(plain && { tuned: plain.kernel }),
  };
}

/** A database that holds the plain kernel of a computation as a measured record. @returns its id */
export function recordPlain(
  file: string,
  computation: Computation,
  environment: Environment,
  intrinsics: readonly Intrinsic[] = anyHere(),
): string {
  const plain = plainCandidate(computation, intrinsics);
  if (!plain) throw new Error(`nothing maps ${computation.name} here`);
  const db = openDatabase(file);
  try {
    return recordTrial(db, {
      workload: { computation },
      environment,
      intrinsic: plain.mapping.intrinsic,
      trial: {
        candidate: plain.candidate,
        prediction: undefined,
        measurement: measured(12),
        at: Date.UTC(2026, 10, 21),
      },
      conditions: { threads: 1, cache: "warm" },
    });
  } finally {
    db.close();
  }
}

/** A design on lanes, of signals filtered by up to 16 taps. */
export const LANES: WindowCandidate = {
  kind: "window",
  intrinsic: "avx512.fma.f32",
  schedule: windowSchedule({ dataflow: "SBM", vectors: 2 }),
};
