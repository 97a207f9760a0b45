import { type ServiceError, status } from "@grpc/grpc-js";
import type { Any } from "./generated/google/protobuf/any.js";
import { BadRequest, ErrorInfo, RetryInfo } from "./generated/google/rpc/error_details.js";
import { Status } from "./generated/google/rpc/status.js";

/** One thing wrong with a request. */
export interface Violation {
  /** Path of the field, as the proto spells it, such as `sampling_params.top_p`. */
  field: string;
  /** What is wrong with it, with the bound. */
  description: string;
}

/** What the server told beside code and message. */
export interface Details {
  /** The server's name for the fault; empty when it is not the server that answers. */
  reason: string;
  /** What is wrong with the request. */
  violations: Violation[];
  /**
   * Milliseconds to wait before the next try; undefined where the server does not say that the same call may go well
   * later. 0: it does, but not when.
   */
  retryAfterMs?: number;
}

/** A call that failed. `cause` is gRPC's own error. */
export class SluicegateError extends Error implements Details {
  override readonly name = "SluicegateError";
  readonly reason: string;
  readonly violations: Violation[];
  readonly retryAfterMs?: number;

  constructor(
    message: string,
    readonly code: status,
    details: Details = { reason: "", violations: [] },
    cause?: unknown,
  ) {
    super(message, { cause });
    this.reason = details.reason;
    this.violations = details.violations;
    this.retryAfterMs = details.retryAfterMs;
  }
}

/** gRPC's errors as `SluicegateError`; others as they are. */
export function readable(error: unknown): unknown {
  if (!isServiceError(error)) return error;
  return new SluicegateError(error.details || status[error.code]!, error.code, detailsOf(error), error);
}

function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && "code" in error && "details" in error && "metadata" in error;
}

function detailsOf(error: ServiceError): Details {
  const told: Details = { reason: "", violations: [] };
  const [encoded] = error.metadata?.get("grpc-status-details-bin") ?? [];
  if (!(encoded instanceof Uint8Array)) return told;
  for (const detail of ifReadable(() => Status.decode(encoded).details) ?? []) ifReadable(() => take(detail, told));
  return told;
}

/** Undefined for what cannot be decoded: of a fault that is told badly, the rest is told all the same. */
function ifReadable<Result>(read: () => Result): Result | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}

function take({ typeUrl, value }: Any, told: Details): void {
  switch (typeUrl) {
    case "type.googleapis.com/google.rpc.ErrorInfo":
      told.reason = ErrorInfo.decode(value).reason;
      break;
    case "type.googleapis.com/google.rpc.BadRequest":
      told.violations = BadRequest.decode(value).fieldViolations.map(violation);
      break;
    case "type.googleapis.com/google.rpc.RetryInfo":
      told.retryAfterMs = milliseconds(RetryInfo.decode(value));
  }
}

function violation({ field, description }: Violation): Violation {
  return { field, description };
}

function milliseconds({ retryDelay }: RetryInfo): number {
  return retryDelay === undefined ? 0 : Math.max(0, Number(retryDelay.seconds) * 1000 + retryDelay.nanos / 1e6);
}
