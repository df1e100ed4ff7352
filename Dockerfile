# The hub as an image: built as a wheel, run by a user who owns nothing but /data.
ARG PYTHON=3.11

FROM python:${PYTHON}-slim AS build
WORKDIR /source
COPY pyproject.toml README.md ./
COPY hub_app hub_app
COPY agents agents
COPY tables tables
RUN pip wheel --no-cache-dir --wheel-dir /wheels .

FROM python:${PYTHON}-slim
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels streaming-hub \
    && useradd --system --uid 10001 --create-home hub \
    && install --directory --owner hub /data
USER hub
WORKDIR /home/hub
ENV PYTHONUNBUFFERED=1 \
    STREAMING_HUB_DATA_DIR=/data \
    STREAMING_HUB_HTTP_LISTEN_ADDR=0.0.0.0:8080
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=60s --retries=6 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/healthz', timeout=2)"]
CMD ["faust", "-L", "uvloop", "-A", "hub_app", "worker"]
