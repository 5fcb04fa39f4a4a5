/**
 * Calls a built package from Node: checks every array before C sees it, and nothing twice.
 *
 *     const kernel = bind(koffi, "build/libconv2d.so", description);
 *     kernel.run(input, weight, output);
 *
 * An array that was checked is recognised by identity, so that a call with the arrays of the call before costs what C costs.
 */

const CODES = { best: 0, tuned: 1, portable: 2 };
/** an Int8Array, a Uint8Array */
const article = (type) => `${/^[AEIO]/.test(type) ? "an" : "a"} ${type}`;
const CHOSEN = ["", "tuned", "portable"];

/** A caller's mistake: what, why, and what would be right. */
export class KernelError extends TypeError {
  /** @param {string} message @param {string} hint */
  constructor(message, hint) {
    super(`${message}\n  ${hint}`);
    this.name = "KernelError";
  }
}

/** See binding.d.ts. */
export function bind(koffi, file, description, options = {}) {
  const { name, parameters } = description;
  const wanted = options.implementation ?? "best";
  if (!Object.hasOwn(CODES, wanted))
    throw new KernelError(`${name}: no implementation "${wanted}"`, `it is one of ${Object.keys(CODES).join(", ")}`);

  // 1. The library, and a plan for the code that this CPU can run.
  const library = koffi.load(file);
  const pointers = (count) => Array(count).fill("void *");
  const constants = parameters.filter((p) => p.role === "constant");
  const fleeting = parameters.filter((p) => p.role !== "constant");
  const native = {
    create: library.func(`${name}_create`, "int", [koffi.out(koffi.pointer("void *")), "int"]),
    destroy: library.func(`${name}_destroy`, "void", ["void *"]),
    chosen: library.func(`${name}_chosen`, "int", ["void *"]),
    missing: library.func(`${name}_missing`, "str", []),
    message: library.func(`${name}_message`, "str", ["int"]),
    run: library.func(`${name}_run`, "int", pointers(1 + fleeting.length)),
    prepare: constants.length > 0 ? library.func(`${name}_prepare`, "int", pointers(1 + constants.length)) : undefined,
  };
  const missing = description.tuned ? native.missing().split(" ").filter(Boolean) : [];
  const made = [null];
  const code = native.create(made, CODES[wanted]);
  if (code !== 0)
    throw new KernelError(
      `${name}: ${native.message(code)}${wanted === "tuned" ? `: ${description.tuned ? missing.join(", ") : "there is no tuned kernel here"}` : ""}`,
      'implementation "best" runs the portable code where the tuned kernel cannot run',
    );
  let plan = made[0];
  const implementation = CHOSEN[native.chosen(plan)];

  // 2. Checks.
  const classes = parameters.map((p) => globalThis[p.array]);
  const signature = `${name}.run(${parameters.map((p) => `${p.name}: ${p.array}[${p.elements}]`).join(", ")})`;
  const checked = parameters.map(() => undefined);
  const complain = (i, because, hint = signature) => {
    throw new KernelError(`${name}: ${parameters[i].name} ${because}`, hint);
  };

  const checkOne = (i, array) => {
    const { elements, array: type, dtype, shape, storage } = parameters[i];
    if (!(array instanceof classes[i])) {
      const given = array === null || typeof array !== "object" ? String(array) : `${article(array.constructor?.name)}`;
      const bits = ["e4m3", "e5m2", "bf16", "f16"].includes(dtype) ? `, which holds the bits of ${dtype} numbers` : "";
      complain(i, `is ${given}; it must be ${article(type)}${bits}`);
    }
    if (array.buffer.detached === true || (array.length === 0 && array.buffer.byteLength === 0))
      complain(
        i,
        "has no memory: its buffer was transferred or is empty",
        "make a new array; a transferred buffer is gone",
      );
    if (array.length !== elements)
      complain(i, `has ${array.length} elements; it must have ${elements}`, `${shape}, element at ${storage}`);
    const bytes = array.BYTES_PER_ELEMENT;
    if (bytes > 1 && Number(koffi.address(array)) % bytes !== 0)
      complain(
        i,
        `lies at an address that is no multiple of ${bytes}`,
        "copy it into an array of its own: array.slice()",
      );
  };
  const checkOverlap = (arrays) => {
    const output = arrays.at(-1);
    arrays.slice(0, -1).forEach((array, i) => {
      if (array.buffer !== output.buffer) return;
      const apart =
        array.byteOffset + array.byteLength <= output.byteOffset ||
        output.byteOffset + output.byteLength <= array.byteOffset;
      if (!apart)
        complain(
          i,
          `shares memory with ${parameters.at(-1).name}`,
          "the output is written while inputs are read: give it memory of its own",
        );
    });
  };
  const check = (arrays) => {
    if (plan === undefined) throw new KernelError(`${name} is closed`, "load it again");
    if (arrays.length !== parameters.length)
      throw new KernelError(`${name}.run takes ${parameters.length} arrays, got ${arrays.length}`, signature);
    for (const [i, array] of arrays.entries()) checkOne(i, array);
    checkOverlap(arrays);
    arrays.forEach((array, i) => {
      checked[i] = array;
    });
  };
  const succeed = (result) => {
    if (result !== 0) throw new Error(`${name}: ${native.message(result)}`);
  };

  // 3. Constants are packed when others are given, or when asked.
  const constantPlaces = parameters.flatMap((p, i) => (p.role === "constant" ? [i] : []));
  let packed = constantPlaces.map(() => undefined);
  let stale = constantPlaces.length > 0;
  const prepare = (arrays) => {
    const given = constantPlaces.map((i) => arrays[i]);
    if (!stale && given.every((array, i) => array === packed[i])) return;
    succeed(native.prepare(plan, ...given));
    packed = given;
    stale = false;
  };

  // 4. A call: straight-line code for the usual numbers of tensors.
  const inputs = parameters.length - 1;
  const fleetingPlaces = parameters.flatMap((p, i) => (p.role === "constant" ? [] : [i]));
  const known = (i, array) => array === checked[i] && array.length === parameters[i].elements;
  const general = (...arrays) => {
    if (plan === undefined || arrays.length !== parameters.length || !arrays.every((array, i) => known(i, array)))
      check(arrays);
    if (constantPlaces.length > 0) prepare(arrays);
    succeed(native.run(plan, ...fleetingPlaces.map((i) => arrays[i])));
  };
  const { run: call } = native;
  const [first, second, third] = parameters.map((p) => p.elements);
  // The fewer arrays the shorter: unrolled for one and two inputs, of which the second may be a constant.
  const unrolled = {
    one: (a, out, ...more) => {
      if (
        plan === undefined ||
        more.length > 0 ||
        a !== checked[0] ||
        out !== checked[1] ||
        a.length !== first ||
        out.length !== second
      )
        check([a, out, ...more]);
      const result = call(plan, a, out);
      if (result !== 0) succeed(result);
    },
    two: (a, b, out, ...more) => {
      if (
        plan === undefined ||
        more.length > 0 ||
        a !== checked[0] ||
        b !== checked[1] ||
        out !== checked[2] ||
        a.length !== first ||
        b.length !== second ||
        out.length !== third
      )
        check([a, b, out, ...more]);
      const result = call(plan, a, b, out);
      if (result !== 0) succeed(result);
    },
    constant: (a, b, out, ...more) => {
      if (
        plan === undefined ||
        more.length > 0 ||
        a !== checked[0] ||
        b !== checked[1] ||
        out !== checked[2] ||
        a.length !== first ||
        b.length !== second ||
        out.length !== third
      )
        check([a, b, out, ...more]);
      if (stale || packed[0] !== b) prepare([a, b, out]);
      const result = call(plan, a, out);
      if (result !== 0) succeed(result);
    },
  };
  const choose = () => {
    if (inputs === 1 && constantPlaces.length === 0) return unrolled.one;
    if (inputs === 2 && constantPlaces.length === 0) return unrolled.two;
    if (inputs === 2 && constantPlaces.length === 1 && constantPlaces[0] === 1) return unrolled.constant;
    return general;
  };

  const kernel = {
    name,
    parameters,
    implementation,
    missing,
    run: choose(),
    repack: () => {
      stale = constantPlaces.length > 0;
    },
    close: () => {
      if (plan === undefined) return;
      forgotten.unregister(kernel);
      native.destroy(plan);
      plan = undefined;
      checked.fill(undefined);
      packed = [];
    },
  };
  forgotten.register(kernel, { destroy: native.destroy, plan }, kernel);
  if (wanted === "best" && description.tuned && implementation === "portable")
    process.emitWarning(
      `${name}: this machine lacks ${missing.join(", ")}: the portable code runs, which is far slower`,
    );
  return kernel;
}

/** Frees the plan of a kernel that was dropped without close(). */
const forgotten = new FinalizationRegistry(({ destroy, plan }) => destroy(plan));
