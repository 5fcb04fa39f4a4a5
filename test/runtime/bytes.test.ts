import { describe, expect, it } from "vitest";
import { bytesOf, DTYPES, isInteger, rangeOf } from "../../abstraction/dtype.ts";
import { decodeElements, encodeElements } from "../../runtime/bytes.ts";

describe("elements as bytes", () => {
  it.each(DTYPES)("of type %s take its bytes each, and decode to the values given from any place", (dtype) => {
    const [least, most] = isInteger(dtype) ? rangeOf(dtype) : [-1.5, 0.25];
    const values = [least, most, 0, 1, 96];
    const bytes = encodeElements(dtype, values);
    expect(bytes.length).toBe(values.length * bytesOf(dtype));
    const moved = new Uint8Array([7, ...bytes]).subarray(1);
    expect([...decodeElements(dtype, moved)]).toEqual(values);
  });
});
