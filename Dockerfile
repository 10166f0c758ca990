# One image for the SuperLink, the proxy before it, the SuperNodes and the one-shot services.
#
# Behind a proxy or with mirrors: BASE_IMAGE (Debian with Python 3.11), PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS,
# APT_MIRROR (a host that has debian/ and debian-security/), and deploy/trust/*.crt, authorities that pip trusts beside its own.
ARG BASE_IMAGE=python:3.11-slim
FROM ${BASE_IMAGE} AS needed
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_FIND_LINKS
WORKDIR /app
COPY pyproject.toml ./
COPY deploy/needed.py deploy/needed.py
COPY deploy/trust deploy/trust
# The dependencies are a layer of their own, which lasts until they change. An argument that was not given is empty here,
# which pip would take for an address.
RUN for name in PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_FIND_LINKS; do \
        if [ -z "$(printenv $name)" ]; then unset $name; fi; \
    done && \
    if ls deploy/trust/*.crt >/dev/null 2>&1; then \
        cat /etc/ssl/certs/ca-certificates.crt deploy/trust/*.crt > /tmp/trust.pem && export PIP_CERT=/tmp/trust.pem; \
    fi && \
    python3 deploy/needed.py pyproject.toml > needed.txt && \
    python3 -m venv /venv && /venv/bin/pip install --no-cache-dir --requirement needed.txt

FROM ${BASE_IMAGE}
ARG APT_MIRROR
ARG FEDIVON_UID=1000
RUN if [ -n "$APT_MIRROR" ]; then \
        find /etc/apt -name '*.list' -o -name '*.sources' | xargs sed -i "s|https\?://deb.debian.org|$APT_MIRROR|"; \
    fi && \
    apt-get update && apt-get install --yes --no-install-recommends nginx-light && rm -rf /var/lib/apt/lists/*
# A new volume takes its owner from the folder that it covers.
RUN useradd --create-home --uid "$FEDIVON_UID" fedivon && \
    mkdir -p /flwr /runs /data /state /keys && chown fedivon: /flwr /runs /data /state /keys
COPY --from=needed /venv /venv
COPY . /app
RUN /venv/bin/pip install --no-cache-dir --no-deps --no-build-isolation --editable /app
ENV PATH=/venv/bin:$PATH FLWR_HOME=/flwr FEDIVON_STATE=/state PYTHONUNBUFFERED=1 \
    FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
USER fedivon
WORKDIR /app
