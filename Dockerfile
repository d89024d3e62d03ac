#   docker build -t robotsproxy --build-arg VERSION="$(git describe --tags --always --dirty)" \
#                               --build-arg COMMIT="$(git rev-parse HEAD)" .
#
# The image holds one static binary, the roots that origins are verified by, a configuration, and an empty directory for
# the state. There is no shell, no libc and nothing else that could help somebody who got in. Time zones are not needed:
# records are in UTC, and so are a container's days.

FROM golang:1.26-bookworm AS build
WORKDIR /src
ENV CGO_ENABLED=0 GOTOOLCHAIN=local

# A layer of its own: the modules are loaded anew only when their list has changed.
COPY go.mod go.sum ./
RUN go mod download

# .dockerignore leaves .git out, so that a commit alone does not build anew; the arguments say what is built.
COPY . .
ARG VERSION
ARG COMMIT
RUN go build -trimpath -ldflags="-s -w -X robotsproxy/cmd/internal/version.stampedVersion=$VERSION -X robotsproxy/cmd/internal/version.stampedCommit=$COMMIT" -o /out/image/robotsproxy ./cmd/robotsproxy
RUN mkdir -p /out/image/etc/robotsproxy /out/image/etc/ssl/certs /out/image/var/lib && \
    cp docs/deploy/etc/config.yaml /out/image/etc/robotsproxy/ && \
    cp /etc/ssl/certs/ca-certificates.crt /out/image/etc/ssl/certs/ && \
    chmod -R u=rwX,go=rX /out/image && \
    mkdir -p -m 0700 /out/state/robotsproxy

FROM scratch
COPY --from=build /out/image/ /
# Copied with its parent, so that its mode comes along, and the user's own before a volume is laid over it.
COPY --from=build --chown=65532:65532 /out/state/ /var/lib/

ARG VERSION
ARG COMMIT
LABEL org.opencontainers.image.title="robotsproxy" \
      org.opencontainers.image.description="A forward proxy that makes crawlers keep to robots.txt and to a polite pace" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$COMMIT"

USER 65532:65532
VOLUME /var/lib/robotsproxy
EXPOSE 8080
# Requests in flight may finish, for 20 s: give it more than Docker's 10 s (--stop-timeout 30).
STOPSIGNAL SIGTERM
# By address, not by the file: one that was changed for the worse is not in force, and must not make the proxy look ill.
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=3 CMD ["/robotsproxy", "health", "--admin", "127.0.0.1:8081"]
ENTRYPOINT ["/robotsproxy"]
CMD ["serve", "-c", "/etc/robotsproxy/config.yaml"]
