#!/bin/sh
# Runs a command with the names and addresses of the guest of `cargo xtask rdma-vm`: in its own namespaces, where the host
# has the addresses 10.9.0.1 and fd09::1, and an /etc with little more than the files of etc/, which files of FOLDER
# replace.
# Exits with 77 if such a namespace cannot be made.
# usage: namespace.sh FOLDER COMMAND...    (absolute paths)
set -eu
if [ "$1" = --inside ]; then
	shift
	# Enter the folder first: the mount point of the new /etc may hide it.
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
