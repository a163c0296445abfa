#!/usr/bin/env bash
# tests/tenants.sh: what one tenant can learn of another one. The tenant `lab` has the same images at two origins. At one of them it is
# alone. At the other one, the tenant `shop` has the same disk, parts of it and the disk that lab uploads later, with edit locks, quotas,
# boot sets, casts and live disks. Whatever lab asks with tokens of each role, by API and by commands, it gets the same answers from both,
# with the same lengths: also to uploads, to what it forgets and stores again, and to events while shop is busy. Only which blocks of its
# own come in one frame differs, which is printed.
. "$(dirname "$0")/lib.sh"

declare -A ORIGINS=() PORTS=() PRINTS=()
LISTENING=()
suite_cleanup() {
	local process
	for process in "${ORIGINS[@]}" "${LISTENING[@]}" $(jobs -p); do kill -KILL "$process" 2>/dev/null; done
}
WORLDS=(alone beside)
# here WORLD ARGUMENT...: a command with all rights at this origin; lab: one with lab's token of this role
here() { "$PLATTER" --server "unix:$WORK/$1.sock" --quiet "${@:2}"; }
lab() {
	PLATTER_TOKEN=$(cat "$WORK/$1-$2") "$PLATTER" --server "https://127.0.0.1:${PORTS[$1]}" --fingerprint "${PRINTS[$1]}" "${@:3}"
}
ask() { curl -sS -m 60 --unix-socket "$WORK/$1.sock" "http://origin$2" "${@:3}"; }
sent_blocks() { ask "$1" /metrics | awk '$1 == "platter_upload_blocks_total" { print $2 }'; }
# origin WORLD: starts the origin of a store, and waits until it answers
origin() {
	"$PLATTER" --store "$WORK/$1" serve --listen "unix:$WORK/$1.sock" --listen "127.0.0.1:${PORTS[$1]}" >>"$WORK/$1.log" 2>&1 &
	ORIGINS[$1]=$!
	until_true 30 here "$1" images || { cat "$WORK/$1.log"; return 1; }
	PRINTS[$1]=$(openssl x509 -in "$WORK/$1/serve-certificate.pem" -outform DER | sha256sum | cut -d' ' -f1)
}
# block_ids STORE KIND: the ids of all blocks (1) or pages (2) in the footers of packs (docs/formats/pack.md)
block_ids() {
	python3 - "$@" <<-'END'
		import pathlib, struct, sys
		for pack in sorted(pathlib.Path(sys.argv[1], 'packs').rglob('*.pack')):
		    data = pack.read_bytes()
		    footer, = struct.unpack_from('<Q', data, len(data) - 56)
		    frames, = struct.unpack_from('<I', data, footer + 8)
		    at = footer + 16 + 24 * frames
		    for frame in range(frames):
		        blocks, kind = struct.unpack_from('<IB', data, footer + 16 + 24 * frame + 16)
		        for n in range(blocks):
		            if kind == int(sys.argv[2]):
		                print(data[at + 32 * n:][:32].hex())
		        at += 32 * blocks
	END
}
score_of() { here "$1" --json show "$2" | jq -r '[.. | .score? // empty] | first'; }
same() { cmp "$1" "$2" || { diff "$1" "$2" | cut -c1-600 | head -n 20; return 1; }; }
same_everywhere() { same "$WORK/alone.$1" "$WORK/beside.$1"; }

# lab's disks: `next` has half of the blocks of `disk`; `probe` is uploaded later.
mib() { random 1048576 "$1"; }
{ mib a && mib b && mib c && mib d; } >"$WORK/disk"
{ mib a && mib b && mib e && mib f; } >"$WORK/next"
{ mib g && mib h && mib a; } >"$WORK/probe"
# It has the blocks of `probe` in other frames.
{ random 32768 x && mib g && mib h && mib d && mib i; } >"$WORK/parts"
for world in "${WORLDS[@]}" source own; do "$PLATTER" --store "$WORK/$world" --quiet init >/dev/null; done
n=0
for world in "${WORLDS[@]}" source; do PORTS[$world]=$((PORT + n)) && n=$((n + 1)) && origin "$world"; done
here source capture --raw "$WORK/probe" probe >/dev/null
"$PLATTER" --store "$WORK/own" --quiet capture --raw "$WORK/disk" disk >/dev/null
PROBE_BLOCKS=$(block_ids "$WORK/source" 1) PROBE_PAGES=$(block_ids "$WORK/source" 2) OWN_BLOCKS=$(block_ids "$WORK/own" 1)
export PROBE_BLOCKS PROBE_PAGES OWN_BLOCKS
for world in "${WORLDS[@]}"; do
	for role in read write admin; do
		ask "$world" /api/v1/tokens -d "{\"name\":\"lab $role\",\"role\":\"$role\",\"patterns\":[\"lab/*\"]}" | jq -r .secret >"$WORK/$world-$role"
	done
	ask "$world" /api/v1/tokens -d '{"name":"small","role":"write","patterns":["lab/*"],"quota_bytes":10000000}' | jq -r .secret >"$WORK/$world-small"
done

# What the other tenant has, before lab has anything.
for image in disk next parts; do here beside capture --raw "$WORK/$image" "shop/$image" >/dev/null; done
here beside clone shop/disk shop/clone >/dev/null
here beside quota set shop 1T >/dev/null
here beside lock take shop/next >/dev/null
here beside protect shop/parts >/dev/null
"$PLATTER" --store "$WORK/beside" --quiet attach shop/disk --nbd "$WORK/nbd.sock" --record "$WORK/trace" >/dev/null 2>&1 &
attached=$!
until_true 30 qemu-io -r -f raw -c 'read 0 2M' "nbd+unix:///shop/disk?socket=$WORK/nbd.sock"
kill "$attached"
wait "$attached" 2>/dev/null || true
here beside hoard import "$WORK/trace" shop/disk >/dev/null
cast='{"version":"shop/disk@1","score":"'$(score_of beside shop/disk)'","state":"casting","sender":"x","group":"y"}'
ask beside "/api/v1/casts/$(printf %032d 1)" -d "$cast" >/dev/null
ask beside /api/v1/nodes -d '{"id":"'"$(printf %032d 2)"'","name":"of-shop","peer_address":"127.0.0.1:9","fingerprint":"'"$(printf %064d 3)"'"}' >/dev/null
"$PLATTER" --store "$WORK/beside" --quiet attach shop/disk --write --nbd "$WORK/nbd.sock" >/dev/null 2>&1 &
LISTENING+=($!)
until_true 30 nbdinfo --size "nbd+unix:///shop/disk?socket=$WORK/nbd.sock"
SHOP_BOOT_SET=$(here beside --json hoard show shop/disk | jq -r .boot_set)
SHOP_SCORE=$(score_of beside shop/parts)
export SHOP_BOOT_SET SHOP_SCORE

# told WORLD COMMAND...: what a command with lab's token says, and its exit code, without what differs between any two stores
told() {
	local code=0
	lab "$1" "${@:2}" >"$WORK/said" 2>&1 || code=$?
	{
		echo "$* -> $code" | cut -d' ' -f2-
		sed -E "s/127\.0\.0\.1:[0-9]+/ADDRESS/g; s/\"(time_unix_ms|since_unix_ms)\": ?[0-9]+/\"\1\": T/g; s/[0-9a-f]{32}\b/ID/g; s/\b1[789][0-9]{11}\b/LOCK/g; s/\"seconds\":[0-9.]+/SECONDS/g; s/revision(\":| +)[0-9]{16}\b/revision\1R/g; s/20[0-9]{2}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+Z?/TIME/g; s/[0-9.]+ (ms|s)\b/SECONDS/g; s/[0-9.]+ [kMG]?B\/s/SPEED/g" "$WORK/said"
	} >>"$WORK/$1.$STEP"
	return 0
}
# stores WORLD ROLE FILE IMAGE: what lab's capture says, and how many blocks and pages it sends
stores() {
	local before
	before=$(sent_blocks "$1")
	told "$1" "$2" --json --quiet capture --raw "$3" "$4"
	echo "sent $(($(sent_blocks "$1") - before))" >>"$WORK/$1.$STEP"
}
for world in "${WORLDS[@]}"; do
	STEP=captures
	stores "$world" write "$WORK/disk" lab/disk
	stores "$world" write "$WORK/next" lab/disk
	stores "$world" write "$WORK/next" lab/next
	here "$world" lock take lab/next --holder me >/dev/null
	here "$world" hoard import "$WORK/trace" lab/disk@1 >/dev/null
	export LAB_SCORE
	LAB_SCORE=$(score_of "$world" lab/next)
	for role in read write admin; do export "TOKEN_${role^^}=$(cat "$WORK/$world-$role")"; done
	python3 "$TESTS/tenants.py" ask "127.0.0.1:${PORTS[$world]}" "$WORK/$world.api" "$WORK/source.sock" || not_ok "lab asks the origin where it is $world"
	python3 "$TESTS/tenants.py" frames "127.0.0.1:${PORTS[$world]}" "$WORK/$world.frames" "$WORK/source.sock"

	STEP=commands
	for command in images 'show lab/disk' 'history lab/disk' 'diff lab/disk@1 lab/disk@2' analyze 'analyze lab/disk lab/next' 'lock list' \
		'quota list' disks casts 'hoard status' 'hoard show lab/disk@1' copies 'ls lab/disk' 'show shop/disk' 'show shop/none' \
		"show $SHOP_SCORE" 'history shop/disk' 'diff lab/disk shop/disk' 'analyze shop/disk' 'hoard show shop/disk' 'forget shop/disk' \
		'clone shop/disk lab/mine' 'rename shop/disk lab/mine' 'lock take shop/disk' 'lock release shop/next' 'protect shop/disk' \
		'quota set shop 1' gc 'serve token list' log 'log lab/disk' 'log shop/disk'; do
		# shellcheck disable=SC2086  # words
		told "$world" admin $command
		# shellcheck disable=SC2086
		told "$world" admin --json --quiet $command
	done
	for what in lab/disk@1 shop/disk "$SHOP_SCORE"; do
		rm -f "$WORK/out"
		told "$world" read --quiet export "$what" "$WORK/out"
	done

	# What is forgotten is stored again, whether anybody has it or not; a quota counts what lab has.
	STEP=forgotten
	told "$world" admin --quiet forget lab/disk --all
	stores "$world" write "$WORK/disk" lab/again
	stores "$world" small "$WORK/parts" lab/parts
	stores "$world" small "$WORK/disk" lab/third
	{ cat "$WORK/parts" && mib "more"; } >"$WORK/more"
	stores "$world" small "$WORK/more" lab/more
	here "$world" gc --yes --keep-trash 0s >/dev/null 2>&1 || true
	told "$world" admin --json --quiet images
	stores "$world" write "$WORK/probe" lab/collected
	told "$world" admin --json --quiet history lab/collected
	rm -f "$WORK/out"
	check "lab's disk has every byte where it is $world" lab "$world" read --quiet export lab/collected "$WORK/out"
	check "(the right ones)" cmp "$WORK/out" "$WORK/probe"
done
check "two tenants have the same disk" [ "$(score_of beside shop/disk)" = "$(score_of beside lab/again)" ]
check "captures tell the same and send the same blocks, whoever has the blocks" same_everywhere captures
check "$(wc -l <"$WORK/alone.api") requests of all roles get the same answers of the same lengths" same_everywhere api
check "so do commands" same_everywhere commands
check "and what is forgotten, limited and collected" same_everywhere forgotten
check "(a quota was reached)" grep -q 'quota of the access token' "$WORK/beside.forgotten"
check "records do not tell how many bytes were new" sh -c "! grep -q '\"new_stored_bytes\": [1-9]' '$WORK/beside.api'"
echo "# blocks of an upload that come back in one frame, alone: $(cut -d' ' -f1 "$WORK/alone.frames" | xargs); beside another tenant that had all of them: $(cut -d' ' -f1 "$WORK/beside.frames" | xargs)"

# Names: whether a hidden image exists shows neither in the text nor in the length.
as_none() { sed "s#shop/none#shop/disk#g; s#99#1#g"; }
for path in 'versions?image=' 'resolve?name=' 'changes?image=' 'partitions?version=' 'files?path=/&version='; do
	for name in disk none; do
		curl -sk -D - -H "Authorization: Bearer $(cat "$WORK/beside-admin")" "https://127.0.0.1:${PORTS[beside]}/api/v1/${path}shop/$name" |
			grep -vi '^date:' | as_none >"$WORK/name-$name"
	done
	check "$path: a hidden image and a missing one look the same, headers included" same "$WORK/name-disk" "$WORK/name-none"
done

# Events. One stream begins before the other tenant is busy, one afterwards; lab itself makes one clone.
# listen WORLD NAME [CURL-OPTION...]: listens to lab's events in the background
listen() {
	curl -skN -H "Authorization: Bearer $(cat "$WORK/$1-admin")" "https://127.0.0.1:${PORTS[$1]}/api/v1/events" "${@:3}" >"$WORK/$1.$2" 2>/dev/null &
	LISTENING+=($!)
	until_true 30 grep -q 'event: listening' "$WORK/$1.$2"
}
events() { grep -v -e '^id: ' -e '^:' "$WORK/$1" | sed 's/"score":"[^"]*"/score/' | grep .; }
first_id() { grep -m 1 '^id: ' "$WORK/$1"; }
last_id() { grep '^id: ' "$WORK/$1" | tail -n 1; }
for world in "${WORLDS[@]}"; do
	listen "$world" early
	lab "$world" write --quiet clone lab/parts lab/event >/dev/null
	until_true 30 grep -q 'lab/event' "$WORK/$world.early"
done
began=$SECONDS
for n in $(seq 999); do
	here beside clone shop/disk "shop/busy$n" >/dev/null
	here beside forget "shop/busy$n" --all >/dev/null
	[ $((SECONDS - began)) -lt 19 ] || break
	sleep 0.5
done
for world in "${WORLDS[@]}"; do
	listen "$world" late
	check "lab hears of nothing but its own where it is $world" same <(events "$world.early" | tail -n +1) <(events alone.early)
	check "a busy origin sends comments all the same ($world)" grep -q '^:$' "$WORK/$world.early"
	check "the id of a later stream does not tell that something happened ($world)" [ "$(first_id "$world.late")" = "$(last_id "$world.early")" ]
	id=$(last_id "$world.early")
	listen "$world" resumed -H "Last-Event-ID: ${id#id: }"
	check "and where lab continues, nothing was missed ($world)" [ "$(grep -c '^event' "$WORK/$world.resumed")" = 1 ]
	id=$(first_id "$world.early")
	listen "$world" again -H "Last-Event-ID: ${id#id: }"
	check "an earlier id brings its own event again ($world)" until_true 10 grep -q lab/event "$WORK/$world.again"
done
check "ids have the same lengths" [ "$(last_id alone.early | wc -c)" = "$(last_id beside.early | wc -c)" ]
STEP=numbers
for world in "${WORLDS[@]}"; do told "$world" admin --json --quiet log; done
check "the log of changes has the same numbers" same_everywhere numbers
finish
