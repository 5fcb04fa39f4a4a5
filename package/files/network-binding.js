/**
 * Calls the built library of a network from Node: checks every array before C sees it.
 *
 *     const net = bindNetwork(koffi, "build/libresnet18.so", description);
 *     const { fc } = net.run({ image });
 */

import { KernelError } from "./binding.js";

const TIMES = 2;
const PROBLEMS = [
  "",
  "there is not enough memory",
  "internal: a null pointer",
  "this CPU lacks what its kernels need",
  "no thread can be started",
];
/** A network computes integers of 64 bits exactly where those it is given have 32. */
const OUT_OF_RANGE = 5;

/** See network-binding.d.ts. */
export function bindNetwork(koffi, file, description, { times = false } = {}) {
  const { name, inputs, outputs } = description;
  const library = koffi.load(file);
  const arrays = koffi.pointer("void *");
  const native = {
    create: library.func(`${name}_create`, "int", [koffi.out(koffi.pointer("void *")), "int"]),
    destroy: library.func(`${name}_destroy`, "void", ["void *"]),
    run: library.func(`${name}_run_all`, "int", ["void *", arrays, arrays]),
    steps: library.func(`${name}_steps`, "int", []),
    stepName: library.func(`${name}_step_name`, "str", ["int"]),
    stepSeconds: library.func(`${name}_step_seconds`, "double", ["void *", "int"]),
  };
  const succeed = (code) => {
    if (code === OUT_OF_RANGE)
      throw new KernelError(
        `${name}: a 64-bit integer is beyond 32 bits`,
        "give integers from -2147483648 to 2147483647",
      );
    if (code !== 0)
      throw new KernelError(`${name}: ${PROBLEMS[code] ?? `code ${code}`}`, "emit it again on this machine");
  };
  const made = [null];
  succeed(native.create(made, times ? TIMES : 0));
  let net = made[0];

  const checked = (given, described) => {
    for (const word of Object.keys(given))
      if (!described.some((d) => d.name === word))
        throw new KernelError(`${name} has no "${word}"`, `there is ${described.map((d) => d.name).join(", ")}`);
    return described.map(({ name: word, array: type, elements, shape }) => {
      const array = given[word];
      const wanted = `${type} of ${elements} elements, [${shape.join(",")}] row-major`;
      if (!(array instanceof globalThis[type]))
        throw new KernelError(`${name}: ${word} is ${array?.constructor?.name ?? String(array)}`, `give ${wanted}`);
      if (array.length !== elements)
        throw new KernelError(`${name}: ${word} has ${array.length} elements`, `give ${wanted}`);
      if (Number(koffi.address(array)) % array.BYTES_PER_ELEMENT !== 0)
        throw new KernelError(`${name}: ${word} is not aligned to its elements`, "copy it: array.slice()");
      return array;
    });
  };
  const apart = (a, b) =>
    a.buffer !== b.buffer || a.byteOffset + a.byteLength <= b.byteOffset || b.byteOffset + b.byteLength <= a.byteOffset;

  const bound = {
    name,
    inputs,
    outputs,
    run: (given, into) => {
      if (net === undefined) throw new KernelError(`${name} is closed`, "load it again");
      const results = into ?? Object.fromEntries(outputs.map((o) => [o.name, new globalThis[o.array](o.elements)]));
      const [read, written] = [checked(given, inputs), checked(results, outputs)];
      written.forEach((array, i) => {
        if (![...read, ...written.slice(0, i)].every((other) => apart(array, other)))
          throw new KernelError(`${name}: ${outputs[i].name} shares memory with another array`, "give it its own");
      });
      succeed(native.run(net, read, written));
      return results;
    },
    steps: () => {
      if (net === undefined) throw new KernelError(`${name} is closed`, "load it again");
      return Array.from({ length: native.steps() }, (_, i) => ({
        name: native.stepName(i),
        seconds: native.stepSeconds(net, i),
      }));
    },
    close: () => {
      if (net === undefined) return;
      forgotten.unregister(bound);
      native.destroy(net);
      net = undefined;
    },
  };
  forgotten.register(bound, { destroy: native.destroy, net }, bound);
  return bound;
}

/** Frees a network that was dropped without close(). */
const forgotten = new FinalizationRegistry(({ destroy, net }) => destroy(net));
