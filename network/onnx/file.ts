/**
 * @file Opens the files of a model, and refuses anything that is not a regular file.
 *
 *     withFile("model.onnx", "model.onnx", (handle, bytes) => ...)
 */

import { closeSync, constants, fstatSync, openSync } from "node:fs";
import { reasonOf, UsageError, unreadable } from "../../abstraction/error.ts";

/**
 * Opens a file and closes it after use. Opening is non-blocking: a pipe without a writer would otherwise block forever.
 * @param called its name in messages
 * @throws UsageError when it cannot be read, or is no regular file
 */
export function withFile<T>(path: string, called: string, use: (handle: number, bytes: number) => T): T {
  let handle: number | undefined;
  try {
    handle = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
    const about = fstatSync(handle);
    if (!about.isFile()) throw new UsageError(`${called} is no file`, "name a regular file");
    return use(handle, about.size);
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw unreadable(`${called} cannot be read: ${reasonOf(error)}`, error);
  } finally {
    if (handle !== undefined) closeSync(handle);
  }
}
