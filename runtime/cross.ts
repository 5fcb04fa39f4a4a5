/**
 * @file Tools for Arm kernels on other machines: a compiler for AArch64, its disassembler, and qemu, which runs the
 * result.
 *
 *     const tools = await findArmTools();
 *     tools.status === "found" && tools.emulator       ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-cpu", "max"]
 *
 * qemu shows whether a kernel is right. It says nothing about speed.
 */

import { existsSync } from "node:fs";
import { arch } from "node:os";
import { present } from "../abstraction/collections.ts";
import type { EnvironmentProblem } from "../abstraction/error.ts";
import { findProgram, runChild } from "./child.ts";
import { type Compiler, findCompiler } from "./compiler.ts";

export const ARM_COMPILER = "aarch64-linux-gnu-g++";
export const ARM_EMULATOR = "qemu-aarch64";
const ARM_DISASSEMBLER = "aarch64-linux-gnu-objdump";
/** Sysroots of cross compilers on Debian and Fedora. */
const SYSROOTS = ["/usr/aarch64-linux-gnu", "/usr/aarch64-linux-gnu/sys-root"];
/** All of qemu's features, with 256-bit vectors. */
export const ARM_CPU = ["-cpu", "max,sve-default-vector-length=256"];

/** Tools that compile and run code for Arm, native on an Arm machine. */
export interface ArmTools {
  readonly status: "found";
  readonly compiler: Compiler;
  /** The disassembler for its code; by default the native one. */
  readonly disassembler?: string;
  /** The program and leading arguments that run a binary; empty on an Arm machine. */
  readonly emulator: readonly string[];
  /** `qemu-aarch64 7.2.17`; undefined on an Arm machine. */
  readonly emulatorVersion?: string;
}

const PROBLEM = {
  why: "kernels for Arm are compiled here, and run under an emulator of its instructions",
  remedy: "apt-get install g++-aarch64-linux-gnu qemu-user; --model-only needs neither",
} as const;

/** The tools, or what to install. @param path where to look for them; by default the PATH */
export async function findArmTools(path: string = process.env["PATH"] ?? ""): Promise<ArmTools | EnvironmentProblem> {
  if (arch() === "arm64") {
    const compiler = await findCompiler();
    return compiler.status === "found" ? { status: "found", compiler, emulator: [] } : compiler;
  }
  const [compiler, emulator, disassembler] = [ARM_COMPILER, ARM_EMULATOR, ARM_DISASSEMBLER].map((name) =>
    findProgram(name, path),
  );
  const missing = present([!compiler && ARM_COMPILER, !emulator && ARM_EMULATOR]);
  if (!compiler || !emulator)
    return { status: "environment", what: `no ${missing.join(" and no ")} on the PATH`, ...PROBLEM };
  const [version, emulated] = await Promise.all([versionOf(compiler), versionOf(emulator)]);
  if (version === undefined || emulated === undefined)
    return { status: "environment", what: `${version === undefined ? compiler : emulator} does not work`, ...PROBLEM };
  const sysroot = SYSROOTS.find((folder) => existsSync(folder));
  return {
    status: "found",
    compiler: { status: "found", command: [compiler], path: compiler, version },
    ...(disassembler !== undefined && { disassembler }),
    emulator: [emulator, ...(sysroot === undefined ? [] : ["-L", sysroot]), ...ARM_CPU],
    emulatorVersion: `${ARM_EMULATOR} ${/version ([\w.]+)/.exec(emulated)?.[1] ?? emulated}`,
  };
}

async function versionOf(program: string): Promise<string | undefined> {
  const run = await runChild([program, "--version"], { timeLimitMs: 10_000 });
  const [line = ""] = run.stdout.split("\n", 1);
  return run.status === "ok" && line !== "" ? line : undefined;
}
