#!/usr/bin/env bash
# tests/promote.sh: what may go wrong around a promotion. Two origins accepted changes; the former one follows the new one without
# losing what only it has unless a person says so.
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
finish
