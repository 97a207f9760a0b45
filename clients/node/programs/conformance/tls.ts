import { Client, type ClientOptions, tlsCredentials } from "sluicegate-client";
import { PARIS } from "./calls.js";
import { codeOf, environment, failureOf, textOf } from "./outcome.js";

export async function tlsAndKey(): Promise<void> {
  const credentials = tlsCredentials({ ca: environment("SLUICEGATE_TLS_CA") });
  const apiKey = environment("SLUICEGATE_API_KEY");
  console.log(`tls: "${await overTls({ credentials, apiKey })}" with a key`);
  const keyless = await failureOf(overTls({ credentials }));
  console.log(`no key: ${codeOf(keyless)} ${keyless.reason}`);
  const untrusted = await failureOf(overTls({ credentials: tlsCredentials(), apiKey }));
  console.log(`untrusted: ${codeOf(untrusted)}`);
}

/** Makes the call of the line unary on a connection of its own. */
async function overTls(options: ClientOptions): Promise<string> {
  const client = new Client(environment("SLUICEGATE_TLS_ADDRESS"), options);
  try {
    return textOf((await client.generate(PARIS)).outputs);
  } finally {
    client.close();
  }
}
