import { describe, expect, it } from "vitest";
import { bytesOf, DTYPES, isInteger, rangeOf } from "../abstraction/dtype.ts";
import { decodeElements, encodeElement, encodeElements } from "../runtime/bytes.ts";

describe("elements as bytes", () => {
  it.each(DTYPES)("of type %s encode alike one by one and together, and decode to the values given", (dtype) => {
    const [least, most] = isInteger(dtype) ? rangeOf(dtype) : [-1.5, 0.25];
    const values = [least, most, 0, 1, 100];
    const apart = new Uint8Array(values.length * bytesOf(dtype));
    for (const [i, value] of values.entries())
      encodeElement(dtype, new DataView(apart.buffer), i * bytesOf(dtype), value);
    expect(encodeElements(dtype, values)).toEqual(apart);
    expect([...decodeElements(dtype, apart)]).toEqual(values);
  });
});
