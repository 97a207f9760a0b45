// How fast an answer comes.

/** From its making on; `now` is a clock in milliseconds. */
export class Pace {
  numTokens = 0;
  private readonly start: number;
  private firstNum = 0;
  private first = 0;
  private last = 0;

  constructor(private readonly now: () => number = () => performance.now()) {
    this.start = now();
  }

  /** So many more tokens have come. */
  note(numTokens: number): void {
    if (numTokens === 0) return;
    this.last = this.now();
    if (this.numTokens === 0) [this.first, this.firstNum] = [this.last, numTokens];
    this.numTokens += numTokens;
  }

  toString(): string {
    if (this.numTokens === 0) return "no tokens";
    const tokens = `${this.numTokens} token${this.numTokens === 1 ? "" : "s"}`;
    const parts = [`TTFT ${Math.round(this.first - this.start)} ms`, tokens];
    // Of those that came after the first message, in the time since: a prefill is no part of the rate.
    const seconds = (this.last - this.first) / 1000;
    if (seconds > 0) parts.splice(1, 0, `${((this.numTokens - this.firstNum) / seconds).toFixed(1)} tokens/s`);
    return parts.join(" · ");
  }
}
