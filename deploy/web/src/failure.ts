// What went wrong, for a person to read.

import { Code, ConnectError } from "@connectrpc/connect";
import { BadRequestSchema, RetryInfoSchema } from "../gen/google/rpc/error_details_pb";

export interface Violation {
  /** Path of the field, as the proto spells it, such as `sampling_params.top_p`. */
  readonly field: string;
  readonly description: string;
}

export class Failure {
  constructor(
    /** The name of the gRPC status. */
    readonly code: string,
    readonly message: string,
    readonly violations: readonly Violation[] = [],
    readonly retryAfterSeconds?: number,
  ) {}

  /** `error` is what a call threw. */
  static of(error: unknown): Failure {
    const status = ConnectError.from(error);
    // From fetch, which tells a page no more than that it failed.
    if (status.cause instanceof TypeError) return new Failure("UNAVAILABLE", `${NO_CONNECTION} (${status.rawMessage})`);
    const violations = status.findDetails(BadRequestSchema).flatMap((detail) => detail.fieldViolations);
    const delay = status.findDetails(RetryInfoSchema)[0]?.retryDelay;
    const seconds = delay && Number(delay.seconds) + delay.nanos / 1e9;
    return new Failure(spelled(Code[status.code]), status.rawMessage, violations, seconds);
  }

  static ofSettings(violations: readonly Violation[]): Failure {
    return new Failure("INVALID_ARGUMENT", "the settings cannot be sent", violations);
  }
}

const NO_CONNECTION = "The connection failed: the server is not there, has gone, or does not allow this page to call.";

/** `InvalidArgument` is `INVALID_ARGUMENT` everywhere else. */
function spelled(code = "Unknown"): string {
  return code.replace(/(?<=[a-z])(?=[A-Z])/g, "_").toUpperCase();
}
