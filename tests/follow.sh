#!/usr/bin/env bash
# tests/follow.sh: a second store that follows an origin, and its promotion. Every kind of change arrives; the follower refuses its
# own; damage, collection and the hoard; the origin is killed at random moments and its follower promoted, and the origin
# returns; a slow link; an origin that was restored from a backup; conflicts. PLATTER_SEED selects the moments.
. "$(dirname "$0")/lib.sh"

case ${PLATTER_SIZE:-quick} in full) kills=20 ;; *) kills=3 ;; esac
# shellcheck source=tests/stores.sh
. "$(dirname "$0")/stores.sh"

file_tree "$WORK/files" 8 follow
ext4_image "$WORK/first" 48 "$WORK/files"
new_store a
at a capture "$WORK/first" lab/disk --label team=lab >/dev/null
at a export lab/disk@1 "$WORK/first.raw" >/dev/null
at a clone lab/disk lab/clone >/dev/null
at a capture --raw "$(small gone)" lab/gone >/dev/null
at a forget lab/gone --all >/dev/null
at a protect lab/disk@1 >/dev/null
check "an origin answers" serve a
URL=unix:$WORK/a.sock

# The first copy.
new_store own
at own capture --raw "$(small own)" lab/own >/dev/null
check_exit "$EXIT_REFUSED" "a store with versions of its own does not become a follower" at own follow --once "$URL"
check_said "which it says" 'versions of its own'
new_store b
check "the first copy" at b follow --once "$URL"
check "has everything" same_state a b
check "with the right bytes" is_version b lab/disk@1 "$WORK/first.raw"
check "protection, too" sh -c "'$PLATTER' --store '$WORK/b' --json history lab/disk | jq -e 'select(.number == 1).protected'"
arrived() { at_json b log | jq -s -c '[.[] | select(.action == "follow") | [.versions[] | "\(.image)@\(.number)"] | select(. != [])]'; }
check "each version was entered when it had arrived, the oldest first" test "$(arrived)" = '[["lab/disk@1"],["lab/clone@1"]]'
check "and its history" sh -c "'$PLATTER' --store '$WORK/b' log | grep -q 'become a follower'"
check "copies says what it is" sh -c "'$PLATTER' --store '$WORK/b' copies | grep -q 'follower of unix:$WORK/a.sock, at change'"
check "check says it, too" sh -c "'$PLATTER' --store '$WORK/b' check | grep -q 'follower of'"
check "the origin lists its follower" [ "$(through a --json copies | jq -r '.followers | length')" = 1 ]

# Every kind of change arrives.
follow b "$URL"
check_exit "$EXIT_REFUSED" "a second process does not follow with the same store" at b follow --once "$URL"
check_said "it names the first one" "process ${PROCESS[follow b]}"
through a capture --raw "$(small one)" lab/one >/dev/null
check "a captured version arrives" until_true 60 has b lab/one@1
check "with the right bytes" is_version b lab/one "$WORK/disk-one"
through a clone lab/one lab/two >/dev/null
through a rename lab/two lab/three >/dev/null
through a forget lab/clone --all >/dev/null
through a lock take lab/disk --holder somebody >/dev/null
check "clone, rename, forget and lock arrive" until_true 60 same_state a b
through a unprotect lab/disk@1 >/dev/null
through a protect lab/one@1 >/dev/null
check "protection arrives" until_true 60 same_state a b
check "(it is there)" sh -c "'$PLATTER' --store '$WORK/b' --json history lab/one | jq -e .protected"
at b log --json >"$WORK/log-of-b"
says_who() {
	jq -se 'any(.. | objects; .action? == "forget" and any(.versions[]?; .image == "lab/clone"))' "$WORK/log-of-b" >/dev/null ||
		{ cat "$WORK/log-of-b"; return 1; }
}
check "the follower's log says who did what at the origin" says_who
"$PLATTER" --store "$WORK/a" attach lab/disk --nbd "$WORK/nbd.sock" --record "$WORK/trace" >"$WORK/attach.log" 2>&1 &
PROCESS[attach]=$!
until_true 10 grep -q '^score ' "$WORK/attach.log"
qemu-io -r -f raw -c 'read 0 1M' -c 'read 8M 64k' "nbd+unix:///lab/disk?socket=$WORK/nbd.sock" >/dev/null
end attach INT
check "a boot set is registered at the origin" through a hoard import "$WORK/trace" lab/disk@1
check "and arrives" until_true 60 sh -c "'$PLATTER' --store '$WORK/b' --json hoard list | grep -q lab/disk"
check "(as it is)" same_state a b

# It refuses everything else.
serve b
for command in "capture --raw $WORK/disk-one lab/one" "clone lab/one lab/other" "rename lab/one lab/other" "forget lab/three --all" \
	"protect lab/disk@1" "lock take lab/one" "lock release lab/disk --holder somebody" "hoard import $WORK/trace lab/disk@1"; do
	# shellcheck disable=SC2086
	check_exit "$EXIT_REFUSED" "a follower refuses: $command" at b $command
	check_said "(it names the origin and promote)" "$WORK/a.sock.*promote"
	# shellcheck disable=SC2086
	check_exit "$EXIT_REFUSED" "also when it is served" through b $command
done
check_exit "$EXIT_REFUSED" "a push to it" at own push lab/own "$WORK/b"
check_exit "$EXIT_REFUSED" "a push to its server" at own push lab/own "unix:$WORK/b.sock"
check_exit "$EXIT_REFUSED" "a disk for writing" at b attach --write lab/one --nbd "$WORK/write.sock"
check "reading works through its server" sh -c "rm -f '$WORK/exported'; '$PLATTER' --quiet --server 'unix:$WORK/b.sock' export lab/one '$WORK/exported' && cmp '$WORK/disk-one' '$WORK/exported'"
check "gc works" at b gc --yes --keep-trash 0s
check "and removes nothing that is needed" is_version b lab/disk@1 "$WORK/first.raw"
flip_in_newest_pack b
check_exit "$EXIT_CORRUPT" "damage of the follower is found" at b check --read-data
check "and healed from the origin" at b heal --from "$URL"
check "the store is sound" at b check --read-data
end "serve b" TERM
cp -r "$WORK/b" "$WORK/rebuilt"
rm "$WORK/rebuilt/catalog.sqlite" "$WORK/rebuilt/follow.lock"
check "rebuild works" at rebuilt rebuild
check_exit "$EXIT_REFUSED" "and it still is a follower" at rebuilt forget lab/three --all
check "the origin collects garbage beside it" through a gc --yes --keep-trash 0s
check "the follower stays up to date" until_true 60 same_state a b

# Damage at the origin.
end "follow b" KILL
through a capture --raw "$(small bad)" lab/bad >/dev/null
flip_in_newest_pack a
through a capture --raw "$(small good)" lab/good >/dev/null
: >"$WORK/b.follow"
follow b "$URL"
check "a good version arrives beside a damaged one" until_true 60 has b lab/good@1
check "the damaged one is left out" has_not b lab/bad@1
check "with a warning" grep -q 'lab/bad@1 is left out' "$WORK/b.follow"
check "copies names it" [ "$(role b '.left_out[0].what')" = lab/bad@1 ]
through a capture --verify-known --raw "$WORK/disk-bad" lab/again >/dev/null
check "once it is repaired at the origin, it arrives" until_true 25 has b lab/bad@1
check "with the right bytes" is_version b lab/bad "$WORK/disk-bad"
check "and nothing is left out" [ "$(role b '.left_out | length')" = 0 ]
end "follow b" KILL

# A slow link: 200 ms and 100 Mbit/s.
"$PLATTER" --store "$WORK/a" serve token add follower --role admin --images '*' --json | jq -r .secret >"$WORK/token"
"$PLATTER" --store "$WORK/a" serve token add reader --role write --images '*' --json | jq -r .secret >"$WORK/token-write"
end "serve a" TERM
tls=$((20000 + SRANDOM % 6000))
slow=$((26000 + SRANDOM % 6000))
serve a --listen "127.0.0.1:$tls"
fingerprint=$(openssl s_client -connect "127.0.0.1:$tls" </dev/null 2>/dev/null | openssl x509 -outform DER | sha256sum | cut -d' ' -f1)
timeout 120 python3 "$ROOT/lab/relay" link --seconds 110 --delay-ms 100 --mbit 100 "$slow=$tls" >"$WORK/relay.log" 2>&1 &
PROCESS[relay]=$!
until_true 30 bash -c "exec 3<>/dev/tcp/127.0.0.1/$slow"
new_store far
check_exit "$EXIT_REFUSED" "an access token without the role admin may not follow" at far follow --once "https://127.0.0.1:$slow" --fingerprint "$fingerprint" --token-file "$WORK/token-write"
follow far "https://127.0.0.1:$slow" --fingerprint "$fingerprint" --token-file "$WORK/token"
check "the first copy over a slow link" until_true 60 same_state a far
random $((24 << 20)) slow >"$WORK/disk-slow"
through a capture --raw "$WORK/disk-slow" lab/slow >/dev/null
began=$(date +%s%N)
check "a version of 24 MB arrives" until_true 30 has far lab/slow@1
lag=$((($(date +%s%N) - began) / 1000000))
check "at most 5 seconds after the end of its capture ($lag ms)" [ "$lag" -le 5000 ]
check "with the right bytes" is_version far lab/slow "$WORK/disk-slow"
end "follow far" KILL
end relay KILL

# An origin that was restored from a backup.
through a lock release lab/disk >/dev/null 2>&1 || at a lock steal lab/disk >/dev/null
check "up to date" at b follow --once "$URL"
end "serve a" TERM
cp -r "$WORK/a" "$WORK/backup"
serve a
through a capture --raw "$(small later)" lab/later >/dev/null
check "a later version arrives" at b follow --once "$URL"
end "serve a" TERM
mv "$WORK/a" "$WORK/a.new" && mv "$WORK/backup" "$WORK/a"
serve a
check_exit "$EXIT_REFUSED" "an origin that was restored from a backup is noticed" at b follow --once "$URL"
check_said "which it says" 'restored from a backup'
check "the follower keeps what it has" has b lab/later@1
through a capture --raw "$(small other)" lab/other >/dev/null
through a capture --raw "$(small other2)" lab/other >/dev/null
check_exit "$EXIT_REFUSED" "also after further changes" at b follow --once "$URL"
end "serve a" TERM
rm -rf "$WORK/a" && mv "$WORK/a.new" "$WORK/a"
serve a
check "the right origin is followed again" at b follow --once "$URL"

# A planned promotion: nothing is lost, and the former origin refuses changes at once.
through a capture --raw "$(small last)" lab/last >/dev/null
follow b "$URL"
sleep 0.5
check_exit "$EXIT_REFUSED" "promote does not wait for a running follow" at b promote
end "follow b" KILL
check "the follower is promoted" at_json b promote --address "unix:$WORK/b.sock"
check "the former origin confirmed it" jq -e '.told and .missing == [] and .epoch == 1' "$LOG"
check "the last changes arrived" is_version b lab/last "$WORK/disk-last"
check "the new origin accepts changes" at b capture --raw "$(small next)" lab/next
check_exit "$EXIT_REFUSED" "the former one does not" through a capture --raw "$WORK/disk-next" lab/next
check_said "and says by whom it was replaced" "replaced by the store [0-9a-f]{32} at unix:$WORK/b.sock"
end "serve a" TERM
check_exit "$EXIT_REFUSED" "nor without its server" at a capture --raw "$WORK/disk-next" lab/next
check_exit "$EXIT_REFUSED" "a second promotion of the same store is refused" at b promote

# From A to B to C: the store at the beginning knows the newest.
serve a
serve b
new_store c
check "a follower of the new origin" at c follow --once "unix:$WORK/b.sock"
check "has everything" same_state b c
check "it is promoted" at_json c promote --address "unix:$WORK/c.sock"
check "with the next epoch" jq -e '.told and .epoch == 2' "$LOG"
check "the first store learns of it" until_true 60 sh -c "'$PLATTER' --store '$WORK/a' copies | grep -q 'at unix:$WORK/c.sock with epoch 2'"
new_store d
check_exit "$EXIT_REFUSED" "a store that was replaced is not followed" at d follow --once "unix:$WORK/b.sock"
end "serve a" TERM
end "serve b" TERM

# Two followers are promoted: a conflict is reported.
new_store e
serve e
through e capture --raw "$WORK/disk-one" lab/one >/dev/null
for dir in f g; do
	new_store $dir
	at $dir follow --once "unix:$WORK/e.sock" >/dev/null
done
end "serve e" KILL
check_exit "$EXIT_FAILED" "an unreachable origin is an error" at f promote
check_said "with the advice to go on without it" 'without-origin'
check "it can be done without it" at f promote --without-origin
serve e
check "the other follower is promoted, with an origin that is there" at g promote
serve f
check "the conflict is reported" until_true 10 grep -qi conflict "$WORK/f.log"
check "and f does not count the origin as told" [ "$(role f '.standing.former[0].told')" = false ]
end "serve e" TERM
end "serve f" TERM

# The origin is killed at random moments during captures. What was replicated is there; what was announced is named.
for n in $(seq "$kills"); do
	new_store o
	serve o
	URL=unix:$WORK/o.sock
	new_store p
	rm -f "$WORK/p.follow"
	follow p "$URL"
	(
		for k in $(seq 40); do
			random $((4096 * (50 + $(number "length $n $k" 700)))) "$n $k" >"$WORK/many-$k"
			through o capture --raw "$WORK/many-$k" "lab/k$k" >/dev/null 2>&1 || exit 0
			echo "${EPOCHREALTIME%.*} lab/k$k@1" >>"$WORK/captured"
		done
	) &
	PROCESS[captures]=$!
	: >"$WORK/captured"
	sleep "$(awk "BEGIN { print 1 + $(number "kill $n" 4000) / 1000 }")"
	end "serve o" KILL
	killed=${EPOCHREALTIME%.*}
	end captures KILL
	end "follow p" KILL
	check "kill $n: promoted without the origin" at_json p promote --without-origin --address "unix:$WORK/p.sock"
	cp "$LOG" "$WORK/promoted"
	wrong=0 count=0
	for image in $(at_json p images | jq -r .image); do
		count=$((count + 1))
		is_version p "$image" "$WORK/many-${image#lab/k}" >/dev/null 2>&1 || wrong=$((wrong + 1))
	done
	arrived=$((${arrived:-0} + count))
	check "kill $n: all $count versions that arrived have the right bytes (of $(wc -l <"$WORK/captured") captured)" [ "$wrong" = 0 ]
	check "kill $n: the store is sound" at p check --read-data
	at_json p images | jq -r '"\(.image)@1"' | sort >"$WORK/present"
	check "kill $n: what the follower had reported as copied is there" \
		sh -c "grep -oE '^copied lab/k[0-9]+@1\$' '$WORK/p.follow' | cut -c 8- | sort | comm -23 - '$WORK/present' | { ! grep .; }"
	jq -r '.missing[]' "$WORK/promoted" | sort >"$WORK/missing" || not_ok "kill $n: promote says what is missing"
	named=$((${named:-0} + $(wc -l <"$WORK/missing")))
	check "kill $n: what is named as missing ($(wc -l <"$WORK/missing")) is missing" \
		sh -c "grep ^lab/ '$WORK/missing' | comm -12 - '$WORK/present' | { ! grep .; }"
	# Only the last second may be unknown; times here are whole seconds.
	awk -v until="$((killed - 2))" '$1 <= until { print $2 }' "$WORK/captured" | sort >"$WORK/known"
	check "kill $n: each of the $(wc -l <"$WORK/known") versions of more than two seconds before is there or named as missing" \
		sh -c "sort -m '$WORK/present' '$WORK/missing' | comm -23 '$WORK/known' - | { ! grep .; }"
	serve p
	serve o
	check "kill $n: the former origin learns of it when it returns" until_true 10 sh -c "'$PLATTER' --store '$WORK/o' copies | grep -q 'replaced by'"
	check_exit "$EXIT_REFUSED" "kill $n: and refuses changes" through o capture --raw "$WORK/disk-one" lab/one
	check "kill $n: the new origin accepts them" through p capture --raw "$WORK/disk-one" lab/one
	end "serve o" TERM
	end "serve p" TERM
done
check "versions had arrived before the kills ($arrived)" [ "$arrived" -gt 0 ]
[ "${PLATTER_SIZE:-quick}" != full ] || check "versions were named as missing ($named)" [ "$named" -gt 0 ]
finish
