# What is run in the guest.
set -eu
cd /share
rdma link
./rows librdmacm.so.1 >librdmacm.rows
./rows ./librdmaaddrinfo.so.1 >ours.rows
# The last is a name with both addresses.
for node in 10.9.0.1 fd09::1 rxe; do
	for type in RC UD; do
		LD_PRELOAD=/share/librdmaaddrinfo.so.1 timeout 60 ./ep librdmaaddrinfo "$node" "$type"
	done
done
