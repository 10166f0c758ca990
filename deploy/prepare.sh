#!/bin/sh
# Makes the keys that are missing, and hands the folders of the host to the image's user: prepare.sh "HOSTS" "SITES"
# [EXPERIMENT]; with an experiment, each site that has no file gets its part of those data.
# Runs as root, for it is the host's root who owns a folder that Docker had to make, and without a network.
set -eu
fedivon keys /keys --host $1 --site $2
chown -R fedivon: /keys
chown -R fedivon: /runs
if [ -n "${3-}" ]; then fedivon deal "$3" --to /data --site $2; fi
