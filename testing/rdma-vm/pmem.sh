# Runs in the guest: checks which writes over provider CHECK survived the last power failure, then writes over provider
# WRITE until the power fails.
set -eu
export LD_LIBRARY_PATH=/share
# Disables writeback: the kernel writes pages to the disk only when a program synchronizes them.
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
