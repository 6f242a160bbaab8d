# Kinference in a container: `docker build .`. The stage `demo` has what compose.yaml needs beside it.

FROM rust:1.95-slim-bookworm AS build
WORKDIR /build
COPY . .
# What `kinference --version` and the metric of the build say it was made from.
ARG KINFERENCE_COMMIT
# Compiled dependencies live in the cache mounts: a change of ours compiles only ours.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/build/target \
    cargo build --release --locked --features sim --bin kinference --bin kinfctl --bin vllm-sim --example load \
    && mkdir /out \
    && cp target/release/kinference target/release/kinfctl target/release/vllm-sim target/release/examples/load /out/

FROM python:3.13-slim-bookworm AS demo
WORKDIR /demo
COPY --from=build /out/vllm-sim /out/load /usr/local/bin/
COPY examples/demo/compare.py examples/demo/services.py ./
COPY tests/fixtures/tokenizer models/demo
USER 65532:65532

FROM debian:bookworm-slim AS kinference
COPY --from=build /out/kinference /out/kinfctl /usr/local/bin/
USER 65532:65532
# gRPC (ext_proc) and HTTP (metrics, readiness, fleet), as in the samples; the configuration file decides.
EXPOSE 9002 9003
ENTRYPOINT ["kinference"]
CMD ["--config", "/etc/kinference/kinference.toml"]
