#!/usr/bin/env bash
# tests/promote.sh: what may go wrong around a promotion. Two origins accepted changes; the former one follows the new one without
# losing what only it has unless a person says so. Two promotions in one place are a conflict that all copies report. A store that
# was replaced stays so, also after a rebuild from its packs. A promotion that was killed is repeated, and loses nothing.
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/stores.sh
. "$(dirname "$0")/stores.sh"

# sound DIR: `check --read-data` finds nothing
sound() { at "$1" check --read-data; }
# disk_of DIR NAME: prints the score of a version
disk_of() { at_json "$1" show "$2" | jq -r .score; }
# two_origins O F: F follows O with a@1 and is promoted while O is not served
two_origins() {
	new_store "$1"
	at "$1" capture --raw "$(small "$1-1")" a >/dev/null
	serve "$1"
	new_store "$2"
	at "$2" follow --once "unix:$WORK/$1.sock" --address "unix:$WORK/$2.sock" >/dev/null
	end "serve $1" TERM
	at "$2" promote --without-origin >/dev/null
}

# Both stores have a version a@2, with different disks.
two_origins o f
at f capture --raw "$(small f-2)" a >/dev/null
at o capture --raw "$(small o-2)" a >/dev/null
at o capture --raw "$(small o-c)" c >/dev/null
at o protect a@2 >/dev/null
serve o
new_store third
check "a third store follows the former origin" at third follow --once "unix:$WORK/o.sock"
serve f
check "the former origin learns of its successor" until_true 30 sh -c "'$PLATTER' --store '$WORK/o' copies | grep -q 'replaced by'"
end "serve o" TERM
for dir in o third; do
	check_exit "$EXIT_REFUSED" "$dir does not follow the new origin at once" at $dir follow --once "unix:$WORK/f.sock"
	check_said "(it names the version that it lacks)" 'c@1'
	check_said "(and the one that is another disk there)" 'a@2 \(another disk'
	check "(nothing was changed)" is_version $dir a@2 "$WORK/disk-o-2"
	lost=$(disk_of $dir a@2)
	check "--accept-loss removes them" at $dir follow --once --accept-loss "unix:$WORK/f.sock"
	check "$dir has the disk of the new origin" is_version $dir a@2 "$WORK/disk-f-2"
	check "and not the other version" has_not $dir c@1
	check "what was removed can be found like a forgotten version" is_version $dir "$lost" "$WORK/disk-o-2"
	check "the store is sound" sound $dir
	check "rebuild works" at $dir rebuild
	check "it brings nothing back" sh -c "! '$PLATTER' --store '$WORK/$dir' show c@1"
	check "and changes no disk" is_version $dir a@2 "$WORK/disk-f-2"
	check "following goes on" at $dir follow --once "unix:$WORK/f.sock"
	rm -rf "$WORK/bare" && cp -r "$WORK/$dir" "$WORK/bare"
	rm -rf "$WORK/bare/catalog.sqlite" "$WORK/bare/changes.log" "$WORK/bare/changes" "$WORK/bare/follow.lock"
	check "rebuild from the packs works" at bare rebuild
	check "the store is sound then" sound bare
done
through f capture --raw "$(small f-c)" c >/dev/null
for dir in o third; do
	check "the name of the removed version arrives with another disk" at $dir follow --once "unix:$WORK/f.sock"
	check "with the right bytes" is_version $dir c@1 "$WORK/disk-f-c"
	check "the store is sound" sound $dir
done
end "serve f" TERM
at third promote --without-origin >/dev/null
check_exit "$EXIT_REFUSED" "a removed version does not replace it" at third rebuild --resurrect c@1
check_said "which it says" 'another version has the name c@1'

# Two followers are promoted while the origin is away.
new_store o
at o capture --raw "$(small o-1)" a >/dev/null
at o lock take a >/dev/null
serve o
new_store late
at late follow --once "unix:$WORK/o.sock" >/dev/null
new_store f
at f follow --once "unix:$WORK/o.sock" --address "unix:$WORK/f.sock" >/dev/null
cp -r "$WORK/f" "$WORK/twin"
check_exit "$EXIT_REFUSED" "a follower does not attach for writing with a lock of its origin" at f attach --write a --nbd "$WORK/write.sock"
check_exit "$EXIT_REFUSED" "a follower forgets nothing" at f forget a
check_said "(it says that it follows, before it asks for --all)" 'follows the origin'
through o capture --raw "$(small o-late)" late >/dev/null
end "serve o" TERM
check "a follower is promoted" at f promote --without-origin
check "so is an older copy of it" at twin promote --without-origin
serve o
serve f
check "the former origin learns of the first" until_true 60 grep -q 'this store is replaced by' "$WORK/o.log"
check "and the log of the new origin says so" until_true 60 grep -q "told unix:$WORK/o.sock" "$WORK/f.log"
serve twin
for dir in o f twin; do
	check "$dir reports the conflict" until_true 60 sh -c "'$PLATTER' --store '$WORK/$dir' copies | grep -q CONFLICT"
	check "in its log, too" until_true 60 grep -q CONFLICT "$WORK/$dir.log"
done
end "serve twin" TERM
end "serve f" TERM
check_exit "$EXIT_REFUSED" "the accepted one has nothing to supersede" at f promote --supersede
check_said "(which it says, without advice to do that again)" 'nothing to supersede'
check "(not once)" sh -c "! grep -q 'promote --supersede' '$LOG'"
serve f
check_exit "$EXIT_REFUSED" "a third promotion is refused, although the origin counts as lost" at late promote --without-origin
check_said "(with the way out)" 'supersede'
check_exit "$EXIT_REFUSED" "a follower that did not run copies the last changes of a replaced origin" at late follow --once "unix:$WORK/o.sock"
check_said "and then names its successor" "replaced by the store [0-9a-f]+ at unix:$WORK/f.sock"
check "(they are there)" is_version late late@1 "$WORK/disk-o-late"
check "--supersede promotes it with the next epoch" at_json late promote --supersede
check "(2)" jq -e '.epoch == 2 and .told' "$LOG"
end "serve f" TERM
end "serve o" TERM

# Two followers are promoted, and the one that the former origin learnt of is lost: the other one takes the next epoch.
new_store o
at o capture --raw "$WORK/disk-o-1" a >/dev/null
serve o
for dir in winner loser later; do
	new_store $dir
	at $dir follow --once "unix:$WORK/o.sock" --address "unix:$WORK/$dir.sock" >/dev/null
done
end "serve o" TERM
at winner promote --without-origin >/dev/null
at loser promote --without-origin >/dev/null
at winner capture --raw "$(small winner-b)" b >/dev/null
serve o
serve winner
check "the former origin learns of the first" until_true 60 sh -c "'$PLATTER' --store '$WORK/o' copies | grep -q 'replaced by.*winner'"
check_exit "$EXIT_REFUSED" "a third follower stops" at later follow --once "unix:$WORK/o.sock"
end "serve winner" TERM
check_exit "$EXIT_REFUSED" "the second is not the origin yet" at loser promote
check_said "(it says how it becomes that)" 'another store was promoted in its place .*promote --supersede'
check "--supersede takes the next epoch" at_json loser promote --supersede
check "(2, as the former origin knows)" jq -e '.epoch == 2 and .told' "$LOG"
check "which names it" sh -c "'$PLATTER' --store '$WORK/o' copies | grep -q 'replaced by.*loser.sock with epoch 2'"
check_exit "$EXIT_REFUSED" "again, it changes nothing" at loser promote --supersede
check_said "(it is the origin)" 'the origin already, with epoch 2'
check "it accepts changes" at loser capture --raw "$(small loser-c)" c
serve winner
serve loser
check "the lost store reports the conflict when it returns" until_true 60 sh -c "'$PLATTER' --store '$WORK/winner' copies | grep -q CONFLICT"
check_exit "$EXIT_REFUSED" "it follows nobody" at winner follow --once "unix:$WORK/loser.sock"
check_said "(it says what to do)" 'copy there what only this one has.*platter init'
check "its versions can be copied" at winner push b "unix:$WORK/loser.sock"
end "serve winner" TERM
end "serve loser" TERM
end "serve o" TERM
check_exit "$EXIT_REFUSED" "the third follower remembers the successor of its origin" at later promote --without-origin
check_said "(and names it)" 'was replaced by the store [0-9a-f]+ at .*winner.sock.*--supersede'
check "--supersede promotes it" at_json later promote --without-origin --supersede
check "(with the epoch after that)" jq -e '.epoch == 2 and (.told | not)' "$LOG"

# A store that cannot follow stays what it is.
serve f
printf 'a secret' >"$WORK/key"
chmod 600 "$WORK/key"
"$PLATTER" --store "$WORK/sealed" --unlock-file "$WORK/key" init --encrypt >/dev/null
check_exit "$EXIT_REFUSED" "an encrypted store does not follow one without encryption" "$PLATTER" --store "$WORK/sealed" --unlock-file "$WORK/key" follow --once "unix:$WORK/f.sock"
check_said "which it says" 'the source is not encrypted'
check "it is no follower" [ "$(role sealed .standing.role)" = origin ]
check "and still captures" "$PLATTER" --store "$WORK/sealed" --unlock-file "$WORK/key" capture --raw "$WORK/disk-o-1" a
check_exit "$EXIT_MISSING" "without a store, nothing follows" at nowhere follow --once "unix:$WORK/f.sock"
check_said "which it says" 'there is no store in'
end "serve f" TERM

# An older copy of the origin comes back after it was told.
new_store o
at o capture --raw "$WORK/disk-o-1" a >/dev/null
cp -r "$WORK/o" "$WORK/old"
serve o
new_store f
at f follow --once "unix:$WORK/o.sock" --address "unix:$WORK/f.sock" >/dev/null
check "a planned promotion" at f promote
end "serve o" TERM
serve f
rm -rf "$WORK/bare" && cp -r "$WORK/o" "$WORK/bare"
rm -rf "$WORK/o" && mv "$WORK/old" "$WORK/o"
serve o
check "the copy of its standing is lost" rm "$WORK/bare/standing.json"
check "a check succeeds" at bare check
check "and writes it again" test -s "$WORK/bare/standing.json"
check "an older copy of the former origin is told, too" until_true 60 sh -c "'$PLATTER' --store '$WORK/o' copies | grep -q 'replaced by'"
end "serve o" TERM
check_exit "$EXIT_REFUSED" "a store does not copy to itself" at f push a "$WORK/f"
check_said "which it says" 'same store'

# Without catalog and log, it still is replaced.
rm -rf "$WORK/bare/catalog.sqlite" "$WORK/bare/changes.log" "$WORK/bare/changes"
check "a replaced store is rebuilt from its packs" at bare rebuild
check_exit "$EXIT_REFUSED" "it stays replaced" at bare capture --raw "$WORK/disk-o-1" b
check_said "which it says" 'was replaced by'
check "it follows its successor" at bare follow --once "unix:$WORK/f.sock"
check "and does not list it as its own follower" [ "$(role bare '.followers | length')" = 0 ]
end "serve f" TERM

# The origin lost its catalog and log, was rebuilt, and went on: the follower cannot follow its new log.
new_store lost
at lost capture --raw "$WORK/disk-o-1" a >/dev/null
at lost capture --raw "$WORK/disk-o-1" b >/dev/null
at lost capture --raw "$WORK/disk-o-2" gone >/dev/null
serve lost
new_store heir
at heir follow --once "unix:$WORK/lost.sock" >/dev/null
through lost rename b moved >/dev/null
through lost forget gone@1 >/dev/null
at heir follow --once "unix:$WORK/lost.sock" >/dev/null
end "serve lost" TERM
rm -rf "$WORK/lost/catalog.sqlite" "$WORK/lost/changes.log" "$WORK/lost/changes"
check "an origin is rebuilt from its packs" at lost rebuild
later=$(at_json lost capture --raw "$WORK/disk-o-2" a | jq -r .version)
check "it lists again what was forgotten and renamed" has lost gone@1
check "(under the old name)" has lost b@1
serve lost
check_exit "$EXIT_REFUSED" "its follower does not follow the other log" at heir follow --once "unix:$WORK/lost.sock"
check "the follower is promoted" at heir promote
check_said "and names the version that it could not copy, and no others" "NOT arrived: $later\$"
check "its copies list it, too" [ "$(role heir '.missing | join(" ")')" = "$later" ]
check "that version is copied from the former origin" at lost push "$later" "$WORK/heir"
check "with the right bytes" is_version heir "$later" "$WORK/disk-o-2"
end "serve lost" TERM

# The origin dies after it was told, and before its last version was copied.
new_store dying
at dying capture --raw "$WORK/disk-o-1" a >/dev/null
serve dying
new_store waiting
at waiting follow --once "unix:$WORK/dying.sock" >/dev/null
random 40000000 last >"$WORK/last"
through dying capture --raw "$WORK/last" a >/dev/null
"$PLATTER" --store "$WORK/waiting" promote >"$WORK/promoting" 2>&1 &
PROMOTING=$!
check "the origin learns of its successor" until_true 30 grep -q replaced "$WORK/dying/standing.json"
end "serve dying" KILL
code=0
wait "$PROMOTING" || code=$?
if [ "$code" != 0 ]; then
	check "a promotion that could not copy the last version fails" [ "$code" = "$EXIT_FAILED" ]
	check "it says what to do" grep -Eq "(last ones could not be copied|not known whether the origin was told).*repeat .platter promote" "$WORK/promoting"
	check "the store still follows" [ "$(role waiting .standing.role)" = follower ]
	serve dying
	check "the repeated promotion succeeds" at waiting promote
	end "serve dying" TERM
else
	check "everything was copied before the kill" at waiting show a@2
fi
check "the last version is there" is_version waiting a@2 "$WORK/last"

# Two stores replace each other in turn, the second time while the other one is away.
new_store one
at one capture --raw "$WORK/disk-o-1" a >/dev/null
serve one
new_store two
at two follow --once "unix:$WORK/one.sock" --address "unix:$WORK/two.sock" >/dev/null
check "a second store is promoted" at two promote
serve two
check "the first one follows it" at one follow --once "unix:$WORK/two.sock" --address "unix:$WORK/one.sock"
end "serve two" KILL
check "and is promoted again" at one promote --without-origin
serve two
check "the second one learns of it when it returns" until_true 60 sh -c "'$PLATTER' --store '$WORK/two' copies | grep -q 'replaced by.*one.sock with epoch 2\$'"
check "and the first one learns that" until_true 60 sh -c "'$PLATTER' --store '$WORK/one' copies | grep -q ': origin, promoted with epoch 2\$'"
# Each server asks all former origins when it starts.
for dir in one two; do
	end "serve $dir" TERM
	serve $dir
done
check "the first one asks only the second" [ "$(jq -c '[.former[].access.address]' "$WORK/one/standing.json")" = "[\"unix:$WORK/two.sock\"]" ]
check "which asks nobody" [ "$(jq -c .former "$WORK/two/standing.json")" = '[]' ]
check "the origin never reports a conflict" sh -c "test -s '$WORK/one.log' && ! grep CONFLICT '$WORK/one.log'"
check "and no store has one" sh -c "'$PLATTER' --store '$WORK/one' copies >'$WORK/copies' && '$PLATTER' --store '$WORK/two' copies >>'$WORK/copies' && ! grep CONFLICT '$WORK/copies'"
end "serve one" TERM
end "serve two" TERM

# A promotion is killed at random moments, and in every second round the former origin, too. Then it is repeated. The delays are
# spread over the time that a whole promotion takes, which becomes shorter if the machine had other work; there are more rounds if no
# promotion was killed halfway.
case ${PLATTER_SIZE:-quick} in full) rounds=40 ;; *) rounds=6 ;; esac
VERSIONS=(a@1 b@1 a@2 c@1 d@1)
readonly VERSIONS
for version in "${VERSIONS[@]}"; do small "$version" >/dev/null; done
capture_all() { # DIR VERSION...: captures these versions through the origin, which acknowledges each
	local version
	for version in "${@:2}"; do through "$1" capture --raw "$WORK/disk-$version" "${version%@*}" >/dev/null || return 1; done
}
# origin_and_follower: o is served with all versions, of which f has the first two
origin_and_follower() {
	new_store o && new_store f && serve o && capture_all o "${VERSIONS[@]:0:2}" || return 1
	at f follow --once "unix:$WORK/o.sock" --address "unix:$WORK/f.sock" >/dev/null && capture_all o "${VERSIONS[@]:2}"
}
has_all() {
	local version
	for version in "${VERSIONS[@]}"; do at "$1" export "$version" - | cmp "$WORK/disk-$version" || return 1; done
}
# is_promoted: o and f say the same about each other, and nothing is missing
is_promoted() {
	at_json o copies >"$WORK/copies-o" && at_json f copies >"$WORK/copies-f" && jq -nce --slurpfile o "$WORK/copies-o" --slurpfile f "$WORK/copies-f" '
		$o[0] as $o | $f[0] as $f | ($o.standing, $f.standing, $f.missing),
		($f.standing.role == "origin" and $f.standing.epoch == 1 and $f.missing == [] and $f.standing.missing == [] and $f.left_out == []
			and $o.standing.role == "replaced" and $o.standing.epoch == 1 and $o.standing.by == $f.store
			and ($f.standing.former | length == 1 and .[0].store == $o.store))'
}
milliseconds() { echo "$((${EPOCHREALTIME/[.,]/} / 1000))"; }
origin_and_follower
whole=$(milliseconds)
check "a promotion that is not killed" at f promote
whole=$(($(milliseconds) - whole))
check "makes it the origin" is_promoted
end "serve o" TERM
killed=0 halfway=0
for n in $(seq $((3 * rounds))); do
	[ "$n" -le "$rounds" ] || [ "$halfway" = 0 ] || break
	origin_and_follower
	delay=$((whole * ((n - 1) % rounds) / rounds + $(number "promote $n" $((whole / rounds + 1)))))
	"$PLATTER" --store "$WORK/f" --quiet promote >"$WORK/promote.log" 2>&1 &
	PROCESS[promote]=$!
	sleep "$(awk "BEGIN { print $delay / 1000 }")"
	kill -KILL "${PROCESS[promote]}" 2>/dev/null || true
	code=0
	wait "${PROCESS[promote]}" 2>/dev/null || code=$?
	unset "PROCESS[promote]"
	if [ $((n % 2)) = 0 ]; then
		end "serve o" KILL
		serve o
	fi
	if [ "$code" = 0 ]; then
		whole=$((whole * 3 / 4))
	else
		check "round $n: nothing else ended the promotion (killed after $delay of $whole ms)" [ "$code" = 137 ]
		killed=$((killed + 1))
		state=$(role o .standing.role)/$(role f .standing.role)
		[ "$state" != replaced/follower ] || halfway=$((halfway + 1))
		case $state in
		*/origin)
			check_exit "$EXIT_REFUSED" "round $n: it was complete" at f promote
			check_said "round $n: which is said" 'the origin already, with epoch 1'
			;;
		*) check "round $n: it is repeated ($state)" at f promote ;;
		esac
	fi
	check "round $n: both agree about the new origin" is_promoted
	check "round $n: every version that was acknowledged has its bytes" has_all f
	check "round $n: the store is sound" sound f
	check_exit "$EXIT_REFUSED" "round $n: the former origin refuses changes" through o capture --raw "$WORK/disk-a@1" a
	check_said "round $n: and names its successor" "replaced by .*unix:$WORK/f.sock"
	check "round $n: the new origin accepts them" at f capture --raw "$WORK/disk-a@1" new
	end "serve o" TERM
done
check "promotions were killed ($killed), also when the former origin was told already ($halfway)" [ "$halfway" -gt 0 ]
finish
