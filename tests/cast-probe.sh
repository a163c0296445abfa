#!/usr/bin/env bash
# tests/cast-probe.sh: `platter cast --probe` and `platter receive --probe` in rooms of network namespaces: a good network, a querier,
# multicast that is dropped for one receiver in several ways, loss, a slow port, a small MTU, copies, reordering. Each must be
# recognised, on both sides, and only at the machine that has it. What a stranger repeats and changes counts for nothing.
. "$(dirname "$0")/lib.sh"

ROOM=$ROOT/lab/room
export PLATTER_ROOM=$WORK/room
need_root "a room of namespaces" || { finish; exit 0; }
readonly SENDER=10.78.0.200:7580

declare -A pids=()
suite_cleanup() {
	[ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null
	"$ROOM" down
}

# receive I OPTION...: receiver I takes part, in the background
receive() {
	local receiver=$1
	shift
	"$ROOM" in "$receiver" timeout 60 "$PLATTER" --json receive --probe --interface eth0 --hello "receiver-$receiver" "$@" \
		>"$WORK/receive-$receiver.json" 2>"$WORK/receive-$receiver.err" &
	pids[$receiver]=$!
}
# probe CODE N OPTION...: the sender probes N receivers, and ends with this code
probe() {
	local wanted=$1 count=$2 code=0
	shift 2
	"$ROOM" in sender timeout 60 "$PLATTER" --json cast --probe --interface eth0 --receivers "$count" --wait 20 --rate "${rate:-20M}" "$@" \
		>"$WORK/probe.json" 2>"$WORK/probe.err" || code=$?
	cat "$WORK/probe.json" "$WORK/probe.err" >"$LOG"
	if [ "$code" = "$wanted" ]; then ok "$room: the sender ends with $code"; else not_ok "$room: the sender ends with $code, not $wanted"; fi
}
# ended I: waits for receiver I; sets `code`
ended() {
	code=0
	wait "${pids[$1]}" || code=$?
	unset "pids[$1]"
	cat "$WORK/probe.json" "$WORK/receive-$1.json" "$WORK/receive-$1.err" >"$LOG"
}
holds() { # NAME FILE FILTER
	if jq -se "length == 1 and (.[0] | $3)" "$2" >/dev/null 2>&1; then ok "$1"; else not_ok "$1"; fi
}
# finds I CODE...: both sides say exactly this about receiver I
finds() {
	local receiver=$1 code works=0 wanted
	shift
	wanted=$(printf '%s\n' "$@" | jq -Rsc 'split("\n") | map(select(. != ""))')
	ended "$receiver"
	holds "$room: the sender finds about receiver $receiver: ${*:-nothing}" "$WORK/probe.json" \
		"[.receivers[] | select(.name == \"receiver-$receiver\") | [.findings[].code]] == [$wanted]"
	holds "$room: receiver $receiver finds the same" "$WORK/receive-$receiver.json" "[.findings[].code] == $wanted"
	jq -e .works "$WORK/receive-$receiver.json" >/dev/null 2>&1 || works=1
	if [ "$code" = "$works" ]; then ok "$room: receiver $receiver ends with $works"; else not_ok "$room: receiver $receiver ends with $code"; fi
}
# drops I MATCH: machine I drops what arrives and matches
drops() {
	"$ROOM" in "$1" nft "add table inet probe; add chain inet probe input { type filter hook input priority 0; }; add rule inet probe input $2 drop"
}

room="a good network"
"$ROOM" up 3 1gbit
receive 1
receive 2
receive 3
probe 0 3
# Nothing in this room answers as a querier: that is a warning.
for receiver in 1 2 3; do finds "$receiver" no_querier; done
cp "$WORK/probe.json" "$LOG"
holds "$room: interface, address, group and TTL" "$WORK/probe.json" \
	'.interface == "eth0" and .address == "10.78.0.200" and (.group | startswith("239.255.")) and .ttl == 1'
holds "$room: everything arrives" "$WORK/probe.json" \
	'.receivers | all(.unicast_part == 1 and .neighbour_part == 1 and .feedback_part == 1 and .link_local_part == 1 and .multicast_part > 0.99
		and .packet_bytes_max == 1476 and .announced)'
holds "$room: the rate" "$WORK/probe.json" '.bits_per_second > 15e6 and .bits_per_second < 21e6'
check "$room: the receiver names interface and address" grep -q 'interface eth0, source address 10.78.0.1, TTL 1' "$WORK/receive-1.err"

room="a querier"
"$ROOM" in switch ip link set bridge0 type bridge mcast_snooping 1 mcast_querier 1
receive 1
probe 0 1
finds 1
"$ROOM" down

room="IGMP snooping that drops the group for one"
"$ROOM" up 2 1gbit
# As a switch that knows no member at this port: only 224.0.0.0/24 passes (RFC 4541).
"$ROOM" in switch nft 'add table bridge probe; add chain bridge probe forward { type filter hook forward priority 0; }; add rule bridge probe forward oifname "port1" ip daddr 239.0.0.0/8 drop'
receive 1 --sender $SENDER
receive 2
probe 1 2
finds 1 group_filtered
finds 2 no_querier
holds "$room: and unicast works" "$WORK/receive-1.json" '.unicast_part == 1 and .multicast_part == 0'
check_exit "$EXIT_MISSING" "$room: a receiver that hears no probe ends" "$ROOM" in 1 timeout 20 "$PLATTER" receive --probe --interface eth0 --give-up 1
check_said "$room: and says how to find out why" '--sender ADDRESS:PORT'
check_exit "$EXIT_MISSING" "$room: no sender at this address" "$ROOM" in 1 timeout 20 "$PLATTER" receive --probe --interface eth0 --sender $SENDER --give-up 1
"$ROOM" down

room="multicast that one machine drops"
"$ROOM" up 4 1gbit
drops 1 'meta pkttype multicast meta l4proto udp'
drops 2 'meta l4proto udp'
drops 3 'ip ttl 1 meta l4proto udp'
for receiver in 1 2 3; do receive "$receiver" --sender $SENDER; done
receive 4
probe 1 4
finds 1 no_multicast
finds 2 no_udp
finds 3 router
finds 4 no_querier
"$ROOM" down

room="a firewall of the sender"
"$ROOM" up 1 1gbit
drops sender 'meta l4proto udp'
receive 1
probe 1 1
finds 1 no_feedback no_querier
"$ROOM" down

room="5 % loss"
"$ROOM" up 2 1gbit 5
receive 1
receive 2
probe 0 2
finds 1 lossy no_querier
finds 2 lossy no_querier
holds "$room: both measure it" "$WORK/probe.json" '.receivers | all(.full_loss > 0.03 and .full_loss < 0.07)'
"$ROOM" down

room="a slow port"
"$ROOM" up 2 1gbit
"$ROOM" in sender ethtool -K eth0 tx-udp-segmentation off >/dev/null
"$ROOM" slow 1 10mbit
receive 1
receive 2
rate=40M probe 0 2
finds 1 overrun no_querier
finds 2 no_querier
"$ROOM" down

room="an MTU of 1,400"
"$ROOM" up 2 1gbit
"$ROOM" in sender ethtool -K eth0 tx-udp-segmentation off >/dev/null
"$ROOM" in switch ip link set port1 mtu 1400
receive 1
receive 2
probe 1 2
finds 1 short_packets
finds 2 no_querier
holds "$room: the longest packet" "$WORK/receive-1.json" '.packet_bytes_max == 1400'
"$ROOM" down

room="an address that is lost before a probe is heard"
"$ROOM" up 1 1gbit
receive 1 --give-up 4
check "$room: it listens" until_true 20 grep -q 'source address 10.78.0.1' "$WORK/receive-1.err"
"$ROOM" in 1 ip address flush dev eth0
"$ROOM" in 1 ip link set eth0 down
ended 1
if [ "$code" = "$EXIT_REFUSED" ]; then ok "$room: the receiver is refused"; else not_ok "$room: the receiver ends with $code"; fi
check_said "$room: what is missing is told" 'eth0.* has no IPv4 address|no route to .* over eth0'
"$ROOM" down

room="key files"
"$ROOM" up 3 1gbit
for name in key other-key; do
	head -c 32 /dev/urandom >"$WORK/$name"
	chmod 600 "$WORK/$name"
done
receive 1 --key-file "$WORK/key"
receive 2 --key-file "$WORK/other-key" --sender $SENDER
receive 3 --sender $SENDER
probe 0 1 --key-file "$WORK/key"
finds 1 no_querier
holds "$room: nobody else takes part" "$WORK/probe.json" '.receivers | length == 1'
for receiver in 2 3; do
	ended "$receiver"
	if [ "$code" = "$EXIT_REFUSED" ]; then ok "$room: receiver $receiver is refused"; else not_ok "$room: receiver $receiver ends with $code"; fi
done

# A stranger repeats datagrams of a probe with changes, also in its header and its tag.
room="a stranger"
"$ROOM" in switch ip link set bridge0 type bridge ageing_time 0
"$ROOM" in sender ethtool -K eth0 tx-udp-segmentation off >/dev/null
receive 1
"$ROOM" in 3 timeout 40 python3 -c '
import socket, time
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
raw.bind(("eth0", 0))
raw.settimeout(1)
end, sent = time.time() + 30, 0
while time.time() < end and sent < 3000:
    try:
        frame = bytearray(raw.recv(2048))
    except TimeoutError:
        continue
    # UDP over IPv4; datagrams of a probe: version 1, type 6
    if frame[12:14] != b"\x08\x00" or frame[23] != 17 or frame[42:44] != b"\x01\x06":
        continue
    frame[40:42] = b"\0\0"  # no checksum
    for place in (46, 60, 64, len(frame) - 1):
        changed = bytearray(frame)
        changed[place] ^= 1
        sent += raw.send(changed) > 0
print(sent, flush=True)
' >"$WORK/stranger" 2>&1 &
pids[stranger]=$!
probe 0 1
finds 1 no_querier
wait "${pids[stranger]}" || true
unset "pids[stranger]"
cp "$WORK/stranger" "$LOG"
check "$room: has sent" test "$(cat "$WORK/stranger")" -ge 3000
holds "$room: counts for nothing" "$WORK/probe.json" '.receivers | length == 1 and all(.unicast_part == 1 and .full_loss < 0.01 and .repeated_datagrams == 0)'
"$ROOM" down

room="usage"
check_exit "$EXIT_USAGE" "$room: a probe has no version" platter cast lab/disk --probe
check_exit "$EXIT_USAGE" "$room: a probe has no target" platter receive --probe "$WORK/target"
check_exit "$EXIT_USAGE" "$room: a probe verifies nothing" platter receive --probe --verify
check_exit "$EXIT_USAGE" "$room: a probe asks no origin" platter --server https://127.0.0.1:1 receive --probe
check_exit "$EXIT_USAGE" "$room: nor does its sender" platter --server https://127.0.0.1:1 cast --probe
finish
