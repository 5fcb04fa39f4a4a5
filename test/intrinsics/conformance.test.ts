import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { wrap } from "../../abstraction/dtype.ts";
import type { Values } from "../../abstraction/evaluate.ts";
import { defineIntrinsic, type Intrinsic, operandOf } from "../../abstraction/intrinsic.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { shortBits, shortValue } from "../../abstraction/short-floats.ts";
import { code } from "../../abstraction/source-text.ts";
import { INTRINSICS, intrinsicsNamed } from "../../intrinsics/index.ts";
import { encodeElements } from "../../runtime/bytes.ts";
import { explainRun, findProgram, runChild } from "../../runtime/child.ts";
import { casesOf, checkIntrinsics, rowFunction } from "../../runtime/conformance.ts";
import { compilerFlags, declareRegister, hasFeature, nativeTarget } from "../../targets/index.ts";
import { cachesInCpuInfo, machineFrom, parseCache, parseCpuInfo } from "../../targets/native.ts";
import { cudaConformanceSource } from "../support/cuda-conformance.ts";
import { textOf } from "../support/source.ts";
import { rowNamed } from "../support/subjects.ts";

test("the cases of a row are drawn and computed as the golden file says", async () => {
  const few = (values: Values): string => Array.from(values.slice(0, 6), (x) => `${x}`).join(" ");
  const told = ["avx512.vpdpbusd", "avx512.fma.f32", "mma.m16n8k16.f32.f16"].flatMap((name) => {
    const cases = casesOf(rowNamed(name), seededRandom(1));
    return cases.flatMap(({ label, operands, expected, bound }) => [
      `${name}, ${label}`,
      ...Object.entries(operands).map(([operand, values]) => `  ${operand} ${few(values)}`),
      `  gives ${few(expected)}${bound ? `, within ${few(bound)}` : ""}`,
    ]);
  });
  await expect(`${told.join("\n")}\n`).toMatchFileSnapshot("../golden/conformance-cases.txt");
});

describe("the program that proves rows", () => {
  test("holds each row's own text", () => {
    expect(textOf(rowFunction(rowNamed("avx512.vpdpbusd"), code`row_0`))).toMatchInlineSnapshot(`
      "// avx512.vpdpbusd: c[n] += s32(a[k]) * s32(b[k,n])
      #line 1 "avx512.vpdpbusd"
      static void row_0(unsigned char* frame) {
        __m512i c;
        __m512i a;
        __m512i b;
        c = _mm512_loadu_si512(frame + 0);
        record(frame + 64, &c, sizeof c);
        a = _mm512_broadcastd_epi32(_mm_loadu_si32(frame + 4224));
        record(frame + 4288, &a, sizeof a);
        b = _mm512_loadu_si512(frame + 8448);
        record(frame + 8512, &b, sizeof b);
        c = dot_bytes(c, a, b);
        _mm512_storeu_si512(frame + 0, c);
      }
      "
    `);
    expect(textOf(rowFunction(rowNamed("mma.m16n8k16.f32.f16"), code`row_1`))).toMatchInlineSnapshot(`
      "// mma.m16n8k16.f32.f16: c[m,n] += f32(a[m,k]) * f32(b[k,n])
      #line 1 "mma.m16n8k16.f32.f16"
      __global__ void row_1(unsigned char* frame) {
        float c[4];
        unsigned a[4];
        unsigned b[2];
        load_fragment(c, frame + 0);
        record_lane(frame + 512, &c, sizeof c);
        load_fragment(a, frame + 4672);
        record_lane(frame + 5184, &a, sizeof a);
        load_fragment(b, frame + 9344);
        record_lane(frame + 9600, &b, sizeof b);
        mma_m16n8k16_f32_f16(c, a, b);
        store_fragment(frame + 0, c);
      }
      "
    `);
    expect(textOf(rowFunction(rowNamed("amx.tdpbf16ps"), code`row_2`))).toMatchInlineSnapshot(`
      "// amx.tdpbf16ps: c[m,n] += f32(a[m,k]) * f32(b[k,n])
      #line 1 "amx.tdpbf16ps"
      static void row_2(unsigned char* frame) {
        amx_begin();
        asm volatile("" ::: "memory"); _tile_loadd(0, frame + 0, 64);
        record_tile(frame + 1024, 0);
        asm volatile("" ::: "memory"); _tile_loadd(1, frame + 5184, 64);
        record_tile(frame + 6208, 1);
        asm volatile("" ::: "memory"); _tile_loadd(2, frame + 10368, 64);
        record_tile(frame + 11392, 2);
        _tile_dpbf16ps(0, 1, 2);
        _tile_stored(0, frame + 0, 64); asm volatile("" ::: "memory");
      }
      "
    `);
  });

  test("declares every register of every row", () => {
    for (const row of INTRINSICS)
      if (row.language !== "none") for (const operand of row.operands) declareRegister(row, operand, code`x`);
    const wmma = rowNamed("wmma.m32n8k16.f32.bf16");
    expect(textOf(declareRegister(wmma, operandOf(wmma, "b"), code`b`))).toBe(
      "wmma::fragment<wmma::matrix_b, 32, 8, 16, __nv_bfloat16, wmma::row_major> b;",
    );
  });

  test("for CUDA stands alone", () => {
    const source = cudaConformanceSource(intrinsicsNamed("mma.m16n8k32.s32.u8s8"), 1);
    expect(source).toContain("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}");
    expect(source).toContain("row.run<<<1, row.threads>>>(device);");
    expect([...source.matchAll(/#include "/g)]).toEqual([]);
  });

  const { isa } = nativeTarget();
  const compiler = findProgram("g++");

  test.skipIf(compiler === undefined)("survives rows that do not compile or that crash, and blames them", async () => {
    const fma = rowNamed("mali.arm_dot");
    const change = (name: string, emit: string): Intrinsic => defineIntrinsic({ ...fma.declaration, name, emit });
    const rows = [
      change("misspelt", "{c} += arm_dto({a}, {b});"),
      fma,
      change("crashing", "__builtin_trap();"),
      rowNamed("mali.arm_dot_acc"),
    ];
    const seen: string[] = [];
    const results = await checkIntrinsics(rows, { seed: 1, isa, onProgress: (r) => seen.push(r.intrinsic) });
    expect(results.map((r) => `${r.intrinsic}: ${r.status}`)).toEqual([
      "misspelt: differs",
      "mali.arm_dot: ok",
      "crashing: differs",
      "mali.arm_dot_acc: ok",
    ]);
    expect(results[0]?.detail).toMatch(/^misspelt:\d+:\d+: error: .*arm_dto/);
    expect(results[2]?.detail).toMatch(/was killed by SIG(ILL|TRAP)$/);
    expect(seen.sort()).toEqual(rows.map((r) => r.name).sort());
  });

  test("says which compiler is missing", async () => {
    const [result] = await checkIntrinsics([rowNamed("mali.arm_dot")], { seed: 1, isa, compiler: "no-such-compiler" });
    expect(result).toEqual({
      intrinsic: "mali.arm_dot",
      status: "skipped",
      how: "emulation",
      cases: 0,
      missing: "no compiler: no-such-compiler",
    });
  });

  test.skipIf(compiler === undefined)("keeps the generated sources in a given folder", async () => {
    const folder = mkdtempSync(join(tmpdir(), "automap-test-"));
    try {
      await checkIntrinsics([rowNamed("mali.arm_dot")], { seed: 1, isa, workdir: folder });
      expect(readFileSync(join(folder, "mali-emulation.cpp"), "utf8")).toContain(
        "c = as_int(as_uint(c) + as_uint(arm_dot(a, b)));",
      );
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  test("asks the compiler for the features at hand only", () => {
    expect(compilerFlags(["fma", "avx512_vnni"])).toEqual([
      "-mavx2",
      "-mfma",
      "-mavx512f",
      "-mavx512bw",
      "-mavx512vl",
      "-mavx512dq",
      "-mavx512vnni",
    ]);
    expect(compilerFlags(["i8mm", "asimddp"])).toEqual(["-march=armv8.2-a+simd+dotprod+i8mm"]);
    expect(compilerFlags(["asimd"])).toEqual(["-march=armv8-a+simd"]);
  });
});

describe("elements as bytes", () => {
  test("every f16 and every bf16 that is a number reads back", () => {
    for (const dtype of ["f16", "bf16"] as const) {
      for (let bits = 0; bits < 0x10000; bits++) {
        const value = shortValue(dtype, bits);
        if (Number.isNaN(value)) continue;
        if (wrap(dtype, value) !== value) throw new Error(`${dtype} ${bits} decodes to ${value}`);
        if (shortBits(dtype, value) !== bits) throw new Error(`${dtype} ${bits} does not read back`);
      }
    }
  });

  test("lie little-endian, one after another", () => {
    expect([...encodeElements("s32", [1, -2])]).toEqual([1, 0, 0, 0, 254, 255, 255, 255]);
    expect([...encodeElements("bf16", [1.5])]).toEqual([0xc0, 0x3f]);
    expect([...encodeElements("f16", [65504, -0])]).toEqual([0xff, 0x7b, 0, 0x80]);
  });
});

describe("a child process", () => {
  test("that fails, crashes, hangs or does not exist is a status with its output", async () => {
    const run = (script: string, timeLimitMs = 900_000) => runChild(["sh", "-c", script], { timeLimitMs });
    expect(await run("echo out; echo err >&2")).toMatchObject({ status: "ok", stdout: "out\n", stderr: "err\n" });
    expect(explainRun(await run("exit 3"))).toBe("sh exited with 3");
    expect(explainRun(await run("kill -SEGV $$"))).toBe("sh was killed by SIGSEGV");
    expect(explainRun(await run("sleep 1000 & sleep 1000", 300))).toBe("sh ran longer than 0.3 s");
    expect(explainRun(await runChild(["/no/such/program"], { timeLimitMs: 900_000 }))).toMatch(
      /^\/no\/such\/program did not start: .*ENOENT/,
    );
  });
});

describe("this machine as a target", () => {
  // Recorded on the machine this was written on, 2026-11-21; the second processor shortened to its first line.
  const EPYC = `processor	: 0
vendor_id	: AuthenticAMD
cpu family	: 26
model name	: AMD EPYC
cache size	: 1024 KB
flags		: fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse sse2 ht syscall nx mmxext fxsr_opt pdpe1gb rdtscp lm constant_tsc rep_good nopl xtopology nonstop_tsc cpuid extd_apicid tsc_known_freq pni pclmulqdq ssse3 fma cx16 pcid sse4_1 sse4_2 x2apic movbe popcnt tsc_deadline_timer aes xsave avx f16c rdrand hypervisor lahf_lm cmp_legacy cr8_legacy abm sse4a misalignsse 3dnowprefetch osvw topoext vmmcall fsgsbase tsc_adjust bmi1 avx2 smep bmi2 erms invpcid avx512f avx512dq adx smap avx512ifma clflushopt clwb avx512cd sha_ni avx512bw avx512vl xsaveopt xsavec xgetbv1 xsaves avx_vnni avx512_bf16 clzero xsaveerptr arat avx512vbmi umip avx512_vbmi2 gfni vaes vpclmulqdq avx512_vnni avx512_bitalg avx512_vpopcntdq rdpid fsrm avx512_vp2intersect
bogomips	: 5192.24

processor	: 1
`;
  // The lines that count, in the forms in which Linux writes them for the reference Xeon and for an Arm server.
  const XEON =
    "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Processor\nflags\t\t: fma avx2 avx512f avx512dq avx512bw avx512vl avx_vnni avx512_bf16 avx512_vnni amx_bf16 avx512_fp16 amx_tile amx_int8\n";
  const NEOVERSE =
    "processor\t: 0\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd evtstrm aes asimdhp asimddp sve i8mm bf16\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n";

  test("is read from the files of the Linux kernel", () => {
    expect(parseCpuInfo(EPYC)).toEqual({
      name: "AMD EPYC",
      isa: ["avx2", "fma", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16"],
      processors: 2,
    });
    expect(parseCpuInfo(XEON).isa).toEqual(
      expect.arrayContaining(["avx512_vnni", "avx512_fp16", "amx_int8", "amx_bf16"]),
    );
    expect(parseCpuInfo(NEOVERSE, 32)).toEqual({
      name: "Arm Neoverse V1",
      isa: ["asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve128", "sve256"],
      processors: 1,
    });
    // A system that gives programs vectors of 128 bits only; a core that nobody named here.
    expect(parseCpuInfo(NEOVERSE).isa.at(-1)).toBe("sve128");
    expect(parseCpuInfo(NEOVERSE.replace("0xd40", "0xfff")).name).toBe("Arm part 0xfff of implementer 0x41");
    expect(parseCpuInfo("")).toEqual({ name: "unknown CPU", isa: [], processors: 0 });
    // The first Xeon Phi: kernels are compiled for all of AVX-512 that servers have.
    expect(parseCpuInfo("flags\t: fma avx2 avx512f avx512cd avx512er avx512pf\n").isa).toEqual(["avx2", "fma"]);
  });

  test("names features as the table does", () => {
    const words = new Set(INTRINSICS.filter((row) => row.language === "c++").map((row) => row.isa));
    const known = new Set([XEON, NEOVERSE].flatMap((text) => parseCpuInfo(text, 64).isa));
    expect([...words].filter((word) => !hasFeature({ isa: [...known] }, word))).toEqual([]);
  });

  test("has its caches as levels, and no rate that nobody measured", () => {
    const caches = [
      parseCache("1", "Data", "48K\n", "0"),
      parseCache("1", "Instruction", "32K\n", "0"),
      parseCache("2", "Unified", "1024K\n", "0"),
      parseCache("3", "Unified", "32768K\n", "0-1"),
    ].filter((cache) => cache !== undefined);
    expect(machineFrom(parseCpuInfo(EPYC), caches).levels).toEqual([
      { name: "dram", units: 1 },
      { name: "l3", units: 1, bytes: 32 * 1024 * 1024 },
      { name: "l2", units: 2, bytes: 1024 * 1024 },
      { name: "l1", units: 1, bytes: 48 * 1024 },
      { name: "registers", units: 1 },
    ]);
  });

  test("has the second level that /proc/cpuinfo tells of an AMD CPU, where no cache is listed", () => {
    const told = (vendor: string): string =>
      `processor\t: 0\nvendor_id\t: ${vendor}\nmodel\t: 17\ncache size\t: 1024 KB\n`;
    expect(cachesInCpuInfo(told("AuthenticAMD"), 2)).toEqual([
      { level: 3, bytes: 32 * 1024 * 1024, sharedBy: 2 },
      { level: 2, bytes: 1024 * 1024, sharedBy: 1 },
      { level: 1, bytes: 48 * 1024, sharedBy: 1 },
    ]);
    expect(cachesInCpuInfo(told("GenuineIntel"), 2)).toEqual([]);
  });
});
