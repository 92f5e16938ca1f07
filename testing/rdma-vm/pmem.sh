# What is run in the guest: checks what the last power failure left of the writes of provider CHECK, then writes over
# provider WRITE until the power fails.
set -eu
export LD_LIBRARY_PATH=/share
# The kernel writes no page to the disk unless a program asks for it.
echo 0 >/proc/sys/vm/dirty_writeback_centisecs
mkdir /disk
# Replays the journal of the last boot.
mount -t ext4 /dev/vda /disk
if [[ -n ${CHECK:-} ]]; then
	/share/pmem check "/disk/$CHECK"
fi
if [[ -n ${WRITE:-} ]]; then
	OFI_TEST_PROVIDER=$WRITE /share/pmem write "/disk/$WRITE"
fi
