# docker build -t topospread .
# docker run -p 127.0.0.1:7946:7946 -v topospread:/var/lib/topospread topospread \
#   serve --listen=0.0.0.0:7946 --insecure
#
# The state is in /var/lib/topospread unless --store says otherwise; nothing else is written, so the
# root file system may be read-only. No shell is needed at run time.
ARG PYTHON=python:3.13.11-slim-bookworm

FROM ${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY requirements/build.lock requirements/server.lock requirements/
# The wheels are built by what the lock names, without build isolation, which would fetch the newest.
RUN python -m venv /build \
 && /build/bin/pip install --require-hashes --requirement requirements/build.lock
RUN python -m venv --without-pip /opt/topospread \
 && /build/bin/pip --python /opt/topospread/bin/python install \
      --require-hashes --requirement requirements/server.lock
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY client/ client/
COPY proto/ proto/
COPY server/ server/
RUN /build/bin/python -m build --wheel --no-isolation --outdir /wheels . \
 && /build/bin/python -m build --wheel --no-isolation --outdir /wheels server \
 && /build/bin/pip --python /opt/topospread/bin/python install --no-deps /wheels/*.whl
# An empty folder to copy: the last stage runs no command that could make it.
RUN install -d -m 0700 -o 65532 -g 65532 /state

FROM ${PYTHON}
COPY --from=build /opt/topospread /opt/topospread
COPY --from=build --chown=65532:65532 /state /var/lib/topospread
ENV PATH=/opt/topospread/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    MALLOC_ARENA_MAX=2 \
    XDG_STATE_HOME=/var/lib
USER 65532:65532
VOLUME /var/lib/topospread
EXPOSE 7946 7947
# For a server with its metrics and health on the usual port, without TLS. An engine older than Docker 25 does not
# know --start-interval: build without it there, and a start shows after up to 5 s.
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --start-interval=1s \
  CMD ["python", "-c", "import http.client as http; door = http.HTTPConnection('127.0.0.1', 7947, timeout=2); door.request('GET', '/readyz'); raise SystemExit(door.getresponse().status != 200)"]
ENTRYPOINT ["topospread"]
CMD ["serve"]
