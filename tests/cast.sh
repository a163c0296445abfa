#!/usr/bin/env bash
# tests/cast.sh: one disk is cast to a room of network namespaces, without loss and with 1 % loss, with a late and a killed
# receiver. Every target, a file, must equal the disk, and the sender must report each result. Forged datagrams, a receiver without
# space and one with a hanging disk must not end or stop the cast, one with a slow link must not hold the others, and a link that is
# lost for a while, a connection that dies without a word, an address that changes, or a switch that forgets members must not end it.
# (Other targets: targets.sh.)
. "$(dirname "$0")/lib.sh"
. "$TESTS/rooms.sh"

need_namespaces "$@"
case ${PLATTER_SIZE:-quick} in full) mib=400 receivers=8 ;; *) mib=48 receivers=4 ;; esac

file_tree "$WORK/tree" "$mib" cast
ext4_image "$WORK/disk" $((mib * 2)) "$WORK/tree"
rm -rf "$WORK/tree"
platter init >/dev/null
platter capture "$WORK/disk" lab/disk >/dev/null
platter export lab/disk "$WORK/right" >/dev/null
score=$(platter_json show lab/disk | jq -r '[.. | .score? // empty] | first')

# receive_to I TARGET NAME OPTION...: in the background, on receiver I
receive_to() {
	"$ROOM" in "$1" timeout 120 "$PLATTER" --quiet --json receive "$3" "$2" --interface eth0 --hello "receiver-$1" --free zero --yes --trust-any "${@:4}" \
		>"$WORK/receive-$1.log" 2>&1 &
	pids[$1]=$!
}
# receive I: the same, to the file of receiver I
receive() {
	rm -f "$WORK/target-$1"
	receive_to "$1" "$WORK/target-$1" lab/disk
}
# writes I: receiver I has written 1 MiB or more to its file
writes() { [ "$(stat -c %b "$WORK/target-$1")" -ge 2048 ]; }
# cast_of NAME N OPTION...: to N receivers; its output goes to cast.json
cast_of() {
	local name=$1 count=$2
	shift 2
	"$ROOM" in sender timeout 120 "$PLATTER" --store "$STORE" --quiet --json cast "$name" --interface eth0 --receivers "$count" \
		--wait 60 --give-up 60 "$@" >"$WORK/cast.json" 2>"$LOG"
}
cast() { cast_of lab/disk "$@"; }
no_sender() { ! pgrep -f -- "--store $STORE --quiet --json cast"; }
kill_sender() {
	pkill -9 -f -- "--store $STORE --quiet --json cast" || true
	wait "$sender" || true
	until_true 60 no_sender
}
targets_right() { targets_right_of "$WORK/right" "$@"; } # I...
targets_right_of() { # FILE I...
	local receiver code right=$1
	shift
	for receiver in "$@"; do
		code=0
		wait "${pids[$receiver]}" || code=$?
		unset "pids[$receiver]"
		cp "$WORK/receive-$receiver.log" "$LOG"
		if [ "$code" != 0 ]; then
			not_ok "$room: receiver $receiver ends with $code"
		elif ! cmp "$WORK/target-$receiver" "$right" >"$LOG" 2>&1; then
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

# One receiver is killed and restarted while the cast runs, another comes late. The rate is low, so that both happen in
# the middle.
room="a late receiver, and one that is killed and started again"
"$ROOM" up 3 1gbit 0
receive 1
receive 3
cast 2 --rate 60M &
sender=$!
until_true 60 writes 3 || not_ok "$room: receiver 3 writes nothing"
killed=$(pgrep -P "${pids[3]}") # the receiver itself, below the program that limits its time
kill -9 "$killed"
is_gone() { ! kill -0 "$killed"; }
until_true 60 is_gone
unset 'pids[3]'
receive 2
receive 3
code=0
wait "$sender" || code=$?
if [ "$code" = 0 ]; then ok "$room: the sender ends well"; else not_ok "$room: the sender ends with $code"; fi
targets_right 1 2 3
results_right 3
"$ROOM" down

# A cast in segments, as for disks with more than 64 GiB of data: each receiver, also a late one, takes one at a time, and
# continues with the current segment after the sender was killed and restarted.
room="segments, a late receiver, a killed sender, 1 % loss"
"$ROOM" up 2 1gbit 1
receive 1
cast 1 --rate 40M --segment 16 &
sender=$!
until_true 60 writes 1 || not_ok "$room: receiver 1 writes nothing"
receive 2
until_true 60 writes 2 || not_ok "$room: receiver 2 writes nothing"
kill_sender
cast 2 --rate 100M --segment 16 &
sender=$!
if wait "$sender"; then ok "$room: cast"; else not_ok "$room: cast"; fi
targets_right 1 2
results_right 2
"$ROOM" down

# One link has a twentieth of the speed of the others: they finish while the slow receiver lacks most, and then it finishes.
room="a slow link"
"$ROOM" up 3 1gbit 0
"$ROOM" slow 3 4mbit
for receiver in 1 2 3; do receive "$receiver"; done
cast 3 --rate 80M &
sender=$!
targets_right 1 2
if kill -0 "${pids[3]}" 2>/dev/null; then ok "$room: the others do not wait for it"; else not_ok "$room: the others finish after it"; fi
targets_right 3
if wait "$sender"; then ok "$room: the sender ends well"; else not_ok "$room: the sender fails"; fi
results_right 3
check "$room: the sender tells what limits it" jq -se '[.. | objects | select(.name? == "receiver-3" and .limited_by? == "network")] | length > 0' "$WORK/cast.json"
"$ROOM" down

# The sender's interface is down for 2 s, and its routes with it, as when a driver is reset.
room="a sender whose link is lost for a while"
"$ROOM" up 1 1gbit 0
receive 1
cast 1 --rate 60M &
sender=$!
until_true 60 writes 1 || not_ok "$room: receiver 1 writes nothing"
"$ROOM" in sender ip link set eth0 down
sleep 2
"$ROOM" in sender ip link set eth0 up
"$ROOM" in sender ip route add 224.0.0.0/4 dev eth0
code=0
wait "$sender" || code=$?
if [ "$code" = 0 ]; then ok "$room: the sender ends well"; else not_ok "$room: the sender ends with $code"; fi
targets_right 1
results_right 1
"$ROOM" down

# A firewall forgets the receiver's connection, and drops what belongs to none. The result comes over another one.
room="a connection that dies without a word"
"$ROOM" up 1 1gbit 0
receive 1
cast 1 --rate 60M &
sender=$!
until_true 60 writes 1 || not_ok "$room: receiver 1 writes nothing"
port=$("$ROOM" in 1 ss -Htn state established dst 10.78.0.200 | sed -n 's/.*10\.78\.0\.1:\([0-9]*\) .*/\1/p')
"$ROOM" in 1 nft -f - <<-EOF
	table inet forgetful {
		chain incoming {
			type filter hook input priority 0
			tcp dport $port counter drop
		}
		chain outgoing {
			type filter hook output priority 0
			tcp sport $port counter drop
		}
	}
EOF
targets_right 1
check "$room: the sender has acknowledged its result" jq -e .acknowledged "$WORK/receive-1.log"
if wait "$sender"; then ok "$room: the sender ends well"; else not_ok "$room: the sender fails"; fi
results_right 1
"$ROOM" down

# A receiver gets another address, as from another DHCP server. What it asks for must not vanish.
room="a receiver whose address changes, 1 % loss"
"$ROOM" up 1 1gbit 1
receive 1
cast 1 --rate 60M &
sender=$!
until_true 60 writes 1 || not_ok "$room: receiver 1 writes nothing"
"$ROOM" in 1 ip address add 10.78.0.99/24 dev eth0
"$ROOM" in 1 ip address del 10.78.0.1/24 dev eth0
"$ROOM" in 1 ip address add 10.78.0.99/24 dev eth0 2>/dev/null || true # a secondary one goes with it
targets_right 1
# On a busy machine, it may come back as another receiver, and then this one counts as lost.
wait "$sender" || true
results_right 1
"$ROOM" down

# A switch learns from joins who wants a group, and forgets it in time. The receiver that has lost its sender must tell it again, or it may
# not hear the next one.
room="a switch that has forgotten a receiver"
"$ROOM" up 1 1gbit 0
"$ROOM" in switch ip link set bridge0 type bridge mcast_snooping 1
member() { "$ROOM" in switch bridge mdb "$1" dev bridge0 "${@:2}"; }
is_member() { member show | grep 'port port1 grp 239\.255\.80\.76 '; }
receive 1
cast 1 --rate 60M &
sender=$!
until_true 60 writes 1 || not_ok "$room: receiver 1 writes nothing"
check "$room: it knew it" is_member
kill_sender
member del port port1 grp 239.255.80.76
check "$room: it has forgotten it" eval '! is_member'
check "$room: it is told again" until_true 20 is_member
cast 1 --rate 400M &
sender=$!
targets_right 1
if wait "$sender"; then ok "$room: the sender ends well"; else not_ok "$room: the sender fails"; fi
"$ROOM" down

# disturb I HOW WORDS: tests/cast_disturber.py on machine I, returns when it prints these words; its process is pids[I]
disturb() {
	"$ROOM" in "$1" "$TESTS/cast_disturber.py" "$2" "10.78.0.$1" >"$WORK/disturber.log" 2>&1 &
	pids[$1]=$!
	[ -z "$3" ] || until_true 60 grep "$3" "$WORK/disturber.log" || { cat "$WORK/disturber.log"; return 1; }
}
end_disturber() { # I
	kill "${pids[$1]}" 2>/dev/null || true
	wait "${pids[$1]}" 2>/dev/null || true
	unset "pids[$1]"
}

# Another machine sends wrong symbols of every chunk. One receiver has the score, the other one only a name.
room="a forger"
"$ROOM" up 3 1gbit 0
disturb 3 forge ''
rm -f "$WORK/target-2"
receive 1
receive_to 2 "$WORK/target-2" "$score"
if cast 2 --rate 100M; then ok "$room: cast"; else not_ok "$room: cast"; fi
end_disturber 3
targets_right 1 2
results_right 2
check "$room: what it sent was rejected" jq -se 'all(.rejected_datagrams + .repeated_datagrams > 0 and .fetched_chunks == 0)' "$WORK/receive-1.log" "$WORK/receive-2.log"
check "$room: with a name, the report says that nothing proves the disk" jq -e '.score_given == false and (.notes[] | test("nothing proves"))' "$WORK/receive-1.log"
check "$room: with the score, it does not" jq -e '.score_given and .notes == []' "$WORK/receive-2.log"
"$ROOM" down

# A forged receiver that reports that it has no space.
room="a forged receiver without space"
"$ROOM" up 3 1gbit 0
cast 3 --rate 400M &
sender=$!
if disturb 3 no-room joined; then ok "$room: it joined"; else not_ok "$room: it joined"; fi
receive 1
receive 2
targets_right 1 2
end_disturber 3
code=0
wait "$sender" || code=$?
if [ "$code" = "$EXIT_FAILED" ]; then ok "$room: the sender ends with $code"; else not_ok "$room: the sender ends with $code"; fi
results_right 2
"$ROOM" down

# A disk that accepts no writes: its file system is frozen until the other receiver has finished; in a full run for 40 s.
hanging_disk() {
	room="a disk that hangs"
	truncate -s $((mib * 3))M "$WORK/hanging"
	mke2fs -q -t ext4 "$WORK/hanging"
	mount -o loop "$WORK/hanging" "$MNT"
	fsfreeze --freeze "$MNT"
	"$ROOM" up 2 1gbit 0
	receive 1
	receive_to 2 "$MNT/target" lab/disk --buffer 8
	cast 2 --rate 400M &
	sender=$!
	targets_right 1
	[ "${PLATTER_SIZE:-quick}" = quick ] || sleep 40
	if kill -0 "${pids[2]}"; then ok "$room: meanwhile the disk still hangs"; else not_ok "$room: the disk does not hang"; fi
	fsfreeze --unfreeze "$MNT"
	ended 0 2 "the receiver whose disk hung ends well"
	check "$room: its target is right" cmp "$MNT/target" "$WORK/right"
	if wait "$sender"; then ok "$room: cast"; else not_ok "$room: cast"; fi
	results_right 2
	umount "$MNT"
	"$ROOM" down
}

# A machine that is stopped for 40 s, which is longer than a sender waits for a message.
stopped_machine() {
	room="a machine that is stopped"
	"$ROOM" up 2 1gbit 0
	receive 1
	receive 2
	cast 2 --rate 60M --linger 30 &
	sender=$!
	until_true 60 writes 2 || not_ok "$room: receiver 2 writes nothing"
	kill -STOP "$(pgrep -P "${pids[2]}")"
	sleep 40
	kill -CONT "$(pgrep -P "${pids[2]}")"
	targets_right 1 2
	wait "$sender" || true
	results_right 2
	"$ROOM" down
}

if need_root "mounts"; then hanging_disk; fi
[ "${PLATTER_SIZE:-quick}" = quick ] || stopped_machine
finish
