#!/bin/bash
# The guest: a software RDMA device over an interface that leads nowhere, then the tests, then the end.
export PATH=/usr/sbin:/usr/bin LC_ALL=C HOME=/root
mkdir -p /dev/shm && mount -t tmpfs shm /dev/shm
ulimit -l unlimited
ip link set lo up
# The module has made the interface. The large packets give rxe its largest ones.
ip link set dummy0 address 02:00:00:00:00:01 mtu 4200 up
ip addr add 10.9.0.1/24 dev dummy0
ip -6 addr add fd09::1/64 dev dummy0 nodad
rdma link add rxe0 type rxe netdev dummy0 && timeout 240 bash /share/run.sh
echo $? >/share/status
sync
busybox poweroff -f
