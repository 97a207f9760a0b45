import { setTimeout as sleep } from "node:timers/promises";
import { status } from "@grpc/grpc-js";
import { SluicegateError } from "./errors.js";

const FIRST_BACKOFF_MS = 200;
const MAX_WAIT_MS = 30_000;
/** Node takes a longer one for one millisecond. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/**
 * How a call is tried again that the server refuses for now, with RetryInfo, or that reaches none; a stream is only
 * until its first event.
 */
export interface Retry {
  /** The most calls to make, the first one included. */
  maxAttempts: number;
  /** Bounds each wait; a server that asks for a longer one is not waited for. Default 30 000. */
  maxWaitMs?: number;
  /** Told of each failure that will be followed by another try, and how long that waits. */
  onWait?: (failure: SluicegateError, waitMs: number) => void;
}

/**
 * The result of `call`, made until it goes well, fails for good, or the next try would come after `deadline`, which is
 * as `Date.now()` has it, Infinity for none.
 */
export async function retrying<Result>(
  { maxAttempts, maxWaitMs, onWait }: Retry,
  deadline: number,
  signal: AbortSignal | undefined,
  call: () => Promise<Result>,
): Promise<Result> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await call();
    } catch (error) {
      if (!(error instanceof SluicegateError) || attempt >= maxAttempts) throw error;
      const waitMs = waitAfter(attempt, error, maxWaitMs);
      if (waitMs === undefined || Date.now() + waitMs >= deadline) throw error;
      onWait?.(error, waitMs);
      await pause(waitMs, signal);
    }
  }
}

/**
 * The server's delay, and a little more. Where it gave none, or there was no server, the wait doubles, less up to a
 * half. Undefined: the call is not to be tried again.
 */
export function waitAfter(
  attempt: number,
  { code, retryAfterMs }: SluicegateError,
  maxWaitMs = MAX_WAIT_MS,
): number | undefined {
  if (retryAfterMs) return retryAfterMs <= maxWaitMs ? between(retryAfterMs, retryAfterMs * 1.1) : undefined;
  if (retryAfterMs === undefined && code !== status.UNAVAILABLE) return undefined;
  const backoff = Math.min(FIRST_BACKOFF_MS * 2 ** (attempt - 1), maxWaitMs);
  return between(backoff / 2, backoff);
}

/** The rest is left to chance: clients that were refused together should not come back together. */
function between(least: number, most: number): number {
  return least + Math.random() * (most - least);
}

async function pause(waitMs: number, signal?: AbortSignal): Promise<void> {
  try {
    await sleep(Math.min(waitMs, LONGEST_TIMER_MS), undefined, { signal });
  } catch (cause) {
    throw new SluicegateError("cancelled while waiting to try again", status.CANCELLED, undefined, cause);
  }
}
