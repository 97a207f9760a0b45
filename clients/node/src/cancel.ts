import { setMaxListeners } from "node:events";

/** Cancels `call` when `signal` says so. Returns what ends that. */
export function cancelOn(signal: AbortSignal | undefined, call: { cancel(): void }): () => void {
  if (signal === undefined) return () => {};
  // One signal may end a batch of calls: from the eleventh on, Node would warn of a leak.
  setMaxListeners(0, signal);
  const cancel = () => call.cancel();
  if (signal.aborted) cancel();
  signal.addEventListener("abort", cancel, { once: true });
  return () => signal.removeEventListener("abort", cancel);
}
