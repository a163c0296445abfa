#!/usr/bin/env bash
# Sourced by tests/corpus.sh and tests/make-corpus: prints as JSON what a store, a node and a trace of the corpus contain, as far as
# the command line shows it. The corpus keeps these facts, and every later binary must print the same. It never changes what it reads.
# shellcheck disable=SC2154  # PLATTER and WORK are of lib.sh

at() { "$PLATTER" --store "$1" --quiet --json "${@:2}"; }
# sha256 COMMAND...: the SHA-256 of what the command prints
sha256() { "$@" | sha256sum | cut -d ' ' -f 1; }
# lines COMMAND...: the JSON values that the command prints, as a list. The exit code of the command counts.
lines() {
	local output
	output=$("$@") && jq -cs . <<<"$output"
}

# store_facts STORE: names, records, contents, locks, quotas, hoard, access tokens, history and verdict. Sockets are named without the
# directory in which they were when the corpus was written.
store_facts() {
	local store=$1 images histories=[] contents={} sets={} image version score boot_sets
	local -A sums=()
	images=$(lines at "$store" images) || return 1
	while read -r image; do
		histories=$(jq -c --argjson more "$(lines at "$store" history "$image")" '. + $more' <<<"$histories") || return 1
	done < <(jq -r '.[].image' <<<"$images")
	while read -r version score; do
		[ -n "${sums[$score]:-}" ] || sums[$score]=$(sha256 at "$store" export "$version" -) || return 1
		contents=$(jq -c --arg version "$version" --arg sha256 "${sums[$score]}" '. + {($version): $sha256}' <<<"$contents") || return 1
	done < <(jq -r '.[] | "\(.image)@\(.number) \(.score)"' <<<"$histories")
	boot_sets=$(lines at "$store" hoard list) || return 1
	while read -r version; do
		sets=$(jq -c --arg version "$version" --argjson set "$(at "$store" hoard show "$version")" '. + {($version): $set}' <<<"$sets") || return 1
	done < <(jq -r '.[] | "\(.image)@\(.number)"' <<<"$boot_sets")
	jq -n --argjson images "$images" --argjson versions "$histories" --argjson contents "$contents" \
		--argjson boot_sets "$boot_sets" --argjson boot_set "$sets" \
		--argjson log "$(lines at "$store" log)" --argjson edit_locks "$(lines at "$store" lock list)" \
		--argjson access_tokens "$(lines at "$store" serve token list)" --argjson forgotten "$(at "$store" rebuild --resurrect)" \
		--argjson copies "$(at "$store" copies)" --argjson quotas "$(lines at "$store" quota list)" \
		--argjson check "$(at "$store" check | jq -c '{verdict, versions, packs, trash_packs, quarantined_blocks, role, findings}')" \
		--argjson hoard "$(at "$store" hoard status | jq -c '{revision, epoch, unique_bytes}')" \
		--argjson disks "$(lines at "$store" disks | jq -c 'map({disk, edit_lock, holder, writable, written_bytes})')" \
		'$ARGS.named | walk(if type == "string" then gsub("unix:/[^ ]*/"; "unix:") else . end)'
}

# same_facts OLD NEW: every fact of OLD is in NEW with the same value. Later binaries may print more keys, and may add entries to
# the log. Prints the places that differ.
same_facts() {
	jq -nr --slurpfile old "$1" --slurpfile new "$2" '
		def differences($old; $new; $at):
			if ($old | type) != ($new | type) then "\($at): \($old | tojson) is now \($new | tojson)"
			elif ($old | type) == "object" then
				($old | keys[]) as $key | differences($old[$key]; $new[$key]; "\($at).\($key)")
			elif ($old | type) == "array" then
				(if ($old | length) != ($new | length) and ($at != ".log" or ($old | length) > ($new | length))
					then "\($at): \($old | length) entries are now \($new | length)" else empty end),
				(range([$old, $new] | map(length) | min) as $n | differences($old[$n]; $new[$n]; "\($at)[\($n)]"))
			elif $old != $new then "\($at): \($old | tojson) is now \($new | tojson)"
			else empty end;
		differences($old[0]; $new[0]; "")' >"$WORK/differences" || return 1
	head -n 40 "$WORK/differences"
	[ ! -s "$WORK/differences" ]
}
