# SPDX-License-Identifier: MIT OR Apache-2.0
# Hosts are network namespaces at one switch, which is another. A test reads this file, which ends them with the test.
# The test has set repo; net, which names of namespaces begin with; and folder, which this file creates and removes.
# shellcheck shell=sh
: "${repo:?}" "${net:?}" "${folder:?}"
passed=0
failed=0

skip() { # REASON
	echo "skipped: $1"
	exit 0
}

[ "$(id -u)" -eq 0 ] || skip "network namespaces need root"
command -v ip >/dev/null || skip "there is no ip: install iproute2"
ip netns add "$net-switch" 2>/dev/null || skip "ip netns add is refused: this system has no network namespaces for us"

mkdir -p "$folder"

end_hosts() {
	for namespace in $(ip netns list | grep -o "^$net-[a-z0-9]*"); do
		processes=$(ip netns pids "$namespace")
		# shellcheck disable=SC2086 # the list is meant to be split
		[ -z "$processes" ] || kill -9 $processes 2>/dev/null || true
		ip netns del "$namespace"
	done
	rm -rf "$folder"
}
trap end_hosts EXIT
trap 'exit 1' INT TERM

ip -n "$net-switch" link add switch type bridge
ip -n "$net-switch" link set switch up

host() { # NAME ADDRESS...
	name=$1
	shift
	ip netns add "$net-$name"
	ip link add eth0 netns "$net-$name" type veth peer name "$name" netns "$net-switch"
	ip -n "$net-switch" link set dev "$name" master switch up
	for address; do
		ip -n "$net-$name" addr add "$address/24" dev eth0
	done
	ip -n "$net-$name" link set lo up
	ip -n "$net-$name" link set eth0 up
}

on() { # HOST COMMAND...
	at=$1
	shift
	ip netns exec "$net-$at" "$@"
}

# sent HOST: bytes that it sent to others
sent() {
	on "$1" cat /sys/class/net/eth0/statistics/tx_bytes
}

# check NAME COMMAND...
check() {
	what=$1
	shift
	if "$@" >"$folder/said" 2>&1; then
		passed=$((passed + 1))
		echo "ok $what"
	else
		failed=$((failed + 1))
		echo "FAIL $what"
		cat "$folder/said"
	fi
}

# refuses PATTERN COMMAND...: fails, and says the pattern
refuses() {
	pattern=$1
	shift
	! "$@" >"$folder/output" 2>&1 && grep -e "$pattern" "$folder/output" >/dev/null || {
		cat "$folder/output"
		return 1
	}
}

# until_says: until FILE has PATTERN, as long as process PID lives
until_says() { # FILE PATTERN PID
	until grep -e "$2" "$1" >/dev/null 2>&1; do
		kill -0 "$3" 2>/dev/null || {
			cat "$1"
			return 1
		}
		sleep 0.1
	done
}

finish() {
	echo "$passed passed, $failed failed"
	[ "$failed" -eq 0 ]
}
