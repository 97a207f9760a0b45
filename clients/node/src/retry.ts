import { setTimeout as sleep } from "node:timers/promises";
import { status } from "@grpc/grpc-js";
import { SluicegateError } from "./errors.js";

const FIRST_BACKOFF_MS = 100;
const MAX_BACKOFF_MS = 5000;

/**
 * How a call that the server refuses for now, with RetryInfo, is tried again; a stream is only until its first event.
 */
export interface Retry {
  /** The most calls to make, the first one included. */
  maxAttempts: number;
  /** Told of each refusal that will be followed by another try, and how long that waits. */
  onWait?: (refusal: SluicegateError, waitMs: number) => void;
}

/**
 * The result of `call`, made until it goes well, fails for good, or the next try would come after `deadline`, which is
 * as `Date.now()` has it, Infinity for none.
 */
export async function retrying<Result>(
  { maxAttempts, onWait }: Retry,
  deadline: number,
  signal: AbortSignal | undefined,
  call: () => Promise<Result>,
): Promise<Result> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await call();
    } catch (error) {
      if (!isRefusal(error) || attempt >= maxAttempts) throw error;
      const waitMs = waitAfter(attempt, error.retryAfterMs);
      if (Date.now() + waitMs >= deadline) throw error;
      onWait?.(error, waitMs);
      await pause(waitMs, signal);
    }
  }
}

/**
 * The server's delay. Where it gave none, the wait doubles, and part of it is random: clients that were refused
 * together should not come back together.
 */
export function waitAfter(attempt: number, retryAfterMs: number): number {
  if (retryAfterMs > 0) return retryAfterMs;
  const backoff = Math.min(FIRST_BACKOFF_MS * 2 ** (attempt - 1), MAX_BACKOFF_MS);
  return (backoff / 2) * (1 + Math.random());
}

function isRefusal(error: unknown): error is SluicegateError & { retryAfterMs: number } {
  return error instanceof SluicegateError && error.retryAfterMs !== undefined;
}

async function pause(waitMs: number, signal?: AbortSignal): Promise<void> {
  try {
    await sleep(waitMs, undefined, { signal });
  } catch (cause) {
    throw new SluicegateError("cancelled while waiting to try again", status.CANCELLED, undefined, cause);
  }
}
