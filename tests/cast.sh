#!/usr/bin/env bash
# tests/cast.sh: one disk cast to a room of network namespaces, without loss and with 1 %, with a late and a killed
# receiver. Every receiver's target is the disk, byte by byte, and the sender tells so of each.
. "$(dirname "$0")/lib.sh"

ROOM=$ROOT/lab/room
export PLATTER_ROOM=$WORK/room
if [ "$(id -u)" != 0 ] && ! unshare --user --map-root-user --net true 2>/dev/null; then
	skip "a room needs root or user namespaces"
	finish
	exit 0
elif [ "$(id -u)" != 0 ] && [ -z "${CAST_NAMESPACE:-}" ]; then
	rm -rf "$WORK"
	exec env CAST_NAMESPACE=1 unshare --user --map-root-user --net --mount "$BASH" "$0" "$@"
fi
case ${PLATTER_SIZE:-quick} in full) mib=400 receivers=8 ;; *) mib=48 receivers=4 ;; esac

declare -A pids=()
suite_cleanup() {
	[ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null
	"$ROOM" down
}

file_tree "$WORK/tree" "$mib" cast
ext4_image "$WORK/disk" $((mib * 2)) "$WORK/tree"
rm -rf "$WORK/tree"
platter init >/dev/null
platter capture "$WORK/disk" lab/disk >/dev/null
platter export lab/disk "$WORK/right" >/dev/null
score=$(platter_json show lab/disk | jq -r '[.. | .score? // empty] | first')

# receive I: in the background, on receiver I
receive() {
	rm -f "$WORK/target-$1"
	"$ROOM" in "$1" timeout 120 "$PLATTER" --quiet --json receive lab/disk "$WORK/target-$1" --interface eth0 --hello "receiver-$1" --free zero \
		>"$WORK/receive-$1.log" 2>&1 &
	pids[$1]=$!
}
# cast N OPTION...: to N receivers; what it says goes to cast.json
cast() {
	local count=$1
	shift
	"$ROOM" in sender timeout 120 "$PLATTER" --store "$STORE" --quiet --json cast lab/disk --interface eth0 --receivers "$count" \
		--wait 60 --give-up 60 "$@" >"$WORK/cast.json" 2>"$LOG"
}
targets_right() { # I...
	local receiver code
	for receiver in "$@"; do
		code=0
		wait "${pids[$receiver]}" || code=$?
		unset "pids[$receiver]"
		cp "$WORK/receive-$receiver.log" "$LOG"
		if [ "$code" != 0 ]; then
			not_ok "$room: receiver $receiver ends with $code"
		elif ! cmp "$WORK/target-$receiver" "$WORK/right" >"$LOG" 2>&1; then
			not_ok "$room: receiver $receiver has wrong bytes"
		else
			ok "$room: receiver $receiver has the disk"
		fi
		rm -f "$WORK/target-$receiver"
	done
}
# Each receiver's verified score on the sender's screen.
results_right() { # COUNT
	cp "$WORK/cast.json" "$LOG"
	local told
	told=$(jq -s --arg score "$score" '[.. | objects | select(.state? == "done" and .score? == $score) | .name] | unique | length' "$WORK/cast.json" || echo 0)
	if [ "$told" -ge "$1" ]; then ok "$room: the sender tells $told verified results"; else not_ok "$room: the sender tells $told verified results of $1"; fi
}

for loss in 0 1; do
	room="$receivers receivers, $loss % loss"
	"$ROOM" up "$receivers" 1gbit "$loss"
	for receiver in $(seq "$receivers"); do receive "$receiver"; done
	if cast "$receivers" --rate 400M; then ok "$room: cast"; else not_ok "$room: cast"; fi
	mapfile -t all < <(seq "$receivers")
	targets_right "${all[@]}"
	results_right "$receivers"
	"$ROOM" down
done

# One receiver is killed while the cast runs, another comes late. Slow enough that both happen in the middle.
room="a late and a killed receiver"
"$ROOM" up 3 1gbit 0
receive 1
receive 3
cast 2 --rate 60M &
sender=$!
sleep 2
kill -9 "$(pgrep -P "${pids[3]}")" || true # the receiver itself, below the program that limits its time
unset 'pids[3]'
sleep 0.5
receive 2
code=0
wait "$sender" || code=$?
# One receiver was lost: that may be told by the exit code; a hang or a panic may not be.
if [ "$code" = 0 ] || [ "$code" = "$EXIT_FAILED" ]; then
	ok "$room: the sender ends with $code"
else
	not_ok "$room: the sender ends with $code"
fi
targets_right 1 2
"$ROOM" down

# Cut into segments, as disks with more than 64 GiB of data are: a receiver takes one at a time, a late one too, and
# goes on from there when the sender was killed and comes again.
room="segments, a late receiver, a killed sender, 1 % loss"
"$ROOM" up 2 1gbit 1
receive 1
cast 1 --rate 40M --segment 16 &
sender=$!
sleep 2
receive 2
sleep 1
pkill -9 -f -- "--store $STORE --quiet --json cast" || true
wait "$sender" || true
cast 2 --rate 100M --segment 16 &
sender=$!
if wait "$sender"; then ok "$room: cast"; else not_ok "$room: cast"; fi
targets_right 1 2
results_right 2
"$ROOM" down
finish
