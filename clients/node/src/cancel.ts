/** Cancels `call` when `signal` says so. Returns what ends that. */
export function cancelOn(signal: AbortSignal | undefined, call: { cancel(): void }): () => void {
  if (signal === undefined) return () => {};
  const cancel = () => call.cancel();
  if (signal.aborted) cancel();
  signal.addEventListener("abort", cancel, { once: true });
  return () => signal.removeEventListener("abort", cancel);
}
