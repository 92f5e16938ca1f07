#!/usr/bin/env bash
# Boots the guest and runs FOLDER/share/PART.sh in it, with the variables. Exits with the status of the script, with 0 if
# the script cut the guest's power, or with 99 if the guest did neither.
# usage: boot.sh FOLDER PART [NAME=VALUE...]    (prepare.sh makes FOLDER; FOLDER/share is /share in the guest)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$1"
part=$2
shift 2
mkdir -p etc
rm -rf share/status etc/* qemu.pid cut
for file in passwd group libibverbs.d ld.so.cache alternatives; do
	[[ ! -e /etc/$file ]] || cp -a "/etc/$file" etc/
done
cp "$here"/../rdma/etc/* etc/
cp "$here/guest.sh" "$here/$part.sh" share/
# One archive, because hundreds of links over 9p take seconds.
tar -C etc -cf share/etc.tar .
share() { echo "local,path=$1,mount_tag=$2,id=$2,security_model=none,multidevs=remap$3"; }
disk=()
# The disk is slowed to 2 MB/s, so that a write that completes too early is cut off by the power failure.
[[ $part != pmem ]] || disk=(-drive file=disk.img,format=raw,if=virtio,throttling.bps-write=2000000)
# Bytes that the emulator has written to the disk file survive its end; the guest's memory does not. Drops Bash's message
# about the killed process.
{
	timeout --kill-after=5 280 qemu-system-x86_64 -M pc -accel tcg,thread=multi,tb-size=256 -cpu max,la57=off -smp 2 \
		-m 1G -nodefaults -no-user-config -display none -serial stdio -monitor none -nic none -no-reboot \
		-pidfile qemu.pid -kernel vmlinux -initrd initramfs.cpio "${disk[@]}" \
		-append "console=ttyS0 quiet panic=-1 mitigations=off nokaslr random.trust_cpu=on PART=$part $*" \
		-virtfs "$(share /usr usr ,readonly=on)" -virtfs "$(share "$PWD/share" share '')" </dev/null 2>&3 |
		while IFS= read -r line; do
			[[ $line != *"cut the power"* ]] || { kill -KILL "$(<qemu.pid)" && : >cut; }
			printf '%s\n' "$line"
		done 2>&3
} 3>&2 2>/dev/null || true
[[ ! -e cut ]] || exit 0
if [[ ! -s share/status ]]; then
	echo "the guest ended without a status" >&2
	exit 99
fi
exit "$(cat share/status)"
