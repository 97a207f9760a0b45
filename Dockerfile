# Three images: `gateway` (no torch), `core` (no gRPC), and the default with both. docs/container.md says how to use them.
#
#   python ─▶ compiler ─▶ wheel ──────────▶ app ───────────┐  the project, with its kernels
#       │         └─▶ environment ─▶ gateway-packages ─────┼─▶ gateway
#       │                  └───────▶ core-packages ────────┼─▶ core
#       │                                both: all-packages ┴─▶ (default)
#       ├───▶ requirements, for all three of them
#       └───▶ model: files of the embedded model, for all three
#
# What changes seldom comes first: a change of the project alone makes an image whose last layer alone is new.
ARG BASE_IMAGE=python:3.11-slim
# Empty: an image without a model, which serves what is mounted at /mnt/models.
ARG EMBEDDED_MODEL=smollm2-135m

FROM ${BASE_IMAGE} AS python
ENV PATH=/opt/sluicegate/bin:$PATH \
    PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

FROM python AS compiler
# The compiler stays in this stage, so that whatever version the distribution has today is good enough.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && { python3 -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' \
         || apt-get install --yes --no-install-recommends python3-dev; } \
    && rm -rf /var/lib/apt/lists/*

FROM compiler AS wheel
WORKDIR /src
COPY . .
# Kernels that do not compile are left out of a wheel without an error; an image that is slow for it must not come to be.
RUN --mount=type=cache,target=/root/.cache/pip \
    python3 -m pip wheel --no-deps --wheel-dir /wheel . \
    && python3 -m zipfile -l /wheel/*.whl > /tmp/wheel.txt \
    && { [ "$(uname -m)" != x86_64 ] || [ "$(grep -c 'core/native/_avx.*\.so' /tmp/wheel.txt)" = 2 ]; }

FROM python AS requirements
WORKDIR /build
COPY pyproject.toml constraints.txt deploy/image/requirements.py ./
# A pip requirement, such as torch==2.13.0; empty: the version that is pinned.
ARG TORCH=
RUN mkdir /requirements && python3 requirements.py /requirements "$TORCH"

FROM compiler AS environment
# The base's pip is visible in the environment, for `sluicegate pull`; one of its own it does not need.
RUN python3 -m venv --without-pip --system-site-packages /opt/sluicegate
WORKDIR /build
COPY deploy/image/slim.sh ./

FROM environment AS gateway-packages
COPY --from=requirements /requirements/gateway.txt /requirements/constraints.txt ./
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m pip install --no-compile --constraint constraints.txt --requirement gateway.txt \
    && sh slim.sh /opt/sluicegate

FROM environment AS core-packages
COPY --from=requirements /requirements/torch.txt /requirements/core.txt /requirements/constraints.txt ./
# The index that has the build of torch that is wanted: docs/container.md. Empty: pip's own configuration.
ARG TORCH_INDEX_URL=
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m pip install --no-compile --no-deps ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL"} --requirement torch.txt \
    && python -m pip install --no-compile --constraint constraints.txt --requirement core.txt \
    && sh slim.sh /opt/sluicegate

# Both are of the same pins: what both have is the same.
FROM core-packages AS all-packages
COPY --from=gateway-packages /opt/sluicegate /opt/sluicegate

FROM environment AS app
COPY --from=wheel /wheel /wheel
# The root of what is the project's own: its files as they lie between the packages', and folders that any user of group 0
# may write to; a volume that is mounted there takes that over.
RUN python -m pip install --no-cache-dir --no-compile --no-deps --no-index /wheel/*.whl \
    && python -m compileall -q --invalidation-mode unchecked-hash /opt/sluicegate/lib \
    && mkdir -p /rootfs/opt /rootfs/home/sluicegate /rootfs/run/sluicegate /rootfs/mnt/models \
    && chmod g=u /rootfs/home/sluicegate /rootfs/run/sluicegate /rootfs/mnt/models \
    && mv /opt/sluicegate /rootfs/opt/

FROM gateway-packages AS model
ARG EMBEDDED_MODEL
COPY service/__init__.py service/__init__.py
COPY service/models service/models
COPY deploy/image/embed.sh ./
RUN sh embed.sh "$EMBEDDED_MODEL" /models /tokenizers

FROM python AS runtime
ARG VERSION=
ARG REVISION=
LABEL org.opencontainers.image.title="sluicegate" \
      org.opencontainers.image.description="The gRPC edge of an LLM engine core" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
ARG EMBEDDED_MODEL
ENV HOME=/home/sluicegate \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    SLUICEGATE_MODEL=${EMBEDDED_MODEL:+/opt/models/}${EMBEDDED_MODEL:-/mnt/models}
STOPSIGNAL SIGTERM
ENTRYPOINT ["sluicegate"]

FROM runtime AS gateway
COPY --from=gateway-packages /opt/sluicegate /opt/sluicegate
COPY --from=model /tokenizers /opt/models
COPY --from=app /rootfs /
# Cores of other containers find the gateway's sockets where they find its handshake: in the folder that they share.
ENV SLUICEGATE_GRPC_ADDRESS=0.0.0.0:50051 \
    SLUICEGATE_HEALTH_ADDRESS=127.0.0.1:50054 \
    SLUICEGATE_METRICS_ADDRESS=0.0.0.0:9464 \
    SLUICEGATE_HANDSHAKE_ADDRESS=ipc:///run/sluicegate/handshake \
    TMPDIR=/run/sluicegate
USER 65532:0
EXPOSE 50051 9464
HEALTHCHECK --interval=10s --timeout=5s --start-period=10m \
    CMD ["sluicegate", "health", "--address", "127.0.0.1:50054", "--service", "readiness"]
CMD ["gateway"]

FROM runtime AS core
COPY --from=core-packages /opt/sluicegate /opt/sluicegate
COPY --from=model /models /opt/models
COPY --from=app /rootfs /
ENV SLUICEGATE_HANDSHAKE_ADDRESS=ipc:///run/sluicegate/handshake
USER 65532:0
HEALTHCHECK NONE
CMD ["core"]

FROM runtime
COPY --from=all-packages /opt/sluicegate /opt/sluicegate
COPY --from=model /models /opt/models
COPY --from=app /rootfs /
ENV SLUICEGATE_GRPC_ADDRESS=0.0.0.0:50051 \
    SLUICEGATE_HEALTH_ADDRESS=127.0.0.1:50054 \
    SLUICEGATE_METRICS_ADDRESS=0.0.0.0:9464
USER 65532:0
EXPOSE 50051 9464
HEALTHCHECK --interval=10s --timeout=5s --start-period=10m \
    CMD ["sluicegate", "health", "--address", "127.0.0.1:50054", "--service", "readiness"]
CMD ["serve"]
