package sluicegate.client;

import io.grpc.ChannelCredentials;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.TlsChannelCredentials;
import io.grpc.stub.MetadataUtils;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import sluicegate.v1.InferenceServiceGrpc;

/** How to reach a server: without more, in plaintext and without a key. */
public final class ClientBuilder {
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

  /** Which servers are ready, the channel learns from a Watch of each one's health, where grpc-services is there. */
  private static final Map<String, ?> ROUND_ROBIN = Map.of(
      "loadBalancingConfig", List.of(Map.of("round_robin", Map.of())),
      "healthCheckConfig", Map.of("serviceName", "readiness"));

  private final String address;
  private final Metadata metadata = new Metadata();
  private TlsChannelCredentials.Builder tls;
  private boolean roundRobin;

  ClientBuilder(String address) {
    this.address = address;
  }

  /** TLS, with the authorities that Java knows. */
  public ClientBuilder tls() {
    tls = TlsChannelCredentials.newBuilder();
    return this;
  }

  /** TLS, with the authorities in the PEM file {@code ca}. Throws UncheckedIOException when it cannot be read. */
  public ClientBuilder tls(Path ca) {
    return tls().withFiles(() -> tls.trustManager(ca.toFile()));
  }

  /** The client's own certificate and key (PEM, PKCS #8), for a server that asks for them; after {@code tls}. */
  public ClientBuilder clientCertificate(Path certificate, Path key) {
    return withFiles(() -> tls.keyManager(certificate.toFile(), key.toFile()));
  }

  /** Of a server that asks for one. Send it over TLS only: it goes as it is. */
  public ClientBuilder apiKey(String key) {
    metadata.put(AUTHORIZATION, "Bearer " + key);
    return this;
  }

  /** Calls all servers in turn that a {@code dns:///} address names and that are ready. */
  public ClientBuilder roundRobin() {
    roundRobin = true;
    return this;
  }

  public SluicegateClient build() {
    ChannelCredentials credentials = tls == null ? InsecureChannelCredentials.create() : tls.build();
    ManagedChannelBuilder<?> channel = Grpc.newChannelBuilder(address, credentials)
        // gRPC would send even loopback traffic through a proxy of the environment.
        .proxyDetector(server -> null)
        // Answers with log-probabilities of a long prompt pass gRPC's 4 MiB.
        .maxInboundMessageSize(Integer.MAX_VALUE)
        // A server that is gone without a word, or hangs, is noticed while calls run: a stream would wait for ever.
        .keepAliveTime(20, TimeUnit.SECONDS)
        .keepAliveTimeout(10, TimeUnit.SECONDS);
    if (roundRobin) {
      channel.defaultServiceConfig(ROUND_ROBIN);
    }
    var managed = channel.intercept(MetadataUtils.newAttachHeadersInterceptor(metadata)).build();
    return new SluicegateClient(managed, InferenceServiceGrpc.newBlockingStub(managed));
  }

  private interface Reading {
    void run() throws IOException;
  }

  private ClientBuilder withFiles(Reading reading) {
    try {
      reading.run();
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return this;
  }
}
