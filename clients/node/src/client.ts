import * as grpc from "@grpc/grpc-js";
import { cancelOn } from "./cancel.js";
import { channelOptions, DEFAULT_ADDRESS, keyMetadata } from "./connect.js";
import { readable } from "./errors.js";
import {
  type DeepPartial,
  DetokenizeRequest,
  type DetokenizeResponse,
  EmbedRequest,
  type EmbedResponse,
  GenerateRequest,
  type GenerateResponse,
  InferenceServiceClient,
  TokenizeRequest,
  type TokenizeResponse,
} from "./generated/sluicegate/v1/inference_service.js";
import { type Retry, retrying } from "./retry.js";
import { openStream, type StreamEvent } from "./stream.js";

const ONCE: Retry = { maxAttempts: 1 };

export interface ClientOptions {
  /** Those of `tlsCredentials`. Default: plaintext. */
  credentials?: grpc.ChannelCredentials;
  /** Of a server that asks for one. */
  apiKey?: string;
  /** Spread calls over all servers that a `dns:///HOST:PORT` address names. Default false. */
  roundRobin?: boolean;
  /** For gRPC's channel; these win over the client's own. */
  channelOptions?: grpc.ChannelOptions;
}

export interface CallOptions {
  /** Cancels the call, and the request in the engine; the error's code is CANCELLED. */
  signal?: AbortSignal;
  /** How long the call may take, with all its tries; then the error's code is DEADLINE_EXCEEDED. Default: no bound. */
  timeoutMs?: number;
  /** Default: the call is made once. */
  retry?: Retry;
}

/** A method of the stub, in the one of its forms that is used here. */
type Unary<Request, Response> = (
  request: Request,
  metadata: grpc.Metadata,
  options: grpc.CallOptions,
  callback: (error: grpc.ServiceError | null, response: Response) => void,
) => grpc.ClientUnaryCall;

/**
 * A connection to a server, made on first use. `address` is `HOST:PORT`, `unix:/path` or `dns:///HOST:PORT`. Calls
 * reject with `SluicegateError`. Fields of requests that are left out have the proto's defaults.
 */
export class Client {
  readonly #stub: InferenceServiceClient;
  readonly #metadata: grpc.Metadata;

  constructor(address = DEFAULT_ADDRESS, options: ClientOptions = {}) {
    this.#metadata = keyMetadata(options.apiKey);
    this.#stub = new InferenceServiceClient(
      address,
      options.credentials ?? grpc.credentials.createInsecure(),
      channelOptions(options.roundRobin ?? false, options.channelOptions ?? {}),
    );
  }

  /** Answers when every sequence has ended. */
  generate(request: DeepPartial<GenerateRequest>, options?: CallOptions): Promise<GenerateResponse> {
    return this.#unary(this.#stub.generate, GenerateRequest.fromPartial(request), options);
  }

  /**
   * The same as it goes: one `started`, then deltas, then a `finished` for each sequence. The call is made when the
   * iteration begins; leaving the loop cancels it.
   */
  async *generateStream(request: DeepPartial<GenerateRequest>, options: CallOptions = {}): AsyncGenerator<StreamEvent> {
    const { deadline, signal, retry } = limitsOf(options);
    const complete = GenerateRequest.fromPartial(request);
    const makeCall = () => this.#stub.generateStream(complete, this.#metadata, { deadline });
    yield* await retrying(retry, deadline, signal, () => openStream(makeCall, signal));
  }

  /** The tokens that `generate` would use. */
  tokenize(request: DeepPartial<TokenizeRequest>, options?: CallOptions): Promise<TokenizeResponse> {
    return this.#unary(this.#stub.tokenize, TokenizeRequest.fromPartial(request), options);
  }

  /** The text of tokens; incomplete characters become U+FFFD. */
  detokenize(request: DeepPartial<DetokenizeRequest>, options?: CallOptions): Promise<DetokenizeResponse> {
    return this.#unary(this.#stub.detokenize, DetokenizeRequest.fromPartial(request), options);
  }

  /** One vector of a text. The error's code is UNIMPLEMENTED if the model generates text. */
  embed(request: DeepPartial<EmbedRequest>, options?: CallOptions): Promise<EmbedResponse> {
    return this.#unary(this.#stub.embed, EmbedRequest.fromPartial(request), options);
  }

  /** Lets the process end: no more calls; those that run go on. */
  close(): void {
    this.#stub.close();
  }

  #unary<Request, Response>(
    method: Unary<Request, Response>,
    request: Request,
    options: CallOptions = {},
  ): Promise<Response> {
    const { deadline, signal, retry } = limitsOf(options);
    const attempt = () =>
      new Promise<Response>((resolve, reject) => {
        const call = method.call(this.#stub, request, this.#metadata, { deadline }, (error, response) => {
          unfollow();
          if (error === null) resolve(response);
          else reject(readable(error));
        });
        const unfollow = cancelOn(signal, call);
      });
    return retrying(retry, deadline, signal, attempt);
  }
}

/** The deadline holds for all tries together. */
function limitsOf({ signal, timeoutMs = Infinity, retry = ONCE }: CallOptions) {
  return { signal, retry, deadline: Date.now() + timeoutMs };
}
