# One image for the SuperLink, the SuperNodes and the runner.
ARG BASE_IMAGE=python:3.11-slim
FROM ${BASE_IMAGE} AS build
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_FIND_LINKS
WORKDIR /app
COPY . .
# An argument that was not given is empty here, which pip would take for an address.
RUN for name in PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_FIND_LINKS; do \
        if [ -z "$(printenv $name)" ]; then unset $name; fi; \
    done && \
    python3 -m venv /venv && /venv/bin/pip install --no-cache-dir --editable .

FROM ${BASE_IMAGE}
RUN useradd --create-home fedivon && mkdir -p /flwr /runs /data && chown fedivon /flwr /runs /data
COPY --from=build /venv /venv
COPY --from=build --chown=fedivon /app /app
ENV PATH=/venv/bin:$PATH FLWR_HOME=/flwr FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 FLWR_TELEMETRY_ENABLED=0
USER fedivon
WORKDIR /app
