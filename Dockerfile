# Lethe as a container. Its steps are in setup/image.sh, which CI runs too.
#
#   docker build -t lethe .        or with all that it is run with: compose.yaml
#
# The service speaks HTTP with bearer tokens, so it listens on the container's own 127.0.0.1 until you say who
# encrypts: a port that is only published (-p) reaches nothing. Choose one:
#
#   behind a proxy that ends TLS, in a network that only the proxy reaches (do not publish the port):
#     docker run --network proxy -v lethe:/var/lib/lethe -e LETHE_HOST=0.0.0.0 -e LETHE_BEHIND_PROXY=true lethe
#   with a certificate of its own (the files must be readable by the account 10001):
#     docker run -p 8765:8765 -v lethe:/var/lib/lethe -v /etc/lethe/tls:/tls:ro -e LETHE_HOST=0.0.0.0 \
#       -e LETHE_TLS_CERT=/tls/cert.pem -e LETHE_TLS_KEY=/tls/key.pem lethe
#   to try it on your own Linux machine, reachable from that machine alone:
#     docker run --network host -v lethe:/var/lib/lethe lethe
#
# It runs as the account 10001, never as root. Environments of Berkeley DB JE are erased as the account that owns
# their files: docker run --user UID:GID, with a data directory of that account.
# The first start leaves an admin token in the data directory, readable by its owner alone.
# Set address, port and certificate through the environment, not by options: the health check reads the same.
# A worker has no HTTP port, so switch the check off: docker run --no-healthcheck ... lethe worker
# Give it time to reach a safe point when it is stopped: docker run --stop-timeout 20 (Docker waits 10 s, Lethe may
# need 15 s).

FROM python:3.11-slim-bookworm AS build
WORKDIR /src
ENV UV_LINK_MODE=copy UV_NO_CACHE=1
COPY . .
RUN setup/image.sh app /opt/lethe

FROM python:3.11-slim-bookworm
COPY setup/image.sh setup/debian-packages.sh /tmp/setup/
RUN /tmp/setup/image.sh system
COPY --from=build /opt/lethe /opt/lethe
# For the Java of this stage; the build stage has none.
RUN /tmp/setup/image.sh classes /opt/lethe
ENV PATH=/opt/lethe/bin:$PATH \
    LETHE_DATA_DIR=/var/lib/lethe \
    PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /var/lib/lethe
# An image that does not start, or does not stop, is not built.
RUN /tmp/setup/image.sh smoke /opt/lethe
VOLUME /var/lib/lethe
EXPOSE 8765
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=3 \
    CMD ["/opt/lethe/bin/python", "/opt/lethe/share/lethe/health.py"]
# Exec form, so that SIGTERM reaches the service itself. It starts and reaps its own children; no init is needed.
ENTRYPOINT ["lethe"]
CMD ["serve"]
