import { readFileSync } from "node:fs";
import { type ChannelCredentials, type ChannelOptions, credentials, Metadata } from "@grpc/grpc-js";

export const DEFAULT_ADDRESS = "127.0.0.1:50051";

const DEFAULTS: ChannelOptions = {
  // gRPC would send even loopback traffic through a proxy of the environment.
  "grpc.enable_http_proxy": 0,
  // Answers with log-probabilities of a long prompt pass gRPC's 4 MiB.
  "grpc.max_receive_message_length": -1,
  // A server that is gone without a word is noticed while calls run: a stream would wait for ever.
  "grpc.keepalive_time_ms": 20_000,
  "grpc.keepalive_timeout_ms": 10_000,
  // A server that is started again is found soon: gRPC alone would come to try every two minutes.
  "grpc.initial_reconnect_backoff_ms": 200,
  "grpc.max_reconnect_backoff_ms": 5_000,
};

const BALANCED: ChannelOptions = {
  "grpc.service_config": JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] }),
  // Replicas that come with new addresses, where all that were known have left: gRPC's own is 30 s.
  "grpc.dns_min_time_between_resolutions_ms": 1_000,
};

/** PEM files: the authorities to trust (default: Node's own), and the client's own certificate and its key. */
export interface TlsFiles {
  ca?: string;
  cert?: string;
  key?: string;
}

/** TLS, for `ClientOptions.credentials`. Throws what reading the files throws. */
export function tlsCredentials(files: TlsFiles = {}): ChannelCredentials {
  const read = (path?: string) => (path === undefined ? null : readFileSync(path));
  return credentials.createSsl(read(files.ca), read(files.key), read(files.cert));
}

/** `given` wins over the defaults. */
export function channelOptions(roundRobin: boolean, given: ChannelOptions): ChannelOptions {
  return { ...DEFAULTS, ...(roundRobin && BALANCED), ...given };
}

/** What a call with `apiKey` says. */
export function keyMetadata(apiKey?: string): Metadata {
  const metadata = new Metadata();
  if (apiKey !== undefined) metadata.set("authorization", `Bearer ${apiKey}`);
  return metadata;
}
