#!/usr/bin/env bash
# A Docker engine and a base image for tests/e2e/test_compose.py, then the command that is given: engine.sh COMMAND...
# An engine that runs is used as it is. Otherwise one is started from Debian's packages (as root), in a folder of its own
# below $FEDIVON_ENGINE (default: /var/tmp/fedivon-engine), and ended after the command; the folder stays, for its layers save
# ten minutes the next time. Where python:3.11-slim cannot be pulled, debootstrap makes the base image.
set -euo pipefail

say() { echo "engine: $*" >&2; }
started=()
shelf=
finish() { [ -z "$shelf" ] || rm -rf "$shelf"; for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; done; }
trap finish EXIT

install() {
    [ $# -gt 0 ] || return 0
    say "installing $*"
    apt-get update >/dev/null && apt-get install --yes --no-install-recommends "$@" >/dev/null
}

folder=${FEDIVON_ENGINE-/var/tmp/fedivon-engine}
mkdir -p "$folder"
if ! docker info >/dev/null 2>&1; then
    [ "$(id -u)" = 0 ] || { say "no engine runs, and only root can start one"; exit 1; }
    packages=()
    command -v dockerd >/dev/null || packages+=(docker.io)
    docker compose version >/dev/null 2>&1 || command -v docker-compose >/dev/null || packages+=(docker-compose)
    command -v iptables >/dev/null || packages+=(iptables)
    install "${packages[@]}"
    export DOCKER_HOST=unix://$folder/docker.sock
    for driver in overlay2 vfs; do # vfs works everywhere, and copies every layer
        say "starting dockerd with $driver, log in $folder/dockerd.log"
        dockerd --storage-driver $driver --data-root "$folder/data-$driver" --exec-root "$folder/exec" -H "$DOCKER_HOST" \
            --pidfile "$folder/pid" >"$folder/dockerd.log" 2>&1 &
        pid=$!
        for _ in $(seq 60); do
            docker info >/dev/null 2>&1 && break 2
            kill -0 $pid 2>/dev/null || break
            sleep 1
        done
        kill $pid 2>/dev/null || true
        wait $pid 2>/dev/null || true
    done
    docker info >/dev/null 2>&1 || { say "no engine: see $folder/dockerd.log"; exit 1; }
    started+=("$pid")
fi

if [ -z "${FEDIVON_BASE_IMAGE-}" ] && ! docker image inspect python:3.11-slim >/dev/null 2>&1 && ! docker pull --quiet python:3.11-slim 2>/dev/null; then
    export FEDIVON_BASE_IMAGE=fedivon-base
    if ! docker image inspect $FEDIVON_BASE_IMAGE >/dev/null 2>&1; then
        say "python:3.11-slim cannot be pulled: debootstrap makes a base image"
        command -v debootstrap >/dev/null || install debootstrap
        root=$(mktemp -d)
        debootstrap --variant=minbase --include=python3,python3-venv,python3-pip,ca-certificates bookworm "$root" >"$folder/debootstrap.log"
        tar -C "$root" -c . | docker import - $FEDIVON_BASE_IMAGE >/dev/null
        rm -rf "$root"
    fi
    # Such a host reaches its package index as pip's settings say: by the host's network, its authorities and its folders.
    export FEDIVON_BUILD_NETWORK=host FEDIVON_TRUST=${PIP_CERT-}
    port=${FEDIVON_SHELF_PORT-18877} # always the same, for it is part of what the layers are known by
    shelf=$(mktemp -d) # what is served to the build: links to pip's own folders
    served() { # an index is read beside its files, so its parent is linked
        for word in $2; do
            case $word in
                /* | file://*)
                    path=${word#file://}
                    if [ "$1" = index ]; then linked=$(dirname "$path"); else linked=$path; fi
                    mkdir -p "$shelf$(dirname "$linked")"
                    ln -sfn "$linked" "$shelf$linked"
                    echo "http://127.0.0.1:$port$path/"
                    ;;
                *) echo "$word" ;;
            esac
        done | xargs
    }
    setting() { python3 -m pip config get "$1" 2>/dev/null || true; }
    FEDIVON_PIP_FIND_LINKS=$(served folder "${PIP_FIND_LINKS-$(setting global.find-links)}")
    FEDIVON_PIP_EXTRA_INDEX_URL=$(served index "${PIP_EXTRA_INDEX_URL-$(setting global.extra-index-url)}")
    export FEDIVON_PIP_FIND_LINKS FEDIVON_PIP_EXTRA_INDEX_URL
    (cd "$shelf" && exec python3 -m http.server "$port" --bind 127.0.0.1) >"$folder/http.log" 2>&1 &
    started+=($!)
    sleep 1
    kill -0 $! 2>/dev/null || { say "port $port is taken: set FEDIVON_SHELF_PORT"; exit 1; }
fi
"$@"
