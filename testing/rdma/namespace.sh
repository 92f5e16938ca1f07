#!/bin/sh
# Runs a command where names and addresses are those of the guest of `cargo xtask rdma-vm`: in namespaces of its own, with
# 10.9.0.1 and fd09::1 as addresses of the host itself, and an /etc that has the files of etc/, those of a folder beside it
# in their place, and little else.
# Status 77: no such namespace can be made here.
# usage: namespace.sh FOLDER COMMAND...    (with whole paths)
set -eu
if [ "$1" = --inside ]; then
	shift
	# Entered first: the place where the new /etc is made may hide the folder.
	cd "$1"
	mount -t tmpfs etc /mnt
	for file in ld.so.cache passwd group; do [ ! -e "/etc/$file" ] || cp "/etc/$file" /mnt/; done
	cp ../etc/* /mnt/
	cp ./* /mnt/
	mount --move /mnt /etc
	cd /
	sh -c "$network"
	shift
	exec "$@"
fi
export network='ip link set lo up && ip addr add 10.9.0.1/24 dev lo && ip -6 addr add fd09::1/64 dev lo nodad'
unshare --map-root-user --net --mount sh -c "$network && mount -t tmpfs etc /mnt" || exit 77
exec unshare --map-root-user --net --mount "$0" --inside "$@"
