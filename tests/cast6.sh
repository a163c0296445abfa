#!/usr/bin/env bash
# tests/cast6.sh: casts over IPv6 multicast, in rooms of network namespaces: machines with IPv6 only, with loss; machines with IPv4 only, IPv6
# only and both that ask one origin; a machine whose IPv4 address has no route; addresses and interfaces that come late; groups, senders and
# interfaces that are named wrongly; and a probe.
. "$(dirname "$0")/lib.sh"
. "$TESTS/rooms.sh"

need_root "a room of namespaces" || { finish; exit 0; }
case ${PLATTER_SIZE:-quick} in full) mib=96 ;; *) mib=20 ;; esac

file_tree "$WORK/tree" "$mib" cast6
ext4_image "$WORK/disk" $((mib * 2)) "$WORK/tree"
rm -rf "$WORK/tree"
platter init >/dev/null
platter capture "$WORK/disk" lab/disk >/dev/null
platter export lab/disk "$WORK/right" >/dev/null
rm "$WORK/disk"
token=$(origin_secret read 'lab/*')

on() { "$ROOM" in "$@"; } # MACHINE COMMAND...
# only_ipv6 MACHINE...: the link-local address stays
only_ipv6() { for machine in "$@"; do on "$machine" ip -4 address flush dev eth0; done; }
only_ipv4() { on "$1" sysctl -q -w net.ipv6.conf.eth0.disable_ipv6=1; }
# link_local MACHINE: prints its link-local address, once it can be used
link_local() {
	until_true 10 eval "on $1 ip -6 -o address show dev eth0 scope link | grep -v tentative | grep -q fe80"
	on "$1" ip -6 -o address show dev eth0 scope link | sed 's/.*inet6 \([^/]*\).*/\1/'
}

# begin I OPTION...: receiver I begins in the background
begin() {
	rm -f "$WORK/target-$1"
	"$ROOM" in "$1" timeout -s KILL 120 "$PLATTER" --json receive lab/disk "$WORK/target-$1" --hello "machine-$1" --free zero --yes --trust-any "${@:2}" \
		>"$WORK/receive-$1.log" 2>&1 &
	pids[$1]=$!
}
# ask I URL OPTION...: the same, from the origin there
ask() {
	rm -f "$WORK/target-$1"
	PLATTER_TOKEN=$token "$ROOM" in "$1" timeout -s KILL 120 "$PLATTER" --json --server "$2" --fingerprint "$FINGERPRINT" receive lab/disk "$WORK/target-$1" \
		--hello "machine-$1" --free zero --yes "${@:3}" >"$WORK/receive-$1.log" 2>&1 &
	pids[$1]=$!
}
# right I GROUP: machine I ends well and has the disk, from a cast to a group that begins so; `alone`: from the origin alone
right() {
	ended 0 "$1" "machine $1 ends well"
	if [ "$2" = alone ]; then
		check "$room: machine $1 got it from the origin alone" grep -q '"way":"origin"' "$WORK/receive-$1.log"
	else
		check "$room: machine $1 got it from a cast to $2" grep -qF "to $2" "$WORK/receive-$1.log"
		check "$room: machine $1 got it by multicast" grep -q '"way":"multicast"' "$WORK/receive-$1.log"
	fi
	check "$room: machine $1 has the disk" cmp "$WORK/target-$1" "$WORK/right"
	rm -f "$WORK/target-$1"
}
# cast N OPTION...: to N receivers, in the background
cast() {
	"$ROOM" in sender timeout -s KILL 120 "$PLATTER" --store "$STORE" --json cast lab/disk --receivers "$1" --wait 60 --give-up 60 --rate 200M "${@:2}" \
		>"$WORK/cast.log" 2>&1 &
	pids[sender]=$!
}
cast_ended() { # CODE WHAT
	local code=0
	wait "${pids[sender]}" || code=$?
	unset "pids[sender]"
	cp "$WORK/cast.log" "$LOG"
	if [ "$code" = "$1" ]; then ok "$room: $2"; else not_ok "$room: $2 (exit code $code)"; fi
}
says() { until_true 20 grep -qE -- "$2" "$WORK/receive-$1.log"; } # I PATTERN
serve() {
	: >"$WORK/origin.log"
	"$ROOM" in sender "$PLATTER" --store "$STORE" serve --listen "unix:$SOCKET" --listen "[::]:7440" "$@" >"$WORK/origin.log" 2>&1 &
	ORIGIN=$!
	if ! until_true 60 afar images || ! until_true 9 grep -q '^fingerprint ' "$WORK/origin.log"; then
		cat "$WORK/origin.log"
		return 1
	fi
	FINGERPRINT=$(sed -n 's/^fingerprint //p' "$WORK/origin.log" | tail -n 1)
}
groups_of() { afar --json casts --all | jq -r --arg name "machine-$1" 'select(any(.receivers[]; .name == $name)) | .group'; } # I

# The room is new: nobody's address can be used yet. One machine names the interface, one its address, one nothing.
room="IPv6 only, 1 % loss"
"$ROOM" up 3 1gbit 1
only_ipv6 sender 1 2 3
cast 3 --interface eth0
begin 1 --interface eth0
begin 2
begin 3 --interface "$(link_local 3)%eth0"
right 1 '[ff12::efff:'
right 2 '[ff12::efff:'
right 3 '[ff12::efff:'
cast_ended 0 "the sender ends well"
check_said "$room: it names group and interface" 'casting to \[ff12::efff:[0-9a-f]+\]:7580; receivers join at \[fe80::[0-9a-f:]+%eth0\]:7580'
check "$room: and what arrived was repaired" jq -se '[.. | .repaired_symbols? // empty] | add > 0' <(grep '^{' "$WORK/cast.log")

room="IPv6 only, without announcements"
for i in 1 2; do
	on "$i" nft 'add table inet deaf; add chain inet deaf input { type filter hook input priority 0; }; add rule inet deaf input ip6 daddr ff12::efff:504c drop'
done
cast 2
address=$(link_local sender)
begin 1 --sender "[$address%eth0]:7580"
begin 2 --sender "[$address]:7580" --interface eth0
right 1 '[ff12::efff:'
right 2 '[ff12::efff:'
cast_ended 0 "the sender ends well"
for i in 1 2; do on "$i" nft delete table inet deaf; done
"$ROOM" down

# Receivers with both families hear casts of both.
room="a group of IPv6"
"$ROOM" up 2 1gbit 0
cast 2 --interface eth0 --group ff15::8000:5
begin 1 --interface eth0
begin 2
right 1 '[ff15::8000:5]:7580'
right 2 '[ff15::8000:5]:7580'
cast_ended 0 "the sender ends well"
cast 2 --interface eth0
begin 1 --interface eth0
begin 2
right 1 '239.255.'
right 2 '239.255.'
cast_ended 0 "IPv4 stays the default"

room="wrong groups, senders and interfaces"
try() { on sender timeout -s KILL 60 "$PLATTER" --store "$STORE" --quiet cast lab/disk --give-up 1 "$@"; }
for group in 10.0.0.1 fe80::1 ::1 ff02::1 ff11::1 'ff12::1%eth0' '[ff12::1]' eth0; do
	check_exit "$EXIT_USAGE" "$room: --group $group" try --group "$group"
done
check_said "$room: the form is told" 'a group is written as 239.255.1.2, or as ff12::8000:1'
check_exit "$EXIT_REFUSED" "$room: a group of IPv6 from an IPv4 address" try --group ff12::8000:1 --interface 10.78.0.200
check_said "$room: the way out is told" 'name the interface'
check_exit "$EXIT_REFUSED" "$room: a group of IPv4 from an IPv6 address" try --group 239.255.1.1 --interface "$(link_local sender)"
check_exit "$EXIT_REFUSED" "$room: an interface that does not exist" try --interface eth7
listen() { on 1 timeout -s KILL 60 "$PLATTER" --quiet receive lab/disk "$WORK/nothing" --trust-any --yes --give-up 1 "$@"; }
for sender in 'fe80::1%eth0' '[fe80::1%]:7580' '[fd78::1%eth0]:7580' '10.78.0.200%eth0:7580' '[ff12::1]:7580'; do
	check_exit "$EXIT_USAGE" "$room: --sender $sender" listen --sender "$sender"
done
check_exit "$EXIT_REFUSED" "$room: two interfaces" listen --sender '[fe80::1%eth0]:7580' --interface lo

room="an IPv4 address without a route"
on 1 ip route del 224.0.0.0/4
check_exit "$EXIT_REFUSED" "$room: is not left for IPv6 in silence" listen
check_said "$room: the way out is told" 'choose an interface'
cast 1 --interface eth0
begin 1 --interface eth0
right 1 '239.255.'
cast_ended 0 "with the interface named, it stays on IPv4"
on sender ip address add fd78::200/64 dev eth0 nodad
serve --cast eth0
ask 1 https://10.78.0.200:7440
right 1 '239.255.'
# The interface is that over which the origin is reached, also over IPv6.
on 1 ip address add fd78::1/64 dev eth0 nodad
ask 1 'https://[fd78::200]:7440'
right 1 '239.255.'
# A room without a router may have link-local addresses only.
ask 1 "https://[$(link_local sender)%eth0]:7440"
right 1 '239.255.'
stop_origin TERM
"$ROOM" down

room="several interfaces with IPv6"
"$ROOM" up 1 1gbit 0
only_ipv6 1
on 1 ip link add eth1 type veth peer name eth2
on 1 ip link set eth1 up
on 1 ip link set eth2 up
until_true 10 eval 'on 1 ip -6 -o address show dev eth1 scope link | grep -v tentative | grep -q fe80'
check_exit "$EXIT_REFUSED" "$room: none is chosen at random" listen
check_said "$room: they are named" 'several interfaces have IPv6 \(.*eth[01].*\): choose one with --interface'
"$ROOM" down

room="another interface with IPv4"
"$ROOM" up 1 1gbit 0
only_ipv6 sender 1
for i in sender 1; do
	link_local "$i" >/dev/null
	on "$i" ip link add other1 type veth peer name other2
	on "$i" ip address add 172.17.0.1/16 dev other1
	on "$i" ip link set other1 up
	on "$i" ip link set other2 up
done
cast 1 --interface eth0
begin 1 --interface eth0
right 1 '[ff12::efff:'
cast_ended 0 "the named interface is used over IPv6"
check_exit "$EXIT_REFUSED" "$room: a group of IPv4 over an interface without it" try --group 239.255.1.1 --interface eth0
check_said "$room: what is missing is told" 'interface eth0 has no IPv4 address'
check_exit "$EXIT_MISSING" "$room: IPv4 over the other one is possible" try --group 239.255.1.1 --interface other1
room="a new IPv6 address, named"
on sender ip address add fd78::200/64 dev eth0
cast 1 --interface fd78::200
on 1 ip address add fd78::1/64 dev eth0
begin 1 --interface fd78::1
right 1 '[ff12::efff:'
cast_ended 0 "the sender waits until it can be used"
room="a port that another program uses"
on 1 ip address add 10.78.0.1/24 dev eth0
on 1 ip route replace 224.0.0.0/4 dev eth0
on 1 python3 -c 'import os, socket, sys, time
print(os.getpid(), file=open(sys.argv[1], "w"))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 7580))
time.sleep(30)' "$WORK/other.pid" &
pids[other]=$!
until_true 10 eval 'on 1 ss -Hlun | grep -q :7580'
check_exit "$EXIT_FAILED" "$room: ends the receiver at once" timeout 10 "$ROOM" in 1 "$PLATTER" --quiet receive lab/disk "$WORK/nothing" --trust-any --yes --interface eth0
check_said "$room: the reason is told" 'Address already in use'
kill "$(cat "$WORK/other.pid")"
wait "${pids[other]}" 2>/dev/null || true
unset "pids[other]"
"$ROOM" down

room="one origin for all"
"$ROOM" up 3 1gbit 0
only_ipv4 1
only_ipv6 2
# Until its link is ready, no address can be used.
for i in sender 2 3; do link_local "$i" >/dev/null; done
on sender ip address add fd78::200/64 dev eth0 nodad
for i in 2 3; do on "$i" ip address add "fd78::$i/64" dev eth0 nodad; done
serve --cast eth0 --cast-rate 100M
ask 1 https://10.78.0.200:7440 --interface eth0
ask 2 'https://[fd78::200]:7440'
ask 3 'https://[fd78::200]:7440' --interface eth0
right 1 '239.255.'
right 2 '[ff12::efff:'
right 3 '239.255.'
for i in 1 3; do check "$room: the origin lists machine $i at IPv4" test "$(groups_of "$i" | cut -c1-8)" = 239.255.; done
check "$room: and machine 2 at IPv6" test "$(groups_of 2 | cut -c1-12)" = '[ff12::efff:'
stop_origin TERM
# It casts over IPv6 only.
serve --cast fd78::200
ask 1 https://10.78.0.200:7440 --interface eth0
ask 3 https://10.78.0.200:7440 --interface eth0
right 1 alone
check "$room: the report says why" grep -q 'no address of its family' "$WORK/receive-1.log"
right 3 '[ff12::efff:'
stop_origin TERM
serve --cast eth0
room="neither family on the interface of the cast"
on 2 ip link add eth1 type veth peer name eth2
ask 2 'https://[fd78::200]:7440' --interface eth1
right 2 alone
check "$room: the report says why" grep -q 'neither an IPv4 nor an IPv6 address' "$WORK/receive-2.log"
stop_origin TERM
"$ROOM" down

room="late addresses"
"$ROOM" up 3 1gbit 0
for i in 1 2; do on "$i" ip address flush dev eth0; done
on 3 ip link set eth0 down
on 3 ip link set eth0 name later0
cast 3 --interface eth0
for i in 1 2 3; do begin "$i" --interface eth0; done
for i in 1 2 3; do check "$room: machine $i says that it waits" says "$i" 'waiting for an address'; done
on 1 ip address add 10.78.0.1/24 dev eth0
# This one gets its IPv6 address first, and hears the cast only when it has one for IPv4, too.
on 2 ip link set eth0 down
on 2 ip link set eth0 up
link_local 2 >/dev/null
sleep 1
on 2 ip address add 10.78.0.2/24 dev eth0
on 3 ip link set later0 name eth0
on 3 ip link set eth0 up
for i in 1 2 3; do right "$i" '239.255.'; done
cast_ended 0 "the sender ends well"
only_ipv6 1 2 3 sender
on 1 ip link set eth0 down
cast 1 --interface eth0
begin 1 --interface eth0
check "$room: over IPv6, it says that it waits" says 1 'waiting for an address'
on 1 ip link set eth0 up
right 1 '[ff12::efff:'
cast_ended 0 "over IPv6, the sender ends well"
"$ROOM" down

room="a probe"
probe() { # CODE N
	local code=0
	on sender timeout 60 "$PLATTER" --json cast --probe --interface eth0 --receivers "$2" --wait 20 --rate 20M >"$WORK/probe.json" 2>"$LOG" || code=$?
	cat "$WORK/probe.json" >>"$LOG"
	if [ "$code" = "$1" ]; then ok "$room: the sender ends with $1"; else not_ok "$room: the sender ends with $code, not $1"; fi
}
take_part() { # I OPTION...
	"$ROOM" in "$1" timeout 60 "$PLATTER" --json receive --probe --hello "machine-$1" "${@:2}" >"$WORK/receive-$1.log" 2>"$WORK/receive-$1.err" &
	pids[$1]=$!
}
finds() { # I CODES
	local receiver=$1
	wait "${pids[$1]}" || true
	unset "pids[$1]"
	cat "$WORK/probe.json" "$WORK/receive-$1.log" "$WORK/receive-$1.err" >"$LOG"
	check_json "$room: the sender finds about machine $1: $2" "$WORK/probe.json" "[.receivers[] | select(.name == \"machine-$receiver\") | [.findings[].code]] == [$2]"
	check_json "$room: machine $1 finds the same" "$WORK/receive-$1.log" "[.findings[].code] == $2"
}
check_json() { if jq -e "$3" "$2" >/dev/null 2>&1; then ok "$1"; else not_ok "$1"; fi; } # NAME FILE FILTER
"$ROOM" up 2 1gbit 0
only_ipv6 sender 1 2
on sender ethtool -K eth0 tx-udp-segmentation off >/dev/null
take_part 1 --interface eth0
take_part 2
probe 0 2
finds 1 '[]'
finds 2 '[]'
check_json "$room: interface, address, group and hop limit" "$WORK/probe.json" \
	'.interface == "eth0" and (.address | startswith("fe80::")) and (.group | startswith("[ff12::efff:")) and .ttl == 1'
check_json "$room: everything arrives" "$WORK/probe.json" \
	'.receivers | all(.family == "IPv6" and .unicast_part == 1 and .neighbour_part == 1 and .feedback_part == 1 and .link_local_part == 1
		and .multicast_part > 0.99 and .packet_bytes_max == 1496 and .announced and .has_querier == null)'
check "$room: the receiver names interface and address" grep -qE 'interface eth0, source address fe80::[0-9a-f:]+, hop limit 1' "$WORK/receive-1.err"
text_of_probe() {
	"$ROOM" in 1 timeout 60 "$PLATTER" --quiet receive --probe >"$WORK/receive-1.log" 2>&1 &
	local receiver=$!
	on sender timeout 60 "$PLATTER" --quiet cast --probe --interface eth0 --receivers 1 --wait 20 --rate 5M
	wait "$receiver"
}
check "$room: as a text" text_of_probe
check_said "$room: what is not looked at is told" 'an MLD querier is not looked for'
# As a switch whose MLD snooping knows no member at this port: only all nodes pass (RFC 4541).
on switch nft 'add table bridge probe; add chain bridge probe forward { type filter hook forward priority 0; }; add rule bridge probe forward oifname "port1" ip6 daddr ff12::/16 drop'
take_part 1 --sender "[$(link_local sender)%eth0]:7580"
probe 1 1
finds 1 '["group_filtered"]'
check "$room: the advice is for IPv6" grep -q 'that is MLD snooping' "$WORK/receive-1.log"
on switch nft delete table bridge probe
on switch ip link set port1 mtu 1400
take_part 1
probe 1 1
finds 1 '["short_packets"]'
"$ROOM" down
finish
