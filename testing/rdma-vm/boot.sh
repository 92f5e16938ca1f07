#!/usr/bin/env bash
# Boots the guest and runs FOLDER/share/run.sh in it, whose status is this one's; 99 if the guest gave none.
# usage: boot.sh FOLDER    (made by prepare.sh; its folder share is /share in the guest)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$1"
mkdir -p etc
rm -rf share/status etc/*
for file in passwd group libibverbs.d ld.so.cache alternatives; do
	[[ ! -e /etc/$file ]] || cp -a "/etc/$file" etc/
done
cp "$here"/../rdma/etc/* etc/
cp "$here/guest.sh" share/
# One file: hundreds of links over 9p take seconds.
tar -C etc -cf share/etc.tar .
share() { echo "local,path=$1,mount_tag=$2,id=$2,security_model=none,multidevs=remap$3"; }
timeout --kill-after=5 280 qemu-system-x86_64 -M pc -accel tcg,thread=multi,tb-size=256 -cpu max,la57=off -smp 2 -m 1G \
	-nodefaults -no-user-config -display none -serial stdio -monitor none -nic none -no-reboot \
	-kernel vmlinux -initrd initramfs.cpio \
	-append "console=ttyS0 quiet panic=-1 mitigations=off nokaslr random.trust_cpu=on" \
	-virtfs "$(share /usr usr ,readonly=on)" -virtfs "$(share "$PWD/share" share '')" </dev/null || true
if [[ ! -s share/status ]]; then
	echo "the guest ended without a status" >&2
	exit 99
fi
exit "$(cat share/status)"
