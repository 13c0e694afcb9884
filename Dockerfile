# docker build -t traceconv . ; docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/data" traceconv merge ./prof
FROM python:3.13-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev
COPY . /source
RUN pip wheel --no-cache-dir --wheel-dir /wheels /source

FROM python:3.13-slim
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels traceconv \
    && useradd --create-home traceconv
USER traceconv
WORKDIR /data
ENTRYPOINT ["traceconv"]
