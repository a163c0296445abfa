#!/usr/bin/env bash
# bench/fair.sh [MBIT] [CASTS...]
#
# Casts of different disks that share one link of MBIT (default: 100) with a queue of 50 ms: 1, 2, 4 and 8 of them, and one
# beside a TCP flow. Every sender is a machine of its own with a link of that rate; all receivers are on one machine, whose
# link they share. The casts start a second apart. After the last one has started and FAIR_SETTLE seconds, what each
# machine sends in FAIR_WINDOW seconds is its share, and what arrives is what is used of the link. Printed are the medians of
# Jain's index (1 if all shares are equal), of the used part of the link and of the part of what was sent that the queue dropped, or
# of the shares of cast and TCP flow.
. "$(dirname "$0")/lib.sh"
MBIT=${1:-100}
CASTS=("${@:2}")
[ "${#CASTS[@]}" -gt 0 ] || CASTS=(1 2 4 8 tcp)
SETTLE=${FAIR_SETTLE:-8}
WINDOW=${FAIR_WINDOW:-10}
ROOM=$ROOT/lab/room
export PLATTER_ROOM=$WORK/room
bench_cleanup() {
	end_begun
	"$ROOM" down
	umount "$WORK/memory" 2>/dev/null
}
fail() {
	echo "fair: $*" >&2
	tail -n 5 "$WORK"/*.log >&2
	exit 1
}

mkdir "$WORK/memory"
mount -t tmpfs -o size=90% tmpfs "$WORK/memory"
STORE=$WORK/memory/store
new_store
# One disk, in versions that differ by their first block. Alone, a cast sends it for the whole time.
head -c "$((MBIT * (SETTLE + WINDOW + 12) / 8))M" /dev/urandom >"$WORK/memory/disk"
for i in $(seq 8); do
	head -c 4096 /dev/urandom | dd of="$WORK/memory/disk" conv=notrunc status=none
	platter capture "$WORK/memory/disk" "bench/disk-$i" >/dev/null
done
rm "$WORK/memory/disk"

received() { "$ROOM" in sender ip -s -j link show dev eth0 | jq '.[0].stats64.rx.bytes'; }
sends() { [ "$("$ROOM" sent "$1")" -gt 2000000 ]; }
# a_cast I: machine I casts disk I to a receiver on the shared link
a_cast() {
	begin "$WORK/receive-$1.log" "$ROOM" in sender "$PLATTER" --quiet receive "bench/disk-$1" "$WORK/memory/target-$1" \
		--interface eth0 --hello "receiver-$1" --trust-any --yes
	begin "$WORK/cast-$1.log" "$ROOM" in "$1" "$PLATTER" --store "$STORE" --quiet cast "bench/disk-$1" --interface eth0 \
		--rate "${MBIT}M" --receivers 1 --wait 60 --give-up 60
	wait_for sends "$1"
}
tcp_flow() {
	begin "$WORK/take.log" "$ROOM" in sender "$ROOT/bench/one_flow.py" take 7777
	sleep 1
	begin "$WORK/give.log" "$ROOM" in "$1" "$ROOT/bench/one_flow.py" give 10.78.0.200 7777 100000000000
	wait_for sends "$1"
}
# one_run MACHINES: adds the shares of these machines to series share-I, and to jain, used and dropped what they yield
one_run() {
	local i start took before=() shares=() arrived used running
	sleep "$SETTLE"
	running=("${!RUNNING[@]}")
	start=$EPOCHREALTIME arrived=$(received)
	for i in $(seq "$1"); do before[i]=$("$ROOM" sent "$i"); done
	sleep "$WINDOW"
	took=$(calculate "$EPOCHREALTIME - $start") arrived=$(($(received) - arrived))
	for i in $(seq "$1"); do
		shares[i]=$(calculate "($("$ROOM" sent "$i") - ${before[i]}) * 8 / $took / $MBIT / 1e6")
		echo "${shares[i]}" >>"$WORK/times/share-$i"
	done
	for i in "${running[@]}"; do kill -0 "$i" 2>/dev/null || fail "a cast ended too early"; done
	used=$(calculate "$arrived * 8 / $took / $MBIT / 1e6")
	echo "$used" >>"$WORK/times/used"
	awk -v used="$used" -v series="$WORK/times" '{
		for (i = 1; i <= NF; i++) { sum += $i; squares += $i * $i }
		print sum * sum / NF / squares >>(series "/jain")
		print used < sum ? 1 - used / sum : 0 >>(series "/dropped") }' <<<"${shares[*]}"
}
ends() {
	# The end of one side of the TCP flow ends the other.
	end_begun
	"$ROOM" down
	rm -f "$WORK/memory"/target-*
}

heading "Casts on one link of $MBIT Mbit/s with a queue of 50 ms"
for casts in "${CASTS[@]}"; do
	rm -f "$WORK/times"/*
	for _ in $(seq "$RUNS"); do
		machines=$casts
		[ "$casts" != tcp ] || machines=2
		"$ROOM" up "$machines"
		"$ROOM" links "${MBIT}mbit"
		if [ "$casts" = tcp ]; then
			a_cast 1
			tcp_flow 2
		else
			for i in $(seq "$casts"); do a_cast "$i"; done
		fi
		one_run "$machines"
		ends
	done
	if [ "$casts" = tcp ]; then
		result "one cast beside a TCP flow: share of the cast; of TCP" "$(median share-1); $(median share-2)" "cast at least 0.4"
	else
		result "$casts casts: Jain's index; used part of the link" "$(median jain); $(median used)" "at least 0.95; at least 0.92"
		result "$casts casts: part that the queue dropped" "$(median dropped)"
	fi
done
