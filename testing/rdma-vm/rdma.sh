# Runs in the guest: both implementations of rdma_getaddrinfo on a software RDMA device.
set -eu
cd /share
# The module has created the interface, which has no peer. A large MTU gives rxe its largest packets.
ip link set dummy0 address 02:00:00:00:00:01 mtu 4200 up
ip addr add 10.9.0.1/24 dev dummy0
ip -6 addr add fd09::1/64 dev dummy0 nodad
rdma link add rxe0 type rxe netdev dummy0
rdma link
./rows librdmacm.so.1 >librdmacm.rows
./rows ./librdmaaddrinfo.so.1 >ours.rows
# The last one is a name with addresses of both families.
for node in 10.9.0.1 fd09::1 rxe; do
	for type in RC UD; do
		LD_PRELOAD=/share/librdmaaddrinfo.so.1 timeout 60 ./ep librdmaaddrinfo "$node" "$type"
	done
done
