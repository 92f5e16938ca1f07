#!/usr/bin/env bash
# Makes what the guest boots from: vmlinux and initramfs.cpio, out of Debian's kernel package, which is unpacked and not
# installed. What is there is kept, the unpacked files only while they are newer than this script.
# usage: prepare.sh FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"

# The kernel for servers: that for clouds has neither rdma_rxe nor 9p.
if [[ ! vmlinux -nt $here/prepare.sh ]]; then
	fetch() {
		package=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends: linux-image-/ { print $2; exit }') || true
		[[ -n $package ]] || { echo "this system knows no package linux-image-amd64" >&2; return 1; }
		# Moved when it is whole: an interrupted download would be kept for good.
		rm -rf download && mkdir download && (cd download && apt-get download -q "$package") && mv download/*.deb kernel.deb
	}
	# Lists of packages may be missing, or so old that what they name is gone.
	[[ -e kernel.deb ]] || fetch || { apt-get update -qq && fetch; }
	rm -rf kernel
	mkdir kernel
	dpkg-deb --fsys-tarfile kernel.deb | tar -x -C kernel --wildcards './boot/vmlinuz-*' \
		'./lib/modules/*/kernel/drivers/'{infiniband,virtio,net/dummy.ko} './lib/modules/*/kernel/net/9p' \
		'./lib/modules/*/kernel/fs/'{9p,netfs,fscache,configfs} './lib/modules/*/kernel/net/core/failover.ko' \
		'./lib/modules/*/kernel/'{drivers/block/virtio_blk.ko,fs/ext4,fs/jbd2,fs/mbcache.ko,lib/crc16.ko} \
		'./lib/modules/*/kernel/net/ipv'{4/udp_tunnel.ko,6/ip6_udp_tunnel.ko} \
		'./lib/modules/*/kernel/crypto/crc32'* './lib/modules/*/kernel/lib/libcrc32c.ko'
	# Unpacked here, since that takes seconds in an emulated processor; qemu boots it as it is (CONFIG_PVH). Behind the
	# compressed kernel there is more, which xz does not like.
	magic=$(LC_ALL=C grep -obUaP '\xfd7zXZ\x00' kernel/boot/vmlinuz-* | head -n 1 | cut -d: -f1)
	tail -c "+$((magic + 1))" kernel/boot/vmlinuz-* | xz -dc --single-stream >vmlinux.new 2>/dev/null || true
	[[ $(head -c 4 vmlinux.new) == $'\x7fELF' ]] || { echo "the kernel's image is not as expected" >&2; exit 1; }
	mv vmlinux.new vmlinux
fi

rm -rf root
mkdir -p root/{bin,modules,proc,sys,dev,new}
cp "$(command -v busybox)" root/bin/busybox
for tool in sh mount mkdir insmod cat ln tar switch_root; do ln -s busybox "root/bin/$tool"; done

# Lists a module after those that it needs, which each says in itself.
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
# Makes the list of the modules of a part of the tests, in the order in which to load them.
modules() {
	local -A seen=()
	local part=$1 module
	shift
	for module in virtio_pci 9pnet_virtio 9p "$@"; do add "$module"; done
}
# rxe and ext4 ask for checksums by name, so that nothing depends on their modules.
modules rdma crc32_generic crc32c_generic dummy rdma_ucm rdma_rxe
modules pmem crc32c_generic virtio_blk ext4

install -m 755 "$here/init" root/init
(cd root && find . | cpio -o -H newc --quiet -R 0:0) >initramfs.cpio
