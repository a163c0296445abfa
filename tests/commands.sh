#!/usr/bin/env bash
# tests/commands.sh: the visible results of every command: exit codes, JSON, names and versions. Needs no root.
. "$(dirname "$0")/lib.sh"

file_tree "$WORK/tree" 12 commands
ext4_image "$WORK/disk" 48 "$WORK/tree"
cp --sparse=always "$WORK/disk" "$WORK/changed"
seq 5000 >"$WORK/new-file"
debugfs -w -R "write $WORK/new-file new-file" "$WORK/changed" >/dev/null 2>&1
e2fsck -fy "$WORK/changed" >/dev/null 2>&1 || true

check_exit "$EXIT_USAGE" "no command" "$PLATTER"
check_exit "$EXIT_USAGE" "an unknown option" platter images --no-such-option
check_exit "$EXIT_USAGE" "an unknown option with --json" platter --json images --no-such-option
check_said "is reported as JSON" '^\{"error":"unexpected argument .--no-such-option.*"exit_code":2,"kind":"usage"\}'
check_exit "$EXIT_USAGE" "a label without a name, which would keep nothing" platter forget lab/a --keep-label ""
# Combinations that are wrong whatever the store holds.
while IFS='|' read -r words said; do
	# shellcheck disable=SC2086  # words
	check_exit "$EXIT_USAGE" "$words" platter $words
	check_said "(with the reason)" "$said"
done <<'END'
init --new-file key|add --encrypt
init --same-key-as keys.json --new-file key|--unlock-file
forget lab/a --dry-run|at least one --keep
forget lab/a --below|at least one --keep
forget lab/a@1 --keep-last 1|without a number
forget lab/a --all --keep-last 1|leave one of them out
forget lab/a --keep-last 0|keep nothing
forget lab/a --keep-daily 0 --keep-last 1|keep nothing
export lab/a - --format qcow2|only raw disks
export lab/a - --compress|only raw disks
diff lab/a lab/a:1/etc|name a version twice
cast lab/a --linger=-1|out of range
cast lab/a --readable|name the origin with --server
cast lab/a --wait inf|out of range
receive target --give-up=-1|out of range
serve --cast lo --cast-wait=-1|out of range
export lab/a disk.vdi --compress|not written compressed
attach lab/a --nbd socket --take-over|only .platter node. and .platter serve
END
check_exit "$EXIT_USAGE" "a key without a name" platter verify lab/a --key ''
check_said "(which option)" '--key'
check "help lists the exit code of an interrupted command" sh -c "'$PLATTER' --help | tr -s '\n ' ' ' | grep -q '130 or 143 ended by Ctrl-C or SIGTERM'"
check_exit "$EXIT_MISSING" "no store" platter images
check_said "the advice is last" 'there is no store in .*: make one with .platter init --store [^ ]+$'
check_said "and init is suggested" 'init'
check "init" platter init
check_exit "$EXIT_REFUSED" "init in the directory of a store" platter init
mkdir "$WORK/strange"
touch "$WORK/strange/file"
check_exit "$EXIT_REFUSED" "init in a directory with other files" "$PLATTER" --store "$WORK/strange" init
check "creates nothing in it" [ "$(ls -A "$WORK/strange")" = file ]

check "capture" platter capture "$WORK/disk" lab/debian --label os=debian --label note='two words'
platter_json capture "$WORK/disk" lab/debian >"$WORK/again.json"
check "capture of the same disk adds no data" jq -e '.name == "lab/debian" and .number == 2 and .version == "lab/debian@2" and .new_raw_bytes == 0' "$WORK/again.json"
platter_json capture "$WORK/changed" lab/debian >"$WORK/changed.json"
check "capture of a changed disk adds little" jq -e '.number == 3 and .new_raw_bytes > 0 and .new_raw_bytes < .allocated_bytes / 4' "$WORK/changed.json"
check "the summary contains sizes and the file system" jq -e --argjson bytes $((48 << 20)) '
	.disk_bytes == $bytes and .allocated_bytes < $bytes and (.score | type == "string") and (.filesystems | length >= 1)' "$WORK/changed.json"

platter images >"$WORK/images"
check "images lists the name" grep -q 'lab/debian' "$WORK/images"
check "images as JSON" bash -c '"$0" --store "$1" --json images | jq -es "flatten | map(.name // .image) | index(\"lab/debian\") != null"' "$PLATTER" "$STORE"
platter show lab/debian@1 >"$WORK/show"
check "show prints the labels" grep -q 'two words' "$WORK/show"
check "history lists three versions" bash -c '[ "$("$0" --store "$1" --json history lab/debian | jq -s "flatten | length")" = 3 ]' "$PLATTER" "$STORE"

check "install of the newest" platter install lab/debian "$WORK/target"
check "its file system is sound" e2fsck -fn "$WORK/target"
check "the change is in it" bash -c 'cmp <(debugfs -R "cat new-file" "$0" 2>/dev/null) "$1"' "$WORK/target" "$WORK/new-file"
check "install of an older version" platter install lab/debian@1 "$WORK/target" --free zero --yes --verify
check "export of it" platter export lab/debian@1 "$WORK/exported"
check "both are the same" cmp "$WORK/target" "$WORK/exported"
score=$(platter_json show lab/debian@1 | jq -r '[.. | .score? // empty] | first')
check "a score stands for a version" platter install "$score" "$WORK/by-score" --free zero
check "and gives the same disk" cmp "$WORK/by-score" "$WORK/exported"

check_exit "$EXIT_MISSING" "install of an unknown image" platter install lab/nothing "$WORK/target"
check_exit "$EXIT_MISSING" "install of an unknown version" platter install lab/debian@9 "$WORK/target"
check_exit "$EXIT_MISSING" "capture of an unknown file" platter capture "$WORK/no-such-disk" x
check_said "and the file is named" 'no-such-disk'
# Invalid image names are usage errors in every command, and the message states the rule.
hex=$(printf 'a%.0s' $(seq 64))
for name in past/A a//b ../escape '' "a@0" "a@x" "a@" a@1@2 "b a" "$hex"a; do
	for command in "capture $WORK/disk NAME" "show NAME" "history NAME" "diff NAME lab/debian" "diff lab/debian NAME" "clone NAME lab/x" \
		"clone lab/debian NAME" "rename NAME lab/x" "rename lab/debian NAME" "forget NAME" "lock take NAME" "lock steal NAME" \
		"lock release NAME" "install NAME $WORK/none" "export NAME $WORK/none" "cast NAME" "receive NAME $WORK/none" \
		"attach NAME --nbd $WORK/none" "node NAME --cache $WORK/none --origin unix:$WORK/none" "detach NAME" "publish NAME" \
		"publish lab/debian NAME" "discard NAME" "hoard record NAME" "hoard import $WORK/none NAME" "hoard show NAME" \
		"hoard unregister NAME" "hoard follow NAME" "rebuild --resurrect=NAME"; do
		[ -n "$name" ] || [ "${command%% *}" != rebuild ] || continue
		read -ra arguments <<<"$command"
		code=0
		platter "${arguments[@]//NAME/"$name"}" >"$LOG" 2>&1 </dev/null || code=$?
		if [ "$code" != "$EXIT_USAGE" ] || ! said "not allowed: use|must start|is empty|longer than|'@' must be followed"; then
			echo "exit code $code: $command with $name" >>"$LOG"
			not_ok "an invalid image name is a usage error"
		fi
	done
done
ok "invalid image names are usage errors in every command"
for command in "hoard import $WORK/none" "hoard record" "hoard show" "hoard unregister"; do
	read -ra arguments <<<"$command"
	check_exit "$EXIT_USAGE" "a score where $command needs a name" platter "${arguments[@]}" "$score"
done
check_exit "$EXIT_USAGE" "attach without an address to serve at" platter attach lab/debian
check_said "and the options are named" '--nbd, --fuse or --9p'
check_exit "$EXIT_USAGE" "attach without an image" platter attach --nbd "$WORK/none"
check_exit "$EXIT_USAGE" "an invalid address of an origin" "$PLATTER" --server nowhere images
printf 'nobody may write here\n' >"$WORK/kept"
check_exit "$EXIT_USAGE" "target and image in the wrong order" platter install "$WORK/kept" lab/debian --yes
check_said "the right order is reported" 'the image comes first: platter install lab/debian /'
check_exit "$EXIT_USAGE" "also for export" platter export "$WORK/kept" lab/debian
check_exit "$EXIT_USAGE" "and for receive" timeout 20 "$PLATTER" receive "$WORK/kept" lab/debian --yes --give-up 1
check_exit "$EXIT_USAGE" "name and disk in the wrong order" platter capture lab/debian "$WORK/kept"
check_said "the right order is reported" 'the disk comes first: platter capture /'
check "nothing was touched" grep -qx 'nobody may write here' "$WORK/kept"
truncate -s 4M "$WORK/tiny"
mke2fs -q -t ext4 "$WORK/tiny"
check "new bytes are at most the data bytes" jq -e '.new_raw_bytes <= .data_bytes and .new_raw_bytes > 0' <(platter_json capture "$WORK/tiny" lab/tiny)
check "and 0 the second time" jq -e '.new_raw_bytes == 0' <(platter_json capture "$WORK/tiny" lab/tiny)
check "forget the tiny one" platter forget lab/tiny --all
check "completions" bash -c '"$0" completions bash | bash -n' "$PLATTER"

check "clone" platter clone lab/debian@1 lab/copy
check "the clone is the same disk" [ "$(platter_json show lab/copy | jq -r .score)" = "$score" ]
check "and records its origin" jq -e '.cloned_from == {image: "lab/debian", number: 1} and .parent == null and .new_stored_bytes == 0 and .labels.os == "debian"' <(platter_json show lab/copy)
check_exit "$EXIT_REFUSED" "clone to a name that exists" platter clone lab/debian lab/copy
check_said "and --next is suggested" '--next'
bytes_before=$(du -sb --apparent-size "$STORE/packs" | cut -f1)
platter_json clone lab/debian lab/copy --next >"$WORK/clone.json"
check "clone --next makes the next version" jq -e '.version == "lab/copy@2" and .cloned_from == "lab/debian@3"' "$WORK/clone.json"
check "and adds nothing to packs" [ "$(du -sb --apparent-size "$STORE/packs" | cut -f1)" = "$bytes_before" ]
check_exit "$EXIT_MISSING" "clone of a missing image" platter clone lab/nothing lab/other

platter_json lock take lab/copy >"$WORK/lock.json"
lock=$(jq .number "$WORK/lock.json")
check "an edit lock has a number and a holder" jq -e '.image == "lab/copy" and .number > 0 and (.holder | test("@"))' "$WORK/lock.json"
check_exit "$EXIT_REFUSED" "it is taken only once" platter lock take lab/copy --holder other@there
check_said "and its holder is named" "$(jq -r .holder "$WORK/lock.json")"
check_exit "$EXIT_REFUSED" "nobody captures without it" platter capture "$WORK/disk" lab/copy
check_exit "$EXIT_REFUSED" "nor clones to the image" platter clone lab/debian lab/copy --next
check "its holder captures" platter capture "$WORK/disk" lab/copy --lock "$lock"
check "and history shows it" jq -es --argjson lock "$lock" '.[0].edit_lock == $lock and .[0].current_edit_lock.number == $lock and .[1].edit_lock == null' <(platter_json history lab/copy)
check "show names the holder" grep -q 'held by' <(platter show lab/copy)
check "another takes it over" platter lock steal lab/copy --holder other@there
check_exit "$EXIT_REFUSED" "the first holder's capture is refused" platter capture "$WORK/changed" lab/copy --lock "$lock"
check_said "and the new holder is named" 'other@there'
check_exit "$EXIT_REFUSED" "the first holder cannot release it" platter lock release lab/copy
check "capture --steal-lock takes it over" platter capture "$WORK/changed" lab/copy --steal-lock
check "and releases it" jq -e --argjson lock "$lock" '.current_edit_lock == null and .edit_lock > $lock' <(platter_json show lab/copy)
check_exit "$EXIT_MISSING" "no edit lock to release" platter lock release lab/copy
check_exit "$EXIT_MISSING" "no edit lock for an unknown image" platter lock take lab/nothing

# Of many processes, exactly one gets the edit lock.
for n in $(seq 8); do
	"$PLATTER" --store "$STORE" --quiet --json lock take lab/copy --holder "taker$n@here" >"$WORK/taker.$n" 2>&1 &
	takers[n]=$!
done
winners=()
for n in $(seq 8); do
	code=0
	wait "${takers[n]}" || code=$?
	case $code in
	0) winners+=("taker$n@here") ;;
	"$EXIT_REFUSED") ;;
	*) winners+=("exit code $code") ;;
	esac
done
check "exactly one of eight processes gets the edit lock" [ ${#winners[@]} = 1 ]
check "and the store names it as the holder" [ "$(platter_json lock list | jq -r .holder)" = "${winners[0]}" ]

# After a kill at any moment, the store has one state, and no number twice.
highest=$(platter_json lock list | jq .number)
bad=0
for n in $(seq 30); do
	before=$(platter_json lock list | jq -c .)
	case $((n % 3)) in
	0) command=(release lab/copy --holder "$(jq -r '.holder // "nobody@here"' <<<"${before:-null}")") ;;
	1) command=(steal lab/copy --holder "killed$n@here") ;;
	2) command=(take lab/copy --holder "killed$n@here") ;;
	esac
	: >"$WORK/killed"
	"$PLATTER" --store "$STORE" --quiet --json lock "${command[@]}" >"$WORK/killed" 2>/dev/null &
	pid=$!
	sleep "$(printf '0.0%02d' "$(number "lock kill $n" 40)")"
	kill -9 "$pid" 2>/dev/null || true
	wait "$pid" 2>/dev/null || true
	after=$(platter_json lock list | jq -c .)
	given=$(jq '.number // empty' <<<"$after")
	if [ "$after" = "$before" ]; then
		[ ! -s "$WORK/killed" ] || bad=$((bad + 1))
	elif [ -n "$given" ]; then
		[ "$given" -gt "$highest" ] || bad=$((bad + 1))
		highest=$given
	fi
done
check "kills at any moment leave one consistent state" [ "$bad" = 0 ]
check "the next number is a new one" [ "$(platter_json lock steal lab/copy | jq .number)" -gt "$highest" ]
highest=$(platter_json lock list | jq .number)

check "an image gets a name of its own" platter clone lab/debian attic/one
check "and a second version" platter clone lab/debian@1 attic/one --next
check "rename of all images below a name" jq -e '.renamed == [{from: "attic/one@1", to: "cellar/one@1"}, {from: "attic/one@2", to: "cellar/one@2"}]' <(platter_json rename attic cellar)
check_exit "$EXIT_MISSING" "the old name is gone" platter show attic/one
check "history is found under the new name" jq -es 'map(.number) == [2, 1] and .[0].renamed_from == {image: "attic/one", number: 2}' <(platter_json history cellar/one)
check_exit "$EXIT_REFUSED" "no rename to an existing name" platter rename cellar/one lab/debian
check_said "and the name is reported" 'lab/debian already'
check_exit "$EXIT_REFUSED" "no rename of an image that is edited" platter rename lab below
check_said "and its holder is named" 'held by'
check_exit "$EXIT_REFUSED" "no forget of an image that is edited" platter forget lab/copy --all
check_exit "$EXIT_USAGE" "forget does not accept @latest" platter forget cellar/one@latest
check_exit "$EXIT_MISSING" "forget of a missing version" platter forget cellar/one@3
check "forget of one version" jq -e '.forgotten == ["cellar/one@2"]' <(platter_json forget cellar/one@2)
check_exit "$EXIT_MISSING" "it is gone" platter show cellar/one@2
check "its number is not used again" [ "$(platter_json clone lab/debian@1 cellar/one --next | jq -r .version)" = cellar/one@3 ]
check_exit "$EXIT_REFUSED" "forget needs a number or --all" platter forget cellar/one
check_said "and both are suggested" 'cellar/one@NUMBER.*--all'
check "forget of an image" jq -e '.forgotten | length == 2' <(platter_json forget cellar/one --all)
check "it is no longer listed" jq -es 'all(.name != "cellar/one")' <(platter_json images)
check_exit "$EXIT_MISSING" "it can no longer be edited" platter lock take cellar/one

# A policy for several images, one of which is being edited.
for name in keep/a keep/b keep/c; do
	platter clone lab/debian "$name" >/dev/null
	platter clone lab/debian@1 "$name" --next >/dev/null
done
platter lock take keep/b --holder somebody >/dev/null
kept() { platter_json history "$1" | jq -sc 'map(.number)'; }
check_exit "$EXIT_REFUSED" "a dry run of a policy says that an image is edited" platter forget keep --below --keep-last 1 --dry-run
check_said "and what it would forget" 'would forget keep/c@1'
check_exit "$EXIT_REFUSED" "the policy, too" platter forget keep --below --keep-last 1
check_said "and names it" 'keep/b is being edited'
check "the other images are thinned" [ "$(kept keep/a) $(kept keep/b) $(kept keep/c)" = '[2] [2,1] [2]' ]
platter lock release keep/b --holder somebody >/dev/null

check "check" platter check
check "check of all data" platter check --read-data
platter_json images >"$WORK/images"
platter_json lock list >"$WORK/locks"
check "rebuild" platter rebuild
check "changes no name" diff <(platter_json images) "$WORK/images"
check "and no edit lock" diff <(platter_json lock list) "$WORK/locks"
check "forgotten versions are listed" jq -e '.forgotten | index("cellar/one@2")' <(platter_json rebuild --resurrect)

# The log of changes.
platter_json log >"$WORK/log.json"
check "the log numbers all changes" jq -es 'map(.number) == [range(1; length + 1)] and .[0].action == "init" and .[-1].action == "rebuild"' "$WORK/log.json"
check "and says who and from where" jq -es 'all(.from == "local" and (.who | test("@")) and .time_unix_ms > 1600000000000)' "$WORK/log.json"
check "it has clones, names and locks" jq -es 'map(.action) | index("publish") and index("rename") and index("forget") and index("take-lock")' "$WORK/log.json"
check "the log of an image" jq -es 'length == 4 and all(tostring | test("cellar/one"))' <(platter_json log cellar/one)
check "as text" grep -q 'clone lab/debian@1 to cellar/one@3' <(platter log cellar/one)
check_exit "$EXIT_MISSING" "there is no log of an image that never existed" platter log cellar/never
check_exit "$EXIT_USAGE" "--resurrect needs the version's number" platter rebuild --resurrect cellar/one
# With packs alone, names are as of the last capture that wrote a pack, and no edit lock is held.
random 100000 last >"$WORK/last"
check "a capture writes a pack" platter capture --raw "$WORK/last" last/disk
check "a clone does not" platter clone last/disk last/clone
rm -f "$STORE"/catalog.sqlite* "$STORE/changes.log"
check "rebuild from packs" platter_json rebuild
cp "$LOG" "$WORK/rebuilt"
check "reports that the holders of edit locks are unknown" jq -e '.edit_locks_lost == null' "$WORK/rebuilt"
check "and says from where the names are" jq -e '.notes | any(test("names are as of change [0-9]+"))' "$WORK/rebuilt"
check "forgotten versions stay forgotten, and later clones are missing" jq -e '.versions | (index("cellar/one@1") or index("last/clone@1") | not) and index("last/disk@1") and index("lab/copy@1")' "$WORK/rebuilt"
check_exit "$EXIT_REFUSED" "an edit lock from before the rebuild is refused" platter capture "$WORK/disk" lab/copy --lock "$highest"
check_said "with the reason" "nobody holds edit lock $highest of lab/copy.*nothing was published"
check "and without an overlay, which a capture has not" sh -c "! grep -q overlay '$LOG'"
check "and its number is not used again" [ "$(platter_json lock take lab/copy | jq .number)" -gt "$highest" ]
check "an edit lock is released" platter lock release lab/copy
check "after the rebuild the version installs" platter install lab/debian@1 "$WORK/target" --free zero --yes
check "unchanged" cmp "$WORK/target" "$WORK/exported"

# Two writers: the second waits or gets the reason, and nothing breaks.
"$PLATTER" --store "$STORE" --quiet capture "$WORK/changed" two/a >"$WORK/a" 2>&1 &
first=$!
code=0
platter capture "$WORK/disk" two/b >"$LOG" 2>&1 || code=$?
if [ "$code" = 0 ] || said 'lock|in use|another|writ'; then
	ok "the second writer waits or gets the reason (exit code $code)"
else
	not_ok "the second of two writers: exit code $code"
fi
first_code=0
wait "$first" || first_code=$?
check "one of two writers finishes" bash -c '[ "$0" = 0 ] || [ "$1" = 0 ]' "$code" "$first_code"
check "the store is sound" platter check --read-data

check_exit "$EXIT_MISSING" "capture into a store that does not exist" "$PLATTER" --store "$WORK/nowhere" capture "$WORK/disk" a
check_said "says how to make one" 'platter init'

# Output that cannot be written is no success; a directory that others prepared is no store.
not_written() { "$PLATTER" --store "$STORE" images >/dev/full; }
check_exit "$EXIT_FAILED" "images to a full disk" not_written
check_said "says so" 'No space left'
mkdir -p "$WORK/prepared" && echo precious >"$WORK/precious"
for name in reserve lock; do
	ln -s "$WORK/precious" "$WORK/prepared/$name"
	"$PLATTER" --store "$WORK/prepared" init >/dev/null 2>&1 || true
	check "init follows no prepared link $name" [ "$(cat "$WORK/precious")" = precious ]
	rm -r "${WORK:?}/prepared" && mkdir "$WORK/prepared"
done
mkdir -m 777 "$WORK/open-to-all"
check "init in a directory that is open to all" "$PLATTER" --store "$WORK/open-to-all" init
check "closes it" [ "$(stat -c %a "$WORK/open-to-all")" = 700 ]

# Text from outside is escaped on the terminal.
evil=$'evil\e]0;title\a\e[2J\u009b31m\u202e'
cp --sparse=always "$WORK/disk" "$WORK/labelled"
e2label "$WORK/labelled" $'\e[31mred\e[0m' 2>/dev/null
debugfs -w -R "write $WORK/new-file $evil" "$WORK/labelled" >/dev/null 2>&1
e2fsck -fy "$WORK/labelled" >/dev/null 2>&1 || true
platter capture "$WORK/disk" evil/disk >/dev/null
check "a label and notes that a terminal would obey" platter capture "$WORK/labelled" evil/disk --note "$evil" --label "key=$evil"
no_escapes() { # COMMAND...: whatever it says, and however it ends
	"$PLATTER" --store "$STORE" "$@" >"$WORK/said" 2>&1 || true
	[ -s "$WORK/said" ] && ! LC_ALL=C.UTF-8 grep -P '[\x00-\x08\x0b-\x1f\x7f-\x{9f}\x{202a}-\x{202e}]' "$WORK/said"
}
for command in images 'show evil/disk' 'history evil/disk' 'diff evil/disk@1 evil/disk@2' 'clone evil/disk evil/copy' 'check' 'disks' 'hoard status' \
	'hoard list' 'lock take evil/copy' 'lock release evil/copy' 'capture DISK evil/disk' 'install evil/disk FILE --yes' 'export evil/disk FILE' \
	'forget evil/copy --all' 'rename evil/disk evil/other'; do
	command=${command/DISK/$WORK/labelled}
	# shellcheck disable=SC2086
	check "no escape sequence is printed: ${command%% /*}" no_escapes ${command/FILE/$WORK/written}
done
check "nor in an error message" no_escapes show "$evil"
check "nor for a file with such a name" no_escapes capture "$WORK/$evil" evil/none
check "JSON contains the text unchanged" jq -e --arg note "$evil" '.notes == $note' <(platter_json show evil/other@2)

# Image files of other programs and compressed files are not raw disks.
gzip -c "$WORK/new-file" >"$WORK/disk.gz"
xz -c "$WORK/new-file" >"$WORK/disk.xz"
bzip2 -c "$WORK/new-file" >"$WORK/disk.bz2"
zstd -qc "$WORK/new-file" >"$WORK/disk.zst" 2>/dev/null || printf '\x28\xb5\x2f\xfd%01000d' 0 >"$WORK/disk.zst"
for format in qcow2 vmdk vdi vhdx vpc; do
	! command -v qemu-img >/dev/null || qemu-img create -q -f "$format" "$WORK/disk.$format" 8M >/dev/null 2>&1
done
for kind in gz:raw.gz xz:raw.xz bz2:bzip2 zst:raw.zst qcow2 vmdk vdi vhdx vpc:vhd; do
	[ -e "$WORK/disk.${kind%:*}" ] || { skip "qemu-img cannot make a ${kind%:*} file"; continue; }
	# Without a suffix, it is taken for a raw disk.
	mv "$WORK/disk.${kind%:*}" "$WORK/${kind%:*}-disk"
	check_exit "$EXIT_REFUSED" "a ${kind%:*} file is refused" platter capture "$WORK/${kind%:*}-disk" wrapped/disk
	check_said "and what reads it is named" "(--format |.*convert it with .)${kind#*:}[ \`]"
done
check "--raw captures it as it is" platter capture --raw "$WORK/gz-disk" wrapped/disk
finish
