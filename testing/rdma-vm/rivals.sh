# Runs in the guest: the verbs provider beside others on the same software RDMA device, in alternating rounds. Each line of
# the file rivals names a program, what it measured, the round, and the value: half a round trip in microseconds, or
# 2^20 bytes a second.
set -eu
cd /share
ip link set dummy0 address 02:00:00:00:00:01 mtu 4200 up
ip addr add 10.9.0.1/24 dev dummy0
rdma link add rxe0 type rxe netdev dummy0
# The share is slow, and each program reads the library again.
mkdir /run/ours
cp libfabric.so.1 /run/ours/
cp fabric /run/
: >rivals
# Runs a program twice, at first as the server that listens at a port, and prints what the client says.
pair() {
	local port=$1 server
	shift
	timeout 60 "$@" >/run/server 2>&1 &
	server=$!
	for _ in $(seq 100); do
		ss -ltn | grep -q ":$port" && break
		busybox usleep 50000
	done
	timeout 60 "$@" 10.9.0.1 2>&1
	wait "$server"
}
note() { echo "$*" | tee -a rivals; }
pingpong() { pair 47592 fi_pingpong -p verbs -e msg -I "$TRIPS" -S 64 | awk '$1 == 64 { print $7 }'; }
# The GID of 10.9.0.1 is the second one.
perftest() { pair 18515 "$1" -F -d rxe0 -x 1 -s "$2" -n "$3" | awk -v size="$2" -v column="$4" '$1 == size { print $column }'; }
latency_of_ours() { LD_LIBRARY_PATH=/run/ours pingpong; }
latency_of_reference() { pingpong; }
latency_of_perftest() { perftest ib_send_lat 64 "$TRIPS" 6; }
stream_of_ours() {
	LD_LIBRARY_PATH=/run/ours timeout 60 /run/fabric --provider verbs --endpoint msg --address 10.9.0.1 --pattern stream \
		--size "$1" --window 64 --milliseconds "$MILLISECONDS" | awk '{ print $1 / 1.048576 }'
}
stream_of_perftest() { perftest ib_write_bw "$1" $((STREAM / $1)) 4; }
for round in $(seq "$ROUNDS"); do
	programs="ours reference perftest" streams="ours perftest"
	((round % 2)) || programs="perftest reference ours" streams="perftest ours"
	for program in $programs; do
		note "$program latency $round $("latency_of_$program")"
	done
	for size in 65536 1048576; do
		for program in $streams; do
			note "$program stream-$size $round $("stream_of_$program" "$size")"
		done
	done
done
