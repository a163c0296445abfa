#!/usr/bin/env bash
# tests/corpus.sh: stores, nodes, overlays, traces, keys and tokens that earlier releases wrote (tests/corpus) are read by this
# binary: the same names, records, history and bytes as when they were written, from the catalog, from the change log alone and from
# packs alone; without an origin, too. Then they are used further. Everything happens in copies; the corpus is never changed.
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/corpus-facts.sh
. "$TESTS/corpus-facts.sh"

CORPUS=${PLATTER_CORPUS:-$TESTS/corpus}
PLATTER=$(realpath "$PLATTER")
# The worlds name their origin relative to the directory in which they are.
SOCKET=origin.sock
SERVER='' NODE='' WORLD='' MANIFEST=''
suite_cleanup() {
	local process
	for process in $SERVER $ORIGIN $NODE; do kill -KILL "$process" 2>/dev/null; done
}
uri() { echo "nbd+unix:///$1?socket=$2"; }
fact() { jq -r --arg world "$WORLD" ".facts[\$world]$1" "$MANIFEST"; }
# equals VALUE COMMAND...: the command prints this value
equals() {
	local value
	value=$("${@:2}") || return 1
	[ "$1" = "$value" ] || { printf 'wanted %s\ngot    %s\n' "$1" "$value"; return 1; }
}
# holds STORE [FILTER]: the facts of the manifest about a store are still those that the binary prints, except what the filter leaves out
holds() {
	fact ".store ${2:-}" >"$WORK/wanted" && store_facts "$1" >"$WORK/found" && same_facts "$WORK/wanted" "$WORK/found"
}
# rebuilt STORE [FILTER]: the same for a copy that was rebuilt, which noticed that it is elsewhere
rebuilt() { holds "$1" "| del(.copies.home) ${2:-}"; }
# written FACT: the manifest has it for this world
written() { jq -e --arg world "$WORLD" --arg fact "$1" '.facts[$world] | has($fact)' "$MANIFEST" >/dev/null; }
# contents STORE VERSION...: these versions have the bytes that they had
contents() {
	local version
	for version in "${@:2}"; do equals "$(fact ".store.contents[\"$version\"]")" sha256 at "$1" export "$version" - || return 1; done
}
installs() { # STORE VERSION
	rm -f target
	"$PLATTER" --store "$1" --quiet install "$2" target --yes --free zero && equals "$(fact ".store.contents[\"$2\"]")" sha256 cat target
}
# served URI FACT: a served disk has the bytes of a fact
served() { rm -f copied && nbdcopy "$1" copied && equals "$(fact "$2")" sha256 cat copied; }
# sees IMAGE...: these are the images that the token may see
sees() {
	local images
	images=$(afar_tls --json images) && equals "$*" sh -c 'jq -r .image | paste -sd " "' <<<"$images"
}
# sent: bytes of frames that the origin has sent
sent() { curl -s -m 20 --unix-socket "$SOCKET" http://platter/metrics | awk '$1 == "platter_frame_stream_bytes_sent_total" { print $2 }'; }
# copy NAME: a copy of the store with this name
copy() { rm -rf "$1" && cp -a store "$1"; }
unpack() { # NAME INTO
	rm -rf "$2" && mkdir "$2" && zstd -dqc "$DIR/$1.tar.zst" | tar -xpf - --no-same-owner -C "$2"
}

# world: a store with everything that a store can hold, a node of it, a client's overlays, a trace, and keys
world() {
	local version before
	check "the store says what it said" holds store
	check "and is sound, also when all is read" at store check --read-data
	for version in lab/system@1 lab/raw@1; do check "$version is installed" installs store "$version"; done
	check "the trace is read" same_facts <(fact .trace) <("$PLATTER" --json trace trace)
	check "and makes the same boot set" equals "$(fact '.store.boot_set["lab/system@2"].blocks' | jq -c .)" \
		sh -c "cp -a store imported && '$PLATTER' --store imported --quiet hoard import trace lab/system@2 >/dev/null && '$PLATTER' --store imported --json hoard show lab/system@2 | jq -c .blocks"

	# Keys: a version is used because it is signed, and an older one is not.
	check "the signature is valid" env PLATTER_TRUSTED_KEYS=trusted "$PLATTER" --store store verify lab/system@2
	check "the signed version is used" env PLATTER_TRUSTED_KEYS=trusted "$PLATTER" --store store --quiet install lab/system@2 signed --yes
	check_exit "$EXIT_REFUSED" "an older one is not" env PLATTER_TRUSTED_KEYS=trusted "$PLATTER" --store store --quiet install lab/system@1 signed-1 --yes
	check_said "for that reason" 'older than lab/system@2'
	copy signed-on
	check "the secret key signs" "$PLATTER" --store signed-on sign lab/raw --key builder

	# Either of catalog and change log is enough; packs alone have what was captured.
	copy without-catalog
	rm -rf without-catalog/catalog.sqlite* without-catalog/index
	check "rebuild from the change log" at without-catalog rebuild
	check "restores everything" rebuilt without-catalog
	copy without-log
	rm -rf without-log/changes.log without-log/changes without-log/index
	check "rebuild without the change log" at without-log rebuild
	check "restores everything but the history" rebuilt without-log '| del(.log)'
	copy packs-alone
	rm -rf packs-alone/catalog.sqlite* packs-alone/changes* packs-alone/index packs-alone/health
	check "rebuild from packs alone" at packs-alone rebuild
	check "has every captured disk" contents packs-alone lab/system@1 lab/system@2 lab/raw@1
	check "and is sound" at packs-alone check --read-data

	random 307200 "corpus $SEED" >new

	# The overlay of a process that was killed.
	copy live
	STORE=live
	check "the live disk is attached again" start_server --write lab/live --holder corpus --nbd nbd.sock
	check "with every write" served "$(uri lab/live nbd.sock)" .written
	stop TERM
	check "its changes are published" at live publish lab/live
	check "as they were written" equals "$(fact .written)" sha256 at live export lab/live@2 -

	# The origin: its certificate and tokens, and the overlay of a client.
	copy origin
	STORE=origin
	check "the store is served" start_origin
	# shellcheck disable=SC2034  # afar_tls uses both
	FINGERPRINT=$(fact .fingerprint) TOKEN=$(fact .secret)
	check "its certificate and its token are accepted" sees lab/far lab/raw
	# shellcheck disable=SC2034
	TOKEN="${TOKEN%????}0000"
	check_exit "$EXIT_REFUSED" "another token is not" afar_tls images
	if written leased; then
		head -c 49152 new >larger
		# shellcheck disable=SC2034
		TOKEN=$(fact .tenant)
		check_exit "$EXIT_REFUSED" "a token has the quota that it had" afar_tls capture --raw larger tenant/larger
		check_said "which is named" 'quota of the access token "tenant" is 50000 bytes'
	fi
	check "the changes of a client are published" afar publish lab/far --overlays far
	check "as they were written" equals "$(fact .written)" sha256 at origin export lab/far@2 -

	# The node: of a plain store without its origin, of an encrypted one with an origin that sends only keys.
	before=$(sent)
	[ "$WORLD" = encrypted ] || stop_origin TERM
	"$PLATTER" node --origin "unix:$SOCKET" --cache node --name corpus >"$WORK/node.log" 2>&1 &
	NODE=$!
	check "the node starts" until_true 60 grep -q '^score ' "$WORK/node.log"
	check "and serves its disk" served "$(uri lab/system node/nbd.sock)" '.store.contents["lab/system@2"]'
	check "its hoard is complete" equals "$(fact .hoard | jq -c .)" sh -c "'$PLATTER' --json --store store hoard status --cache node | jq -c '.replica | {revision, members, blocks}'"
	kill "$NODE"
	wait "$NODE" || true
	NODE=''
	if [ "$WORLD" = encrypted ]; then
		check "no frame was fetched" equals "$before" sent
		stop_origin TERM
	fi

	! written leased || later

	# The store is used further.
	copy used
	check "a disk is captured into it" at used capture --raw new lab/new
	check "and read" equals "$(sha256 cat new)" sha256 at used export lab/new -
	check "a protected version is still protected" sh -c "! '$PLATTER' --store used --quiet forget lab/system@1"
	check "its trash is brought back" at used rebuild --resurrect lab/gone@1
	check "and read" at used export lab/gone@1 gone
	check "its lock is released" at used lock release lab/renamed --holder somebody
	check "garbage is collected" at used gc --yes --keep-trash 0s
	check "and the rest is there" contents used lab/system@2 lab/raw@1
	check "and sound" at used check --read-data
}

# later: what the directories after v1 have
later() {
	local score sha256
	copy elsewhere
	check_exit "$EXIT_REFUSED" "a quota limits as before" at elsewhere capture --raw new lab/small
	check_said "and is named" 'quota of lab/small is 200000 bytes'
	check "another image is captured" at elsewhere capture --raw new lab/new
	check "the store knows where it was" equals "$(fact '.store.copies.home.location | {generation: 2, former: .}' | jq -c .)" \
		sh -c "'$PLATTER' --store elsewhere --json copies | jq -c '.home | {generation, former}'"
	score=$(fact .leased.score) sha256=$(fact .leased.sha256)
	copy leased
	leases_used leased 1
	check "packs of a lease are kept" at leased gc --yes --keep-trash 0 --compact 100
	check "the forgotten disk is read" equals "$sha256" sha256 at leased export "$score" -
	leases_used leased 30
	check "packs of an old lease are not" at leased gc --yes --keep-trash 0 --compact 100
	check_exit "$EXIT_MISSING" "the forgotten disk is gone" at leased export "$score" none
	check "and the store is sound" at leased check --read-data
}
# leases_used STORE DAYS: the leases were used so many days ago, whenever this runs
leases_used() {
	jq -c "(now * 1000 | floor) as \$now | {leases: (.leases | map(.used_unix_ms = \$now - $2 * 86400000))}" "$1/leases.json" >leases && mv leases "$1/leases.json"
}

encrypted() {
	local unlock=$PLATTER_UNLOCK_FILE
	unset PLATTER_UNLOCK_FILE
	check_exit "$EXIT_REFUSED" "without its key, nothing is read" setsid "$PLATTER" --store store export lab/raw none </dev/null
	check "with it, everything" at store --unlock-file key export lab/raw raw
	export PLATTER_UNLOCK_FILE=$unlock
	copy slots
	check "a secret is added" at slots encryption add --new-file second
	check "which opens it" at slots --unlock-file second export lab/raw -
}

damaged() {
	check_exit "$EXIT_CORRUPT" "the damage is still known" "$PLATTER" --store store --quiet check
	check "with its frames" equals "$(fact .check | jq -c .)" sh -c "'$PLATTER' --store store --json check | jq -c '{verdict, quarantined_frames, quarantined_blocks}'"
	check_exit "$EXIT_CORRUPT" "and its version is not read" at store export lab/small none
	unpack replaced "$WORK/sound"
	check "it is healed" at store heal --from "$WORK/sound/store"
	check "and reads" at store export lab/small small
	check "as before" equals "$(jq -r '.facts.replaced.store.contents["lab/small@1"]' "$MANIFEST")" sha256 cat small
	rm -rf "$WORK/sound"
}

readonly_store() {
	check_exit "$EXIT_REFUSED" "it accepts no changes" at store clone lab/small lab/other
	check_said "and says why" "$1"
}

found=0
for DIR in "$CORPUS"/*/; do
	DIR=$(realpath "$DIR")
	MANIFEST=$DIR/manifest.json
	release=${DIR##*/}
	for WORLD in $(jq -r '.archives | keys[]' "$MANIFEST"); do
		found=$((found + 1))
		check "$release/$WORLD is as it was written" equals "$(jq -r --arg world "$WORLD" '.archives[$world]' "$MANIFEST")" sha256 cat "$DIR/$WORLD.tar.zst"
		check "and unpacked" unpack "$WORLD" "$WORK/world"
		cd "$WORK/world"
		case $WORLD in
		plain) world ;;
		encrypted)
			export PLATTER_UNLOCK_FILE=key
			world
			encrypted
			unset PLATTER_UNLOCK_FILE
			;;
		damaged) damaged ;;
		*)
			check "the store says what it said" holds store
			check "and is sound" at store check --read-data
			copy without-catalog
			rm -rf without-catalog/catalog.sqlite* without-catalog/index
			check "rebuild from the change log" at without-catalog rebuild
			check "restores everything" rebuilt without-catalog
			case $WORLD in
			follower) readonly_store 'follow' ;;
			replaced) readonly_store 'promoted.sock' ;;
			promoted) check "it accepts changes" at store clone lab/small lab/other ;;
			esac
			;;
		esac
		cd "$WORK"
	done
done
check "the corpus has $found worlds" [ "$found" -ge 13 ]
# Every kind of change is in some log. Nothing calls what makes `set-overlay`.
jq -r '.facts[].store.log // [] | .[] | ., (.changes // [])[] | .action' "$CORPUS"/*/manifest.json | sort -u >"$WORK/found"
sed -n '/^pub enum Action {/,/^}/s/^    \([A-Z][A-Za-z]*\) {.*/\1/p' "$ROOT/crates/records/src/change.rs" | sed 's/\B[A-Z]/-&/g' | tr '[:upper:]' '[:lower:]' | grep -vx set-overlay | sort >"$WORK/actions"
check "and every action of the change log" diff "$WORK/actions" <(comm -12 "$WORK/actions" "$WORK/found")
check "(which are $(wc -l <"$WORK/actions"))" [ "$(wc -l <"$WORK/actions")" -ge 26 ]
finish
