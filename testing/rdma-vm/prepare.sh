#!/usr/bin/env bash
# Makes the guest's vmlinux and initramfs.cpio from Debian's kernel package, which it unpacks but does not install. Keeps
# the downloaded package, and the unpacked files while they are newer than this script.
# usage: prepare.sh FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"

# The server kernel, because the cloud kernel has neither rdma_rxe nor 9p.
if [[ ! vmlinux -nt $here/prepare.sh ]]; then
	fetch() {
		package=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends: linux-image-/ { print $2; exit }') || true
		[[ -n $package ]] || { echo "this system knows no package linux-image-amd64" >&2; return 1; }
		# Moved into place when complete, so that an interrupted download is not kept.
		rm -rf download && mkdir download && (cd download && apt-get download -q "$package") && mv download/*.deb kernel.deb
	}
	# The package lists may be missing or outdated.
	[[ -e kernel.deb ]] || fetch || { apt-get update -qq && fetch; }
	rm -rf kernel
	mkdir kernel
	dpkg-deb --fsys-tarfile kernel.deb | tar -x -C kernel --wildcards './boot/vmlinuz-*' \
		'./lib/modules/*/kernel/drivers/'{infiniband,virtio,net/dummy.ko} './lib/modules/*/kernel/net/9p' \
		'./lib/modules/*/kernel/fs/'{9p,netfs,fscache,configfs} './lib/modules/*/kernel/net/core/failover.ko' \
		'./lib/modules/*/kernel/'{drivers/block/virtio_blk.ko,fs/ext4,fs/jbd2,fs/mbcache.ko,lib/crc16.ko} \
		'./lib/modules/*/kernel/net/ipv'{4/udp_tunnel.ko,6/ip6_udp_tunnel.ko} \
		'./lib/modules/*/kernel/crypto/crc32'* './lib/modules/*/kernel/lib/libcrc32c.ko'
	# Unpacked here, because an emulated processor takes seconds for it; qemu boots it unpacked (CONFIG_PVH). The compressed
	# kernel has trailing data, which xz reports as an error.
	magic=$(LC_ALL=C grep -obUaP '\xfd7zXZ\x00' kernel/boot/vmlinuz-* | head -n 1 | cut -d: -f1)
	tail -c "+$((magic + 1))" kernel/boot/vmlinuz-* | xz -dc --single-stream >vmlinux.new 2>/dev/null || true
	[[ $(head -c 4 vmlinux.new) == $'\x7fELF' ]] || { echo "the kernel's image is not as expected" >&2; exit 1; }
	mv vmlinux.new vmlinux
fi

rm -rf root
mkdir -p root/{bin,modules,proc,sys,dev,new}
cp "$(command -v busybox)" root/bin/busybox
for tool in sh mount mkdir insmod cat ln tar switch_root; do ln -s busybox "root/bin/$tool"; done

# Lists a module after its dependencies, which the module files name.
add() {
	local name=${1//-/_} file needed
	[[ -z ${seen[$name]:-} ]] || return 0
	seen[$name]=1
	file=$(find kernel/lib -name "$name.ko" -o -name "${name//_/-}.ko" | head -n 1)
	[[ -n $file ]] || { echo "the kernel has no module $name" >&2; exit 1; }
	for needed in $(strings "$file" | sed -n 's/^depends=//p' | tr , ' '); do add "$needed"; done
	strip --strip-debug -o "root/modules/${file##*/}" "$file"
	echo "${file##*/}" >>"root/modules/$part"
}
# Lists the modules of a part, in loading order.
modules() {
	local -A seen=()
	local part=$1 module
	shift
	for module in virtio_pci 9pnet_virtio 9p "$@"; do add "$module"; done
}
# rxe and ext4 request checksum algorithms by name, so no module lists them as dependencies. A device that goes away is
# taken first from the modules that were loaded last: rdma_cm tells its users, and then ib_uverbs waits for them.
modules rdma crc32_generic crc32c_generic dummy ib_uverbs rdma_ucm rdma_rxe
modules verbs crc32_generic crc32c_generic dummy ib_uverbs rdma_ucm rdma_rxe
modules rivals crc32_generic crc32c_generic dummy ib_uverbs rdma_ucm rdma_rxe
modules pmem crc32c_generic virtio_blk ext4

install -m 755 "$here/init" root/init
(cd root && find . | cpio -o -H newc --quiet -R 0:0) >initramfs.cpio
