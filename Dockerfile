# syntax=docker/dockerfile:1
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /out/robotsproxy ./cmd/robotsproxy
# The state directory has to exist, and be the user's, before a volume is laid over it. The configuration is open to
# whoever reaches the port: nobody is known yet. Lay one with clients over it to say who may come in.
RUN mkdir -p /out/state && chmod 0700 /out/state && \
    printf 'listen: 0.0.0.0:8080\nopen: true\nstate_dir: /var/lib/robotsproxy\nadmin: {listen: 127.0.0.1:8081}\n' > /out/config.yaml

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/robotsproxy /robotsproxy
COPY --from=build /out/config.yaml /etc/robotsproxy/config.yaml
COPY --from=build --chown=65532:65532 /out/state /var/lib/robotsproxy
USER 65532:65532
VOLUME /var/lib/robotsproxy
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["/robotsproxy", "health", "--admin", "127.0.0.1:8081"]
ENTRYPOINT ["/robotsproxy"]
CMD ["serve", "-c", "/etc/robotsproxy/config.yaml"]
