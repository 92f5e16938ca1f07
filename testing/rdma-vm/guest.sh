#!/bin/bash
# Runs the tests of one part in the guest, then shuts it down. PART on the kernel's command line names the part.
export PATH=/usr/sbin:/usr/bin LC_ALL=C HOME=/root
mkdir -p /dev/shm && mount -t tmpfs shm /dev/shm
ulimit -l unlimited
ip link set lo up
timeout 240 bash "/share/$PART.sh"
echo $? >/share/status
sync
busybox poweroff -f
