#!/bin/sh
# Runs a command where names and addresses are those of the guest of `cargo xtask rdma-vm`: in namespaces of its own, with
# 10.9.0.1 and fd09::1 as addresses of the host itself, and the files of a folder in place of those in /etc.
# Status 77: no such namespace can be made here.
# usage: namespace.sh FOLDER COMMAND...
set -eu
if [ "$1" = --inside ]; then
	shift
	for file in "$1"/*; do mount --bind "$file" "/etc/${file##*/}"; done
	ip link set lo up
	ip addr add 10.9.0.1/24 dev lo
	ip -6 addr add fd09::1/64 dev lo nodad
	shift
	exec "$@"
fi
unshare --map-root-user --net --mount ip link set lo up || exit 77
exec unshare --map-root-user --net --mount "$0" --inside "$@"
