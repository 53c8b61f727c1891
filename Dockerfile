# Two images: `probate`, the node, and `upstream`, the service that compose.yaml
# puts behind it. Both hold one static program, run as nobody, and write nothing.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /out/probate ./cmd/node
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /out/upstream ./deploy/upstream

FROM scratch AS upstream
COPY --from=build /out/upstream /upstream
USER 65532:65532
EXPOSE 9000
ENTRYPOINT ["/upstream"]

FROM scratch AS probate
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/probate /probate
USER 65532:65532
EXPOSE 8080 8081
ENTRYPOINT ["/probate"]
CMD ["serve"]
