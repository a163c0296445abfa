#!/usr/bin/env bash
# tests/kill9-origin.sh [CYCLES]
#
# An origin that collects, takes captures, clones and forgotten versions at the same time is killed with SIGKILL at a random
# moment, repeatedly, in one store on tmpfs. A command that succeeded must have had its effect, with the score that it printed;
# one that did not may have had it or not. In the end everything reads back, and nothing is left that nobody needs. A follower
# runs all the time, is killed as well, and has the same in the end. Cycles: 1,000 in full, 8 in quick.
. "$(dirname "$0")/lib.sh"
need_root "a tmpfs" || { finish; exit 0; }

case ${PLATTER_SIZE:-quick} in full) cycles=1000 ;; *) cycles=8 ;; esac
cycles=${1:-$cycles}
# Versions that are kept: more are forgotten. A version has NEW_BYTES of its own.
readonly KEPT=8 NEW_BYTES=1500000

mkdir "$WORK/memory"
mount -t tmpfs -o size=2g tmpfs "$WORK/memory"
STORE=$WORK/memory/store
FOLLOWING=$WORK/memory/following
FOLLOWER=
suite_cleanup() {
	local pid
	for pid in $ORIGIN $FOLLOWER "${running[@]}"; do kill -9 "$pid" 2>/dev/null; done
	umount -l "$WORK/memory"
}

random 4000000 base >"$WORK/base"
next_disk() { # CYCLE
	{ cat "$WORK/base"; random "$NEW_BYTES" "new in $1"; } >"$WORK/disk"
}

# What the store must have: the score of each image. Images in doubt: their command did not report success.
declare -A score=() doubtful=()
# Running commands, by name: what they do, and their process ids.
declare -A running=()
client() { # NAME ARGUMENT...: runs a command at the origin in the background; its output goes to a file of that name
	local name=$1
	shift
	"$PLATTER" --server "unix:$SOCKET" --quiet --json "$@" >"$(output "$name")" 2>"$(output "$name").log" &
	running[$name]=$!
}
output() { echo "$WORK/of-${1//[\/ ]/-}"; }

# an_image KEY: prints one of the images that the store must have, or nothing
an_image() {
	local all=("${!score[@]}")
	[ "${#all[@]}" = 0 ] || printf '%s\n' "${all[@]}" | sort | sed -n "$(($(number "$1" "${#all[@]}") + 1))p"
}

complaints=0
complain() {
	echo "cycle $cycle: $*" | tee -a "$WORK/complaints"
	complaints=$((complaints + 1))
}

# The store has what it must have. An image in doubt is taken as it is, after a writer (`gc --dry-run`) has completed a
# publication of which everything but the catalog's commit was done.
compare_names() {
	local image found
	declare -A has=()
	while read -r image found; do has[$image]=$found; done < <(platter_json images | jq -r '.image + " " + .score')
	for image in "${!doubtful[@]}"; do
		unset "score[$image]"
		[ -z "${has[$image]:-}" ] || score[$image]=${has[$image]}
	done
	doubtful=()
	for image in "${!score[@]}"; do
		[ "${has[$image]:-none}" = "${score[$image]}" ] || complain "$image has ${has[$image]:-no version}, not ${score[$image]}"
	done
	for image in "${!has[@]}"; do
		[ -n "${score[$image]:-}" ] || complain "$image is there although it was forgotten"
	done
}

start_follower() {
	"$PLATTER" --store "$FOLLOWING" follow "unix:$SOCKET" >>"$WORK/follower.log" 2>&1 &
	FOLLOWER=$!
}
kill_follower() { # SIGNAL
	kill "-$1" "$FOLLOWER" 2>/dev/null || true
	wait "$FOLLOWER" 2>/dev/null || true
	FOLLOWER=
}

platter init >/dev/null
"$PLATTER" --store "$FOLLOWING" --quiet init >/dev/null
cycle=0
# Half the duration of undisturbed commands: the range of moments. Most commands are killed then, and many are not.
check "an origin starts" start_origin
next_disk 0
started=$(date +%s%N)
check "undisturbed, a disk is captured" afar capture --raw "$WORK/disk" image/0
check "and garbage collected" afar gc --keep-trash 0 --compact 90 --yes
range_us=$((($(date +%s%N) - started) / 2000))
score[image/0]=$(platter_json images | jq -r .score)
stop_origin TERM
echo "# kills come within $((range_us / 1000)) ms"

# What a command that ended in success has done: nothing about it is in doubt.
note_success() { # NAME
	local image=${1#* }
	case $1 in
	"gc "*) return ;;
	"forget "*) unset "score[$image]" ;;
	*) score[$image]=$(jq -r .score "$(output "$1")") ;;
	esac
	unset "doubtful[$image]"
}

killed=0 succeeded=0
for cycle in $(seq "$cycles"); do
	next_disk "$cycle"
	platter gc --dry-run >"$LOG" 2>&1 || complain "gc --dry-run: $(tail -n 2 "$LOG")"
	compare_names
	start_origin >"$LOG" 2>&1 || complain "the origin does not start: $(tail -n 2 "$LOG")"
	if [ -z "$FOLLOWER" ] || ! kill -0 "$FOLLOWER" 2>/dev/null; then start_follower; fi
	cloned=$(an_image "clone $cycle")
	for forgotten in "$(an_image "forget $cycle")" "$(an_image "forget too $cycle")"; do
		[ "${#score[@]}" -gt "$KEPT" ] || continue
		doubtful[$forgotten]=1
		client "forget $forgotten" forget "$forgotten" --all
	done
	doubtful[image/$cycle]=1
	client "capture image/$cycle" capture --raw "$WORK/disk" "image/$cycle"
	client "gc $cycle" gc --keep-trash 0 --compact 90 --yes
	if [ -n "$cloned" ]; then
		doubtful[copy/$cycle]=1
		client "clone copy/$cycle" clone "$cloned" "copy/$cycle"
	fi
	delay_us=$(number "kill $cycle" "$range_us")
	sleep "$(printf '%d.%06d' $((delay_us / 1000000)) $((delay_us % 1000000)))"
	kill -0 "$ORIGIN" 2>/dev/null || complain "the origin ended: $(tail -n 2 "$WORK/origin.log")"
	stop_origin KILL 2>/dev/null || true
	[ $((cycle % 5)) != 0 ] || kill_follower KILL
	# Clients wait for an origin that restarts, so they end here.
	for name in "${!running[@]}"; do
		kill -9 "${running[$name]}" 2>/dev/null || true
		code=0
		wait "${running[$name]}" 2>/dev/null || code=$?
		case $code in
		0) note_success "$name" && succeeded=$((succeeded + 1)) ;;
		137) killed=$((killed + 1)) ;;
		# Another client forgot it meanwhile.
		"$EXIT_MISSING") ;;
		# The origin was killed before the client was.
		*) grep -qE 'no origin listens|connection was lost' "$(output "$name")" "$(output "$name").log" || complain "$name: exit code $code: $(tail -n 1 "$(output "$name").log")" ;;
		esac
	done
	running=()
	rm -f "$WORK"/of-*
	platter check >"$LOG" 2>&1 || complain "check: $(tail -n 3 "$LOG")"
	[ $((cycle % 50)) != 0 ] || platter check --read-data >"$LOG" 2>&1 || complain "check --read-data: $(tail -n 3 "$LOG")"
done
echo "# $succeeded commands succeeded, $killed were killed with their origin"
check "commands were killed and commands succeeded" [ "$killed" -gt 0 -a "$succeeded" -gt 0 ]
check "no kill lost or undid anything ($complaints complaints)" [ "$complaints" = 0 ]
check "everything reads back" platter check --read-data
check "and what would be freed is counted" platter gc --dry-run
compare_names
check "what was in doubt is there or not ($complaints complaints)" [ "$complaints" = 0 ]

# The follower has the same in the end.
check "the origin starts again" start_origin
[ -n "$FOLLOWER" ] || start_follower
names() { "$PLATTER" --store "$1" --quiet --json images | jq -c '[.image, .number, .score]'; }
same_names() { [ "$(names "$STORE")" = "$(names "$FOLLOWING")" ]; }
check "the follower gets everything" until_true 120 same_names
kill_follower TERM
check "and its data reads back" "$PLATTER" --store "$FOLLOWING" --quiet check --read-data
stop_origin TERM

# What nobody needs is freed, all of it, after the uploads of killed clients are given up.
# A follower that is behind would keep what was forgotten since.
check "the follower is no longer registered" platter copies --remove "$(platter_json copies | jq -r '.followers[0].id')"
check "interrupted uploads are discarded" platter discard-interrupted
check "a collection frees what kills left behind" platter gc --keep-trash 0 --compact 100 --end-leases --yes
check "another one finds nothing" sh -c "'$PLATTER' --store '$STORE' --quiet --json gc --keep-trash 0 --yes | jq -e '.given_up.packs == 0 and .failed == []'"
"$PLATTER" --store "$WORK/memory/fresh" --quiet init >/dev/null
for image in "${!score[@]}"; do platter push "$image" "$WORK/memory/fresh" >"$LOG" 2>&1 || not_ok "$image can be copied"; done
pack_bytes() { "$PLATTER" --store "$1" --quiet --json check | jq .pack_bytes; }
here=$(pack_bytes "$STORE") fresh=$(pack_bytes "$WORK/memory/fresh")
# The history of what was done here, which the fresh store lacks: text, id and place of each change, packed with few others.
changes=$(platter_json log | jq -s 'flatten | length')
echo "# $here bytes of packs with $changes changes, $fresh in a fresh store"
check "without its history the store is at most 1.05 of a fresh one with the same versions" \
	[ $(((here - changes * 200) * 100)) -le $((fresh * 105)) ]
finish
