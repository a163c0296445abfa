#!/usr/bin/env bash
# tests/cast-trust.sh: whom sender and receivers of a cast trust. An attacker who sees all of the link repeats, changes, cuts and
# invents 10,000 datagrams a second, in the name of sender and receivers, and answers joins in the sender's place; a rogue casts
# another disk under the same name; machines without the join key, or with another one, want to take part. No receiver may end, or
# have a wrong byte, and nobody may answer a stranger's datagrams with more bytes than they have. So it is for a cast of an origin. The
# times with and without the attacker are printed; bench/attack.sh compares medians.
. "$(dirname "$0")/lib.sh"

ROOM=$ROOT/lab/room
export PLATTER_ROOM=$WORK/room
need_root "a room of namespaces" || { finish; exit 0; }

case ${PLATTER_SIZE:-quick} in full) mib=400 rate=400M ;; *) mib=48 rate=200M ;; esac
declare -A pids=() targets=()
suite_cleanup() {
	[ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null
	[ -z "$ORIGIN" ] || kill -9 "$ORIGIN" 2>/dev/null
	"$ROOM" down
}

# Two disks of one name, in two stores.
make_store() { # STORE KEY MIB
	file_tree "$WORK/tree" "$3" "$2"
	ext4_image "$WORK/disk" $(($3 * 2 + 8)) "$WORK/tree"
	rm -rf "$WORK/tree"
	"$PLATTER" --store "$1" --quiet init >/dev/null
	"$PLATTER" --store "$1" --quiet capture "$WORK/disk" lab/disk >/dev/null
}
score_of() { "$PLATTER" --store "$1" --quiet --json show lab/disk | jq -r '[.. | .score? // empty] | first'; }
make_store "$WORK/rogue" rogue 4
make_store "$STORE" right "$mib"
platter export lab/disk "$WORK/right" >/dev/null
score=$(score_of "$STORE")
rogue_score=$(score_of "$WORK/rogue")

# start NAME COMMAND...: in the background, with its output in NAME.out and NAME.err
start() {
	local name=$1
	shift
	"$@" >"$WORK/$name.out" 2>"$WORK/$name.err" </dev/null &
	pids[$name]=$!
}
# receive I NAME OPTION...: on machine I, to a loop device with 0xAA on it
receive() {
	new_target "$1"
	start "receive-$1" "$ROOM" in "$1" timeout 300 "$PLATTER" --json receive "$2" "${targets[$1]}" --interface eth0 --hello "receiver-$1" --free zero --yes "${@:3}"
}
new_target() { # I
	head -c "$(stat -c %s "$WORK/right")" /dev/zero | tr '\0' '\252' >"$WORK/target-$1"
	attach "$WORK/target-$1"
	targets[$1]=$DEVICE
}
drop_target() { # I
	detach_loop "${targets[$1]}"
	rm -f "$WORK/target-$1"
}
cast() { # MACHINE NAME STORE COUNT OPTION...
	start "$2" "$ROOM" in "$1" timeout 300 "$PLATTER" --store "$3" --quiet --json cast lab/disk --interface eth0 --receivers "$4" --wait "${wait:-120}" --give-up 120 --rate "$rate" "${@:5}"
}
# ended CODE NAME WHAT
ended() {
	local code=0
	wait "${pids[$2]}" || code=$?
	unset "pids[$2]"
	cat "$WORK/$2.out" "$WORK/$2.err" >"$LOG"
	if [ "$code" = "$1" ]; then ok "$3 ends with $1"; else not_ok "$3 ends with $code, not $1"; fi
}
stopped() { # NAME...: stops what goes on for ever
	local name
	for name in "$@"; do
		kill "${pids[$name]}" 2>/dev/null || true
		wait "${pids[$name]}" 2>/dev/null || true
		unset "pids[$name]"
	done
}
received() { # I: receiver I has the right disk
	ended 0 "receive-$1" "$room: receiver $1"
	blockdev --flushbufs "${targets[$1]}"
	check "$room: receiver $1 has the disk" cmp "${targets[$1]}" "$WORK/right"
	drop_target "$1"
}
says() { # NAME WHAT WORDS
	check "$room: $2" until_true 60 grep -qE "$3" "$WORK/$1.err"
}
last() { jq -s "map(.cast // .) | last | $1" "$WORK/$2.out"; }

# On machine 3, which sees all packets of the room.
attacker() { # NAME COMMAND ARGUMENT...: tests/cast_disturber.py in the background
	"$ROOM" in switch ip link set bridge0 type bridge ageing_time 0
	start "$1" "$ROOM" in 3 "$TESTS/cast_disturber.py" "$2" 10.78.0.3 "${@:3}"
}
# attacks STORE: when it knows the cast, a rogue casts this store on machine 4; returns when both are busy
attacks() {
	until_true 60 grep -q attacking "$WORK/attacker.out" || not_ok "$room: the attacker sees no cast"
	cast 4 rogue "$1" 1
	check "$room: it attacks" until_true 60 grep -q 'sent 10000' "$WORK/attacker.out"
}
# The attack leaves nothing but counters on these machines.
rejected() { # WHY I...: why the rogue is ignored
	local receiver why=$1
	shift
	for receiver in "$@"; do
		check "$room: receiver $receiver rejected forged and repeated datagrams, and nothing else happened" \
			jq -e '.rejected_datagrams > 100 and .repeated_datagrams > 100 and .fetched_chunks == 0' "$WORK/receive-$receiver.out"
		check "$room: receiver $receiver names the rogue" grep -q "ignored the sender of .* at 10.78.0.4:7580: $why" "$WORK/receive-$receiver.err"
	done
}

# The same cast, alone and with the attacker and a rogue; with a join key and without.
under_attack() { # WHAT OPTION...: the options of both sides
	local what=$1 attacked seconds=()
	shift
	for attacked in no yes; do
		room="$what, attacked: $attacked"
		"$ROOM" up 4 1gbit
		if [ "$attacked" = yes ]; then
			attacker attacker attack "$WORK/former"
		else
			attacker recorder record "$WORK/former"
		fi
		# The first receiver starts before the attacker has heard anything, the second one while it attacks.
		cast sender cast "$STORE" 2 "$@"
		receive 1 "$score" "$@"
		[ "$attacked" = no ] || attacks "$WORK/rogue"
		receive 2 "$score" "$@"
		received 1
		received 2
		ended 0 cast "$room: the sender"
		check "$room: the sender lists two verified results" test "$(last '[.receivers[] | select(.state == "done")] | length' cast)" = 2
		seconds+=("$(last .seconds cast)")
		if [ "$attacked" = yes ]; then
			rejected 'it casts another disk' 1 2
			check "$room: the sender rejected datagrams" test "$(last .rejected_datagrams cast)" -gt 100
			tail -n 1 "$WORK/attacker.out"
			stopped attacker rogue
		else
			stopped recorder
			check "$room: the attacker has recorded it" test "$(stat -c %s "$WORK/former")" -gt 100000
		fi
		"$ROOM" down
	done
	echo "# $what: ${seconds[0]} s, attacked ${seconds[1]} s"
}
under_attack "without a join key"
head -c 32 /dev/urandom >"$WORK/key"
chmod 600 "$WORK/key"
under_attack "with a join key" --key-file "$WORK/key"

# What a stranger's datagrams cause others to send, in bytes on the link. Two receivers have joined a cast that waits for more, and
# a third one waits for another disk. A twentieth of what they send anyway may be chance.
sent_by() { # MACHINE...
	local machine
	for machine in "$@"; do "$ROOM" in "$machine" ip -s -j link show eth0; done | jq -s 'map(.[0].stats64.tx.bytes) | add'
}
# probe KIND COUNT: sets `answered` and `brought`, by the attacker, to what is sent while it sends these datagrams
probe() {
	local others before
	others=$(sent_by sender 1 2 4)
	before=$(sent_by 3)
	"$ROOM" in 3 "$TESTS/cast_disturber.py" probe 10.78.0.3 "$WORK/former" "$@" "$rogue_score"
	answered=$(($(sent_by sender 1 2 4) - others))
	brought=$(($(sent_by 3) - before))
}
answers() { # WHAT OPTION...
	room="answers, $1"
	shift
	"$ROOM" up 4 1gbit
	"$ROOM" in switch ip link set bridge0 type bridge ageing_time 0
	wait=600 cast sender cast "$STORE" 3 "$@"
	receive 1 "$score" "$@"
	receive 2 "$score" "$@"
	receive 4 "$rogue_score" "$@"
	says receive-1 "receiver 1 joins" 'joined the cast of'
	says receive-2 "receiver 2 joins" 'joined the cast of'
	local kind quiet answered brought
	probe nothing 100
	quiet=$answered
	for kind in repeated changed cut other-session highest-number invented feedback announcement former former-renumbered; do
		probe "$kind" 100
		echo "# $kind: $brought bytes brought, $answered sent by all others, $quiet without an attacker" | tee "$LOG"
		check "$room: $kind: no more bytes than it brought" test "$((answered - quiet * 21 / 20))" -le "$brought"
	done
	check "$room: all still wait" kill -0 "${pids[cast]}" "${pids[receive-1]}" "${pids[receive-2]}" "${pids[receive-4]}"
	stopped cast receive-1 receive-2 receive-4
	drop_target 1
	drop_target 2
	drop_target 4
	"$ROOM" down
}
answers "without a join key"
answers "with a join key" --key-file "$WORK/key"

# A cast of an origin, whose announcements name no image. The rogue casts the right disk, without the origin's key.
room="a cast of an origin"
"$ROOM" up 4 1gbit
secret=$(origin_secret read 'lab/*')
"$ROOM" in sender "$PLATTER" --store "$STORE" serve --listen "unix:$SOCKET" --listen 10.78.0.200:7440 --cast eth0 --cast-rate "$rate" --cast-wait 5 	>"$WORK/origin.log" 2>&1 &
ORIGIN=$!
until_true 60 afar images || not_ok "$room: no origin"
FINGERPRINT=$(sed -n 's/^fingerprint //p' "$WORK/origin.log")
receive_of_origin() { # I
	new_target "$1"
	PLATTER_TOKEN=$secret start "receive-$1" "$ROOM" in "$1" timeout 300 "$PLATTER" --json --server https://10.78.0.200:7440 --fingerprint "$FINGERPRINT" 		receive lab/disk "${targets[$1]}" --interface eth0 --hello "receiver-$1" --free zero --yes
}
attacker attacker attack "$WORK/former"
cp -a "$STORE" "$WORK/copy"
receive_of_origin 1
attacks "$WORK/copy"
receive_of_origin 2
received 1
received 2
rejected 'it casts without a key file' 1 2
tail -n 1 "$WORK/attacker.out"
two_are_done() { afar --json casts --all | jq -se '[.[].receivers[] | select(.state == "done")] | length == 2'; }
check "$room: the origin lists two verified results" until_true 10 two_are_done
stopped attacker rogue
stop_origin TERM
"$ROOM" down

# Who does not have the key is not let in, and is told why.
room="join keys"
"$ROOM" up 3 1gbit
head -c 32 /dev/urandom >"$WORK/other-key"
chmod 600 "$WORK/other-key"
head -c 31 /dev/urandom >"$WORK/short-key"
check_exit "$EXIT_REFUSED" "$room: a short key file is refused" platter receive "$score" "$WORK/target" --key-file "$WORK/short-key" --give-up 1
check_exit "$EXIT_MISSING" "$room: a missing key file" platter receive "$score" "$WORK/target" --key-file "$WORK/none" --give-up 1
cast sender cast "$STORE" 1 --key-file "$WORK/new-key" --linger 1
check "$room: the sender creates the file" until_true 60 test -s "$WORK/new-key"
check "$room: for its user only" test "$(stat -c %a "$WORK/new-key")" = 600
receive 1 "$score"
receive 2 "$score" --key-file "$WORK/other-key"
says receive-1 "a receiver without the key is told" 'ignored the sender of lab/disk@1 at 10.78.0.200:7580: it needs a key file'
says receive-2 "a receiver with another key is told" 'ignored the sender .*: it has another key file'
check "$room: and both wait" kill -0 "${pids[receive-1]}" "${pids[receive-2]}"
stopped receive-1 receive-2
drop_target 1
drop_target 2
# Without announcements, the sender itself refuses.
for key in '' "$WORK/other-key"; do
	check_exit "$EXIT_REFUSED" "$room: a join ${key:+with another key }is refused" "$ROOM" in 1 timeout 60 "$PLATTER" --quiet receive "$score" "$WORK/target" \
		--interface eth0 --sender 10.78.0.200:7580 ${key:+--key-file "$key"}
done
check "$room: nothing was created" test ! -e "$WORK/target"
receive 3 "$score" --key-file "$WORK/new-key"
received 3
ended 0 cast "$room: the sender"
"$ROOM" down

# A rogue casts another disk under the name. It is ignored, and named.
rogue_is_ignored() { # NAME WHY OPTION...: the options of the receiver and of the right sender
	local name=$1 why=$2
	shift 2
	"$ROOM" up 2 1gbit
	cast 2 rogue "$WORK/rogue" 1
	receive 1 "$name" "$@"
	[ -z "$why" ] || says receive-1 "the rogue is named" "ignored the sender of lab/disk@1 at 10.78.0.2:7580: $why"
	if [ "${1:-}" = --key-file ]; then cast sender cast "$STORE" 1 "${@:1:2}"; else cast sender cast "$STORE" 1; fi
	[ -n "$why" ] || says receive-1 "the rogue is named" "ignored the sender of lab/disk@1 at 10.78.0.2:7580: it casts another disk, score $rogue_score"
	received 1
	check "$room: and counted" jq -e '.ignored_senders == 1' "$WORK/receive-1.out"
	ended 0 cast "$room: the sender"
	stopped rogue
	"$ROOM" down
}
room="a rogue, and a score"
rogue_is_ignored "$score" ''
room="a rogue, and a join key"
rogue_is_ignored lab/disk 'it casts without a key file' --key-file "$WORK/key" --trust-any
room="a rogue, and a signature"
"$PLATTER" key create "$WORK/secret" --no-password >/dev/null
platter sign lab/disk --key "$WORK/secret" >/dev/null
"$PLATTER" key trust "$WORK/secret.pub" >/dev/null
rogue_is_ignored lab/disk 'lab/disk@1 is not signed'

finish
