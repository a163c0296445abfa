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
check_said "is told as JSON" '^\{"error":"unexpected argument .--no-such-option.*"exit_code":2,"kind":"usage"\}'
check_exit "$EXIT_MISSING" "no store" platter images
check_said "and what to do about it" 'init'
check "init" platter init
check_exit "$EXIT_REFUSED" "init where a store is" platter init
mkdir "$WORK/strange"
touch "$WORK/strange/file"
check_exit "$EXIT_REFUSED" "init where something else is" "$PLATTER" --store "$WORK/strange" init
check "leaves nothing there" [ "$(ls -A "$WORK/strange")" = file ]

check "capture" platter capture "$WORK/disk" lab/debian --label os=debian --label note='two words'
platter_json capture "$WORK/disk" lab/debian >"$WORK/again.json"
check "capture of the same disk adds no data" jq -e '.name == "lab/debian" and .number == 2 and .version == "lab/debian@2" and .new_raw_bytes == 0' "$WORK/again.json"
platter_json capture "$WORK/changed" lab/debian >"$WORK/changed.json"
check "capture of a changed disk adds little" jq -e '.number == 3 and .new_raw_bytes > 0 and .new_raw_bytes < .allocated_bytes / 4' "$WORK/changed.json"
check "the summary tells sizes and the file system" jq -e --argjson bytes $((48 << 20)) '
	.disk_bytes == $bytes and .allocated_bytes < $bytes and (.score | type == "string") and (.filesystems | length >= 1)' "$WORK/changed.json"

platter images >"$WORK/images"
check "images lists the name" grep -q 'lab/debian' "$WORK/images"
check "images as JSON" bash -c '"$0" --store "$1" --json images | jq -es "flatten | map(.name // .image) | index(\"lab/debian\") != null"' "$PLATTER" "$STORE"
platter show lab/debian@1 >"$WORK/show"
check "show tells the labels" grep -q 'two words' "$WORK/show"
check "history lists three versions" bash -c '[ "$("$0" --store "$1" --json history lab/debian | jq -s "flatten | length")" = 3 ]' "$PLATTER" "$STORE"

check "install of the newest" platter install lab/debian "$WORK/target"
check "its file system is sound" e2fsck -fn "$WORK/target"
check "the change is in it" bash -c 'cmp <(debugfs -R "cat new-file" "$0" 2>/dev/null) "$1"' "$WORK/target" "$WORK/new-file"
check "install of an older version" platter install lab/debian@1 "$WORK/target" --free zero --yes --verify
check "export of it" platter export lab/debian@1 "$WORK/exported"
check "they are the same" cmp "$WORK/target" "$WORK/exported"
score=$(platter_json show lab/debian@1 | jq -r '[.. | .score? // empty] | first')
check "a score stands for a version" platter install "$score" "$WORK/by-score" --free zero
check "and gives the same disk" cmp "$WORK/by-score" "$WORK/exported"

check_exit "$EXIT_MISSING" "install of an unknown image" platter install lab/nothing "$WORK/target"
check_exit "$EXIT_MISSING" "install of an unknown version" platter install lab/debian@9 "$WORK/target"
check_exit "$EXIT_MISSING" "capture of an unknown file" platter capture "$WORK/no-such-disk" x
check_said "and it is named" 'no-such-disk'
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
			not_ok "a name that no image can have"
		fi
	done
done
ok "names that no image can have are wrong usage of every command"
for command in "hoard import $WORK/none" "hoard record" "hoard show" "hoard unregister"; do
	read -ra arguments <<<"$command"
	check_exit "$EXIT_USAGE" "a score where $command needs a name" platter "${arguments[@]}" "$score"
done
check_exit "$EXIT_USAGE" "attach without a place to serve" platter attach lab/debian
check_said "and which there are" '--nbd, --fuse or --9p'
check_exit "$EXIT_USAGE" "attach of nothing" platter attach --nbd "$WORK/none"
check_exit "$EXIT_USAGE" "an address that is none" "$PLATTER" --server nowhere images
printf 'nobody may write here\n' >"$WORK/kept"
check_exit "$EXIT_USAGE" "a target where the image belongs" platter install "$WORK/kept" lab/debian --yes
check_said "the order is told" 'the image comes first: platter install lab/debian /'
check_exit "$EXIT_USAGE" "export, too" platter export "$WORK/kept" lab/debian
check_exit "$EXIT_USAGE" "and receive" timeout 20 "$PLATTER" receive "$WORK/kept" lab/debian --yes --give-up 1
check_exit "$EXIT_USAGE" "a disk where the name belongs" platter capture lab/debian "$WORK/kept"
check_said "the order is told" 'the disk comes first: platter capture /'
check "nothing was touched" grep -qx 'nobody may write here' "$WORK/kept"
truncate -s 4M "$WORK/tiny"
mke2fs -q -t ext4 "$WORK/tiny"
check "what is new is part of the data" jq -e '.new_raw_bytes <= .data_bytes and .new_raw_bytes > 0' <(platter_json capture "$WORK/tiny" lab/tiny)
check "and nothing is the second time" jq -e '.new_raw_bytes == 0' <(platter_json capture "$WORK/tiny" lab/tiny)
check "forget the tiny one" platter forget lab/tiny --all
check "completions" bash -c '"$0" completions bash | bash -n' "$PLATTER"

check "clone" platter clone lab/debian@1 lab/copy
check "the clone is the same disk" [ "$(platter_json show lab/copy | jq -r .score)" = "$score" ]
check "and says of what it is one" jq -e '.cloned_from == {image: "lab/debian", number: 1} and .parent == null and .new_stored_bytes == 0 and .labels.os == "debian"' <(platter_json show lab/copy)
check_exit "$EXIT_REFUSED" "clone to a name that exists" platter clone lab/debian lab/copy
check_said "and how to do it" '--next'
bytes_before=$(du -sb --apparent-size "$STORE/packs" | cut -f1)
platter_json clone lab/debian lab/copy --next >"$WORK/clone.json"
check "unless it is to be the next version" jq -e '.version == "lab/copy@2" and .cloned_from == "lab/debian@3"' "$WORK/clone.json"
check "which takes no more than a record" [ $(($(du -sb --apparent-size "$STORE/packs" | cut -f1) - bytes_before)) -le 65536 ]
check_exit "$EXIT_MISSING" "clone of what is not there" platter clone lab/nothing lab/other

platter_json lock take lab/copy >"$WORK/token.json"
token=$(jq .number "$WORK/token.json")
check "a token has a number and a holder" jq -e '.image == "lab/copy" and .number == 1 and (.holder | test("@"))' "$WORK/token.json"
check_exit "$EXIT_REFUSED" "it is taken once" platter lock take lab/copy --holder other@there
check_said "and its holder named" "$(jq -r .holder "$WORK/token.json")"
check_exit "$EXIT_REFUSED" "nobody captures past it" platter capture "$WORK/disk" lab/copy
check_exit "$EXIT_REFUSED" "nor clones" platter clone lab/debian lab/copy --next
check "its holder does" platter capture "$WORK/disk" lab/copy --lock "$token"
check "and history says so" jq -es --argjson token "$token" '.[0].edit_lock == $token and .[0].current_edit_lock.number == $token and .[1].edit_lock == null' <(platter_json history lab/copy)
check "show tells who edits it" grep -q 'held by' <(platter show lab/copy)
check "another takes it over" platter lock steal lab/copy --holder other@there
check_exit "$EXIT_REFUSED" "what the first one has is refused" platter capture "$WORK/changed" lab/copy --lock "$token"
check_said "and who has taken over is named" 'other@there'
check_exit "$EXIT_REFUSED" "nor does he release it" platter lock release lab/copy
check "capture takes it over when told to" platter capture "$WORK/changed" lab/copy --steal-lock
check "and gives it back" jq -e '.current_edit_lock == null and .edit_lock == 3' <(platter_json show lab/copy)
check_exit "$EXIT_MISSING" "there is none to release" platter lock release lab/copy
check_exit "$EXIT_MISSING" "no token for an unknown image" platter lock take lab/nothing

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
check "of eight that race for a token one gets it" [ ${#winners[@]} = 1 ]
check "and it is the one that the store names" [ "$(platter_json lock list | jq -r .holder)" = "${winners[0]}" ]

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
	sleep "$(printf '0.0%02d' "$(number "token kill $n" 40)")"
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
check "tokens killed at any moment keep one answer" [ "$bad" = 0 ]
check "the next number is a new one" [ "$(platter_json lock steal lab/copy | jq .number)" -gt "$highest" ]
highest=$(platter_json lock list | jq .number)

check "an image gets a name of its own" platter clone lab/debian attic/one
check "and a second version" platter clone lab/debian@1 attic/one --next
check "rename of all below a name" jq -e '.renamed == [{from: "attic/one@1", to: "cellar/one@1"}, {from: "attic/one@2", to: "cellar/one@2"}]' <(platter_json rename attic cellar)
check_exit "$EXIT_MISSING" "the old name is gone" platter show attic/one
check "history is the new one's" jq -es 'map(.number) == [2, 1] and .[0].renamed_from == {image: "attic/one", number: 2}' <(platter_json history cellar/one)
check_exit "$EXIT_REFUSED" "no rename to a name that is taken" platter rename cellar/one lab/debian
check_said "and it is named" 'lab/debian already'
check_exit "$EXIT_REFUSED" "nor of an image that is edited" platter rename lab below
check_said "and its holder is named" 'held by'
check_exit "$EXIT_REFUSED" "nor is that forgotten" platter forget lab/copy --all
check_exit "$EXIT_USAGE" "nothing is forgotten by a name that moves" platter forget cellar/one@latest
check_exit "$EXIT_MISSING" "nor what is not there" platter forget cellar/one@3
check "forget of one version" jq -e '.forgotten == ["cellar/one@2"]' <(platter_json forget cellar/one@2)
check_exit "$EXIT_MISSING" "it is gone" platter show cellar/one@2
check "its number is not used again" [ "$(platter_json clone lab/debian@1 cellar/one --next | jq -r .version)" = cellar/one@3 ]
check_exit "$EXIT_REFUSED" "a name without a number forgets nothing by itself" platter forget cellar/one
check_said "and it is told what would" 'cellar/one@NUMBER.*--all'
check "forget of an image" jq -e '.forgotten | length == 2' <(platter_json forget cellar/one --all)
check "it is listed no more" jq -es 'all(.name != "cellar/one")' <(platter_json images)
check_exit "$EXIT_MISSING" "nor edited" platter lock take cellar/one

check "check" platter check
check "check of all data" platter check --read-data
platter_json images >"$WORK/images"
platter_json lock list >"$WORK/tokens"
check "rebuild" platter rebuild
check "changes no name" diff <(platter_json images) "$WORK/images"
check "and no edit lock" diff <(platter_json lock list) "$WORK/tokens"
check "what was forgotten is listed" jq -e '.forgotten | index("cellar/one@2")' <(platter_json rebuild --resurrect)
check_exit "$EXIT_USAGE" "a version to bring back is named by its number" platter rebuild --resurrect cellar/one
# With packs alone, the records restore the names, and no edit lock is held.
rm -f "$STORE"/catalog.sqlite* "$STORE/changes.log"
check "rebuild from packs" platter_json rebuild
cp "$LOG" "$WORK/rebuilt"
check "says that nobody knows who held a token" jq -e '.edit_locks_lost == null' "$WORK/rebuilt"
check "and names what may have reappeared" jq -e '(.versions | index("attic/one@1")) and (.notes | any(test("may have reappeared")))' "$WORK/rebuilt"
check_exit "$EXIT_REFUSED" "its number is worth nothing then" platter capture "$WORK/disk" lab/copy --lock "$highest"
check "nor given again" [ "$(platter_json lock take lab/copy | jq .number)" -gt "$highest" ]
check "a token given back" platter lock release lab/copy
check "after it nothing is missing" platter install lab/debian@1 "$WORK/target" --free zero --yes
check "nor changed" cmp "$WORK/target" "$WORK/exported"

# Two writers: the second waits or gets the reason, and nothing breaks.
"$PLATTER" --store "$STORE" --quiet capture "$WORK/changed" two/a >"$WORK/a" 2>&1 &
first=$!
code=0
platter capture "$WORK/disk" two/b >"$LOG" 2>&1 || code=$?
if [ "$code" = 0 ] || said 'lock|in use|another|writ'; then
	ok "the second waits or is told (exit code $code)"
else
	not_ok "the second of two writers: exit code $code"
fi
first_code=0
wait "$first" || first_code=$?
check "one of two writers finishes" bash -c '[ "$0" = 0 ] || [ "$1" = 0 ]' "$code" "$first_code"
check "the store is sound" platter check --read-data

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
	check "nothing of that is printed: ${command%% /*}" no_escapes ${command/FILE/$WORK/written}
done
check "nor in an error" no_escapes show "$evil"
check "nor for a file of such a name" no_escapes capture "$WORK/$evil" evil/none
check "JSON has it as it is" jq -e --arg note "$evil" '.notes == $note' <(platter_json show evil/other@2)

# Image files of other programs and compressed files are not raw disks.
gzip -c "$WORK/new-file" >"$WORK/disk.gz"
xz -c "$WORK/new-file" >"$WORK/disk.xz"
bzip2 -c "$WORK/new-file" >"$WORK/disk.bz2"
zstd -qc "$WORK/new-file" >"$WORK/disk.zst" 2>/dev/null || printf '\x28\xb5\x2f\xfd%01000d' 0 >"$WORK/disk.zst"
for format in qcow2 vmdk vdi vhdx vpc; do
	! command -v qemu-img >/dev/null || qemu-img create -q -f "$format" "$WORK/disk.$format" 8M >/dev/null 2>&1
done
for kind in gz:gzip xz:xz bz2:bzip2 zst:zstd qcow2:qemu-img vmdk:qemu-img vdi:qemu-img vhdx:qemu-img vpc:qemu-img; do
	[ -e "$WORK/disk.${kind%:*}" ] || { skip "no qemu-img to make a ${kind%:*} file"; continue; }
	check_exit "$EXIT_REFUSED" "a ${kind%:*} file is refused" platter capture "$WORK/disk.${kind%:*}" wrapped/disk
	check_said "and what helps is named" "${kind#*:} "
done
check "unless it is meant as it lies" platter capture --raw "$WORK/disk.gz" wrapped/disk
finish
