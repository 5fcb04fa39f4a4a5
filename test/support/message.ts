import { UsageError } from "../../abstraction/error.ts";

function toldOf(work: () => unknown, tell: (error: UsageError) => string): string {
  try {
    work();
  } catch (error) {
    if (error instanceof UsageError) return tell(error);
    throw error;
  }
  return "accepted";
}

/** What a user is told of a mistake, or `accepted`. */
export const messageOf = (work: () => unknown): string => toldOf(work, (error) => error.message);

/** The same with the hint below it. */
export const explanationOf = (work: () => unknown): string => toldOf(work, (error) => error.explain());
