# Runs in the guest: the verbs provider on a software RDMA device. SCRIPTS is the number of random scripts of the
# transport suite, ROWS a part of the names of the suites' rows to run; "verbs::" runs everything, "pingpong" only that.
set -eu
cd /share
ip link set dummy0 address 02:00:00:00:00:01 mtu 4200 up
ip addr add 10.9.0.1/24 dev dummy0
rdma link add rxe0 type rxe netdev dummy0
export OFI_VERBS_ADDR=10.9.0.1
export OFI_CONFORMANCE_SCRIPTS=$SCRIPTS
if [[ $ROWS != pingpong ]]; then
	./transports --test-threads 1 --color never "$ROWS"
	./endpoints --test-threads 1 --color never "$ROWS"
	[[ $ROWS == verbs:: ]] || exit 0
fi
# The reference's program over our library, both ends on the device's address.
export LD_LIBRARY_PATH=/share FI_LOG_LEVEL=warn
for kind in rdm msg; do
	timeout 60 fi_pingpong -p verbs -e "$kind" -I 20 -S 65536 &
	server=$!
	for _ in $(seq 50); do
		ss -ltn | grep -q :47592 && break
		busybox usleep 100000
	done
	timeout 60 fi_pingpong -p verbs -e "$kind" -I 20 -S 65536 10.9.0.1
	wait "$server"
done
