# Runs in the guest: the verbs provider on a software RDMA device. RUNS names what runs, separated by commas: "suites" (of
# SCRIPTS random scripts, and the rows whose names contain ROWS), "pingpong", "limits", "faults", "mpi", "cases" (those that the file cases lists).
set -eu
cd /share
ip link set dummy0 address 02:00:00:00:00:01 mtu 4200 multicast on up
ip addr add 10.9.0.1/24 dev dummy0
rdma link add rxe0 type rxe netdev dummy0
export OFI_VERBS_ADDR=10.9.0.1
export OFI_CONFORMANCE_SCRIPTS=$SCRIPTS
runs() { [[ ,$RUNS, == *,$1,* ]]; }
if runs suites; then
	./transports --test-threads 1 --color never "$ROWS"
	./endpoints --test-threads 1 --color never "$ROWS"
fi
export LD_LIBRARY_PATH=/run FI_LOG_LEVEL=warn
# The share is slow, and each program reads the library again.
cp libfabric.so.1 /run/
# The reference's program over our library, both ends on the device's address.
pingpong() {
	timeout 60 fi_pingpong -p verbs -e "$1" -I 20 -S "$2" &
	server=$!
	for _ in $(seq 50); do
		ss -ltn | grep -q :47592 && break
		busybox usleep 100000
	done
	timeout 60 fi_pingpong -p verbs -e "$1" -I 20 -S "$2" 10.9.0.1
	wait "$server"
}
if runs pingpong; then
	for kind in rdm msg; do
		for size in 64 65536; do pingpong "$kind" "$size"; done
	done
	for size in 64 1024; do pingpong dgram "$size"; done
fi
# Runs a case that may lock so many bytes. Its status must be, or not be, 0, and it must say a text.
limited() {
	local bytes=$1 program=$2 case=$3 relation=$4 text=$5 status=0
	cp "cases/$program" /run/
	# Without CAP_IPC_LOCK the limit counts, for root too.
	OFI_TEST_PROVIDER=verbs OFI_TEST_ADDRESS=$OFI_VERBS_ADDR timeout 60 setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock \
		prlimit --memlock="$bytes" "/run/$program" "$case" >/run/said 2>&1 || status=$?
	if ! test "$status" "$relation" 0 || ! grep -q "$text" /run/said; then
		echo "$case with $bytes bytes of locked memory: status $status"
		tail -n 20 /run/said
		exit 1
	fi
}
if runs limits; then
	limited 65536 messages msg_receives_in_order -ne "the limit is 64 KiB in all (ulimit -l)"
	echo "a limit of locked memory is named"
	# Connections share their slots: each with its own would take three times as much.
	limited 8388608 hub rdm_hub_of_many_peers -eq "64 peers were heard and answered"
	echo "64 connections share what may be locked"
	# One that has room for the connections, but not for long messages.
	limited 8388608 messages msg_longest_arrive_whole_or_cut -eq "payloads may lock 4096 KiB, half of the limit (ulimit -l)"
	echo "long messages that may not be locked are copied"
	# The writes in progress leave no room for their target; kept registrations would give way.
	FI_MR_CACHE_MAX_COUNT=0 limited 8388608 rma rma_long_ranges_keep_their_bytes_and_their_order -eq "cannot reach a long payload from"
	echo "long writes whose target may not be locked are copied"
fi
if runs faults; then
	cp faults /run/
	export OFI_TEST_PROVIDER=verbs OFI_TEST_DATAGRAMS=verbs OFI_TEST_ADDRESS=$OFI_VERBS_ADDR
	/run/faults --list | while read -r case _; do
		echo "fault: $case"
		timeout 60 /run/faults "$case" </dev/null
		ip link set dummy0 up
		# A command of the case may still be deleting it.
		while [[ -e /sys/class/infiniband/rxe0 ]]; do
			rdma link delete rxe0 2>/dev/null || busybox usleep 100000
		done
		rdma link add rxe0 type rxe netdev dummy0
	done
fi
if runs mpi; then
	MPIR_CVAR_CH4_NETMOD=ofi MPIR_CVAR_NOLOCAL=1 FI_PROVIDER=verbs LD_LIBRARY_PATH=/run:/share/mpi/lib \
		timeout 100 mpi/bin/mpiexec.hydra -n 2 mpi/rounds
fi
if runs cases; then
	export OFI_TEST_PROVIDER=verbs OFI_TEST_DATAGRAMS=verbs OFI_TEST_ADDRESS=$OFI_VERBS_ADDR
	passed=0 skipped=0 failed=0
	while read -r program case; do
		[[ -e /run/$program ]] || cp "cases/$program" /run/
		status=0
		timeout 60 "/run/$program" "$case" >/run/said 2>&1 </dev/null || status=$?
		case $status in
		0) passed=$((passed + 1)) ;;
		77) skipped=$((skipped + 1)) ;;
		*)
			failed=$((failed + 1))
			printf '%s %s: status %s\n' "$program" "$case" "$status"
			tail -n 20 /run/said
			;;
		esac
	done <cases/list
	echo "cases: $passed passed, $skipped skipped, $failed failed"
	((failed == 0))
fi
