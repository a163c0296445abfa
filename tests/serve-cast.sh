#!/usr/bin/env bash
# tests/serve-cast.sh: an origin casts on demand. Four machines of a room receive two versions at once, with access tokens: each
# version crosses the network about once. A late machine joins, a token that covers another image learns nothing, the origin is killed
# and started again, and machines that a cast does not reach
# get the disk from the origin alone. Two plain casts run at once on one machine; a machine is deaf for a while, and a sender silent.
. "$(dirname "$0")/lib.sh"
. "$TESTS/rooms.sh"

need_namespaces "$@"
case ${PLATTER_SIZE:-quick} in full) mib=96 ;; *) mib=20 ;; esac

declare -A targets=()
over=(--interface eth0)

platter init >/dev/null
for image in lab/one other/two; do
	file_tree "$WORK/tree" "$mib" "$image"
	ext4_image "$WORK/disk" $((mib * 2)) "$WORK/tree"
	rm -rf "$WORK/tree"
	platter capture "$WORK/disk" "$image" >/dev/null
	platter export "$image" "$WORK/right-${image#*/}" >/dev/null
done
rm "$WORK/disk"
# A disk whose only partition is the first disk.
truncate -s $((mib * 2 + 4))M "$WORK/parted"
printf 'label: gpt\nstart=2048, size=%s\n' $((mib * 4096)) | sfdisk -q "$WORK/parted"
dd if="$WORK/right-one" of="$WORK/parted" bs=1M seek=1 conv=notrunc,sparse status=none
platter capture "$WORK/parted" lab/parted >/dev/null
rm "$WORK/parted"
lab=$(origin_secret read 'lab/*')
other=$(origin_secret read 'other/*')

# serve OPTION...: the origin, on the sender of the room; it casts with these options
URL=https://10.78.0.200:7440
serve() {
	"$ROOM" in sender "$PLATTER" --store "$STORE" serve --listen "unix:$SOCKET" --listen 10.78.0.200:7440 "$@" >>"$WORK/origin.log" 2>&1 &
	ORIGIN=$!
	until_true 60 afar images || { cat "$WORK/origin.log"; return 1; }
	FINGERPRINT=$(sed -n 's/^fingerprint //p' "$WORK/origin.log" | tail -n 1)
}
# receive I NAME SECRET OPTION...: in the background on machine I, to a loop device if possible; 0xAA is on it before
receive() {
	local file=$WORK/target-$1
	rm -f "$file"
	targets[$1]=$file
	if [ -z "${CAST_NAMESPACE:-}" ]; then
		head -c $((mib * 2))M /dev/zero | tr '\0' '\252' >"$file"
		attach "$file"
		targets[$1]=$DEVICE
	fi
	PLATTER_TOKEN=$3 "$ROOM" in "$1" timeout -s KILL 240 "$PLATTER" --quiet --json --server "$URL" --fingerprint "$FINGERPRINT" \
		receive "$2" "${targets[$1]}" "${over[@]}" --hello "machine-$1" --free zero --yes "${@:4}" >"$WORK/receive-$1.log" 2>&1 &
	pids[$1]=$!
}
# right I NAME [WAY]: machine I ends well and has the disk, which came by multicast or WAY
right() {
	local target=${targets[$1]}
	ended 0 "$1" "machine $1 ends well"
	check "$room: machine $1 got it by ${3:-multicast}" jq -e --arg way "${3:-multicast}" '.way == $way' "$WORK/receive-$1.log"
	[ ! -b "$target" ] || blockdev --flushbufs "$target"
	check "$room: machine $1 has the disk" cmp "$target" "$WORK/right-$2"
	drop "$1"
}
drop() { # I
	[ ! -b "${targets[$1]}" ] || detach_loop "${targets[$1]}"
	rm -f "$WORK/target-$1"
}
casts() { afar --json casts "$@"; }
# casting N: so many receivers have received something
casting() { casts --all | jq -se --argjson n "$1" '[.[].receivers[] | select(.done_chunks > 0)] | length >= $n'; }

# What the sender's interface has sent, again and again: microseconds before, bytes, microseconds after.
counts_bytes() {
	while echo "${EPOCHREALTIME/./} $("$ROOM" sent sender) ${EPOCHREALTIME/./}"; do sleep 0.3; done >"$WORK/sent"
}
# fastest: the highest rate of two seconds or more, in bits per second. A machine that is late makes it lower, never higher.
fastest() {
	awk 'NF == 3 { from[NR] = $1; bytes[NR] = $2
		for (i in from) if (from[NR] - from[i] >= 2e6 && (rate = (bytes[NR] - bytes[i]) * 8e6 / ($3 - from[i])) > most) most = rate }
		END { printf "%d", most }' "$WORK/sent"
}

room="two versions at once"
"$ROOM" up 5 1gbit 0
# Firewalls that let pass what the README says.
"$ROOM" in sender nft -f - <<-'EOF'
	table inet none {
		chain input {
			type filter hook input priority 0;
			ip daddr 10.78.0.200 tcp dport != { 7440, 7580 } drop
			ip daddr 10.78.0.200 udp dport != 7580 drop
		}
	}
EOF
for i in 1 2 3 4; do
	"$ROOM" in "$i" nft -f - <<-'EOF'
		table inet none {
			chain input {
				type filter hook input priority 0;
				ip daddr 239.255.0.0/16 udp dport 7580 accept
				ip protocol udp drop
			}
		}
	EOF
done
serve --cast eth0 --cast-rate 60M --cast-wait 10
check "$room: nothing is cast before somebody asks" jq -se 'length == 0' <(casts)
before=$("$ROOM" sent sender)
counts_bytes &
pids[counter]=$!
receive 1 lab/one "$lab"
receive 2 lab/one@1 "$lab"
receive 3 other/two "$other"
receive 4 other/two "$other"
check "$room: the origin lists each receiver" until_true 120 casting 4
check "$room: a table for people" eval 'afar casts --all | grep -q "machine-[1-4] .* % of"'
# While both are cast, a token for one image learns nothing of the other one.
as_lab() { PLATTER_TOKEN=$lab "$ROOM" in 5 timeout -s KILL 60 "$PLATTER" --quiet --server "$URL" --fingerprint "$FINGERPRINT" "$@"; }
check "$room: a token lists only casts of its images" jq -se 'length > 0 and all(.version == "lab/one@1")' <(as_lab --json casts --all)
check_exit "$EXIT_MISSING" "$room: a token for another image gets no cast" as_lab receive other/two "$WORK/nothing" --interface eth0
sed 's/other.two/NAME/g' "$LOG" >"$WORK/hidden"
check_exit "$EXIT_MISSING" "$room: nor does an image that does not exist" as_lab receive other/none "$WORK/nothing" --interface eth0
sed 's/other.none/NAME/g' "$LOG" >"$WORK/not-there"
check "$room: both are answered alike" cmp "$WORK/hidden" "$WORK/not-there"
check_exit "$EXIT_MISSING" "$room: and nothing is announced" "$ROOM" in 5 timeout -s KILL 60 "$PLATTER" --quiet receive other/two "$WORK/nothing" \
	--interface eth0 --trust-any --give-up 2
check "$room: the announcements name no cast" eval '! said "casts found"'
right 1 one
right 2 one
right 3 two
right 4 two
kill "${pids[counter]}"
wait "${pids[counter]}" 2>/dev/null || true
unset "pids[counter]"
check "$room: together, they stay below the rate of the origin: $(fastest) of 60,000,000 bits per second" test "$(fastest)" -lt 66000000
check "$room: which was measured while they cast" test "$(fastest)" -gt 1000000
sent=$(($("$ROOM" sent sender) - before))
all=$(casts --all | jq -s 'map(.cast_bytes) | add')
echo "$all bytes cast, $sent sent" >"$LOG"
if [ "$sent" -ge "$all" ] && [ "$sent" -lt $((all * 3 / 2)) ]; then
	ok "$room: each crosses the network about once"
else
	not_ok "$room: $sent bytes were sent for $all bytes cast"
fi
are_done() { casts --all | jq -se '[.[].receivers[] | select(.state == "done")] | length == 4'; }
check "$room: all four are done" until_true 60 are_done
check "$room: one partition of a disk" as_lab receive lab/parted:1 "$WORK/part" --interface eth0 --free zero --yes
check "$room: is what lies in it" cmp "$WORK/part" "$WORK/right-one"
rm -f "$WORK/part"
check "$room: the casts end" until_true 60 eval 'casts | jq -se "length == 0"'
for i in 1 2 3 4; do "$ROOM" in "$i" nft delete table inet none; done

room="a late machine"
stop_origin TERM
serve --cast eth0 --cast-rate 8M --cast-linger 60
receive 1 lab/one "$lab"
until_true 120 casting 1 || not_ok "$room: no cast"
receive 2 lab/one "$lab"
right 1 one
right 2 one
check "$room: one cast serves both" jq -se 'length == 1 and .[0].receivers_total == 2' <(casts --all)

room="an origin that is killed and started again"
kill -9 "$ORIGIN"
wait "$ORIGIN" 2>/dev/null || true
serve --cast eth0 --cast-rate 8M
receive 1 lab/one "$lab"
receive 3 other/two "$other"
until_true 120 casting 2 || not_ok "$room: no casts"
kill -9 "$ORIGIN"
wait "$ORIGIN" 2>/dev/null || true
serve --cast eth0 --cast-rate 100M
right 1 one
right 3 two

room="an origin that begins later"
stop_origin TERM
receive 1 lab/one "$lab"
sleep 2
serve --cast eth0
right 1 one
receive_dead() { as_lab receive lab/one "$WORK/nothing" --interface eth0 --give-up 2; }
stop_origin TERM
began=$SECONDS
check_exit "$EXIT_FAILED" "$room: with --give-up it is not waited for longer" receive_dead
check "$room: but so long" [ $((SECONDS - began)) -ge 2 ]
serve --cast eth0

room="one cast at a time"
stop_origin TERM
serve --cast eth0 --cast-rate 100M --casts-max 1
receive 1 lab/one "$lab"
receive 3 other/two "$other"
right 1 one
right 3 two
check "$room: each was cast" jq -se 'map(.version) | sort == ["lab/one@1", "other/two@1"]' <(casts --all)

room="no multicast"
"$ROOM" in 1 nft -f - <<-'EOF'
	table inet none {
		chain input {
			type filter hook input priority 0;
			ip daddr 239.0.0.0/8 drop
		}
	}
EOF
receive 1 lab/one "$lab" --verify
right 1 one origin
check "$room: the report says why" jq -e '.notes[] | test("does not pass multicast.*sends the disk to this machine alone.*cast --probe")' "$WORK/receive-1.log"
"$ROOM" in 1 nft delete table inet none

room="a firewall before the cast"
"$ROOM" in 1 nft -f - <<-'EOF'
	table inet none {
		chain output {
			type filter hook output priority 0;
			ip daddr 10.78.0.200 tcp dport != 7440 reject with tcp reset
		}
	}
EOF
receive 1 lab/one "$lab"
right 1 one origin
check "$room: the report says why" jq -e '.notes[] | test("cannot be reached")' "$WORK/receive-1.log"
"$ROOM" in 1 nft delete table inet none

room="a machine with IPv6 only"
stop_origin TERM
"$ROOM" in sender ip address add fd78::200/64 dev eth0 nodad
"$ROOM" in 1 ip -4 address flush dev eth0
"$ROOM" in 1 ip address add fd78::1/64 dev eth0 nodad
URL="https://[fd78::200]:7440"
serve --cast eth0 --listen "[fd78::200]:7440"
receive 1 lab/one "$lab"
right 1 one
over=()
receive 1 lab/one "$lab"
right 1 one
over=(--interface eth0)
check "$room: the casts were over IPv6" jq -se 'length > 0 and all(.group | startswith("[ff12::efff:"))' <(casts --all)
"$ROOM" in 1 ip address add 10.78.0.1/24 dev eth0
URL=https://10.78.0.200:7440

# The origin is reached over a network of its own, and casts in the other one. Nobody names an interface.
room="an origin with two networks"
stop_origin TERM
"$ROOM" in sender ip link add eth1 type veth peer name eth1 netns "$(cat "$PLATTER_ROOM/1")"
for machine in sender 1; do
	"$ROOM" in "$machine" ip address add "10.79.0.${machine/sender/200}/24" dev eth1
	"$ROOM" in "$machine" ip link set eth1 up
done
URL=https://10.79.0.200:7440
serve --cast eth0 --listen 10.79.0.200:7440
over=()
receive 1 lab/one "$lab"
right 1 one
over=(--interface eth0)
URL=https://10.78.0.200:7440
"$ROOM" in 1 ip link delete eth1

room="an origin that does not cast"
stop_origin TERM
serve
receive 1 lab/one "$lab"
ended "$EXIT_REFUSED" 1 "a machine that asks is refused"
check_said "$room: the way out is named" 'serve --cast INTERFACE'
drop 1

# Another machine casts a version of the origin in its own room.
quiet=(--quiet)
plain() { # I IMAGE OPTION...
	rm -f "$WORK/plain-$1"
	"$ROOM" in "$1" timeout -s KILL 120 "$PLATTER" "${quiet[@]}" receive "$2" "$WORK/plain-$1" --interface eth0 --trust-any --free zero --yes "${@:3}" >"$WORK/receive-$1.log" 2>&1 &
	pids[$1]=$!
}
room="a cast from an origin"
mkdir -p "$WORK/spool/platter-cast-killed/packs" # as a cast that was killed leaves it
from_origin() { as_lab cast lab/one --interface eth0 --give-up 60 --rate 100M --spool "$WORK/spool" "$@"; }
check_exit "$EXIT_REFUSED" "$room: a version that needs an access token is not cast for everybody" from_origin
check_said "$room: the way out is named" '--key-file, here and at each receiver; or .* --readable'
check "$room: nothing stays of it" rmdir "$WORK/spool"
mkdir "$WORK/spool"
head -c 32 /dev/urandom >"$WORK/cast-key"
plain 1 lab/one --key-file "$WORK/cast-key"
check "$room: with a key file, the sender ends well" from_origin --key-file "$WORK/cast-key"
ended 0 1 "machine 1 ends well"
check "$room: machine 1 has its disk" cmp "$WORK/plain-1" "$WORK/right-one"
plain 1 lab/one
check "$room: readable, on request" from_origin --readable
ended 0 1 "machine 1 ends well"
check "$room: machine 1 has its disk" cmp "$WORK/plain-1" "$WORK/right-one"
check "$room: the copy is removed" rmdir "$WORK/spool"
check_exit "$EXIT_MISSING" "$room: an image that the token does not cover is not found" as_lab cast other/two --readable --interface eth0 --spool "$WORK"
stop_origin TERM

# Two plain casts on one machine, as two commands: the second one uses the next port.
room="two commands"
"$ROOM" in sender nft -f - <<-'EOF'
	flush chain inet none input
	add rule inet none input ip daddr 10.78.0.200 tcp dport != { 7440, 7580-7581 } drop
	add rule inet none input ip daddr 10.78.0.200 udp dport != 7580-7581 drop
EOF
plain 1 lab/one
plain 2 other/two
for image in lab/one other/two; do
	"$ROOM" in sender timeout -s KILL 120 "$PLATTER" --store "$STORE" --quiet cast "$image" --interface eth0 --give-up 60 --rate 100M >"$WORK/cast-${image#*/}.log" 2>&1 &
	pids[${image#*/}]=$!
done
for image in one two; do
	code=0
	wait "${pids[$image]}" || code=$?
	unset "pids[$image]"
	cp "$WORK/cast-$image.log" "$LOG"
	if [ "$code" = 0 ]; then ok "$room: the cast of $image"; else not_ok "$room: the cast of $image ends with $code"; fi
done
ended 0 1 "machine 1 ends well"
ended 0 2 "machine 2 ends well"
check "$room: machine 1 has its disk" cmp "$WORK/plain-1" "$WORK/right-one"
check "$room: machine 2 has its disk" cmp "$WORK/plain-2" "$WORK/right-two"

# Announcements arrive, and the data does not, until later.
quiet=()
room="a deaf machine"
"$ROOM" in 1 nft -f - <<-'EOF'
	table inet none {
		chain input {
			type filter hook input priority 0;
			ip daddr 239.0.0.0/8 ip daddr != 239.255.80.76 drop
		}
	}
EOF
plain 1 lab/one
"$ROOM" in sender timeout -s KILL 120 "$PLATTER" --store "$STORE" --quiet cast lab/one --interface eth0 --give-up 60 --rate 100M >"$WORK/receive-sender.log" 2>&1 &
pids[sender]=$!
check "$room: it says what is wrong" until_true 40 grep -q 'none of its datagrams .* arrived at 10.78.0.1: .*cast --probe.*; trying again' "$WORK/receive-1.log"
"$ROOM" in 1 nft delete table inet none
ended 0 1 "machine 1 ends well once the data arrives"
check "$room: machine 1 has its disk" cmp "$WORK/plain-1" "$WORK/right-one"
ended 0 sender "the sender ends well"

# A sender that announces itself, and does not answer.
room="a silent sender"
"$ROOM" in 4 nft -f - <<-'EOF'
	table inet none {
		chain input {
			type filter hook input priority 0;
			meta l4proto tcp drop
		}
	}
EOF
plain 1 lab/one
"$ROOM" in 4 timeout -s KILL 120 "$PLATTER" --store "$STORE" --quiet cast lab/one --interface eth0 --give-up 40 >"$WORK/cast-silent.log" 2>&1 &
silent=$!
check "$room: the machine says what is wrong" until_true 20 grep -q 'the sender cannot be reached at 10.78.0.4:.*; trying again' "$WORK/receive-1.log"
"$ROOM" in sender timeout -s KILL 120 "$PLATTER" --store "$STORE" --quiet cast lab/one --interface eth0 --give-up 60 --rate 100M >"$WORK/receive-sender.log" 2>&1 &
pids[sender]=$!
ended 0 1 "the machine ends well"
check "$room: it has its disk" cmp "$WORK/plain-1" "$WORK/right-one"
ended 0 sender "the other sender ends well"
kill "$silent" 2>/dev/null || true
wait "$silent" 2>/dev/null || true
"$ROOM" down
finish
