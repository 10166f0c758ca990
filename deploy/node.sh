#!/bin/sh
# The node of a site, from SUPERLINK (HOST:PORT), PARTITION (its number, from 0), NAME (what logs call it) and DATA (its file; empty:
# its part of a common set).
# With keys in /keys/site it uses TLS and says who it is; INSECURE=yes goes without. FEDIVON_NODE=stock runs Flower's own SuperNode.
set -eu
config="partition-id=$PARTITION${NAME:+ name=\"$NAME\"}${DATA:+ data-path=\"$DATA\"} state-path=\"/state\" ${NODE_CONFIG-}"
if [ "${INSECURE-}" = yes ]; then
    set -- --insecure
else
    set -- --root-certificates /keys/site/ca.crt --auth-supernode-private-key /keys/site/node.key
fi
exec fedivon node "$@" --superlink "$SUPERLINK" --isolation subprocess --node-config "$config"
