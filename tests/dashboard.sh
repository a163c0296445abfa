#!/usr/bin/env bash
# tests/dashboard.sh: the page of an origin in headless Chromium (tests/dashboard.py, over tests/browser.py): it must show
# what the command line prints, follow changes, survive restarts of the origin, fit on a phone, and work with a screen
# reader. PLATTER_SCREENSHOTS names a directory for screenshots.
. "$(dirname "$0")/lib.sh"

if ! { type -P chromium || type -P chromium-browser || type -P google-chrome; } >/dev/null; then
	skip "Chromium is not installed"
	finish
	exit 0
fi
PORT=$((20000 + SRANDOM % 12000))
WATCHED=
ROOM=$ROOT/lab/room
export PLATTER_ROOM=$WORK/room
suite_cleanup() {
	[ -z "$WATCHED" ] || kill "$WATCHED" 2>/dev/null
	[ ! -e "$PLATTER_ROOM" ] || "$ROOM" down
}

file_tree "$WORK/tree" 8 dashboard
ext4_image "$WORK/disk" 32 "$WORK/tree"
cp --sparse=always "$WORK/disk" "$WORK/changed"
random 1500000 new >"$WORK/new-file"
debugfs -w -R "write $WORK/new-file new-file" "$WORK/changed" >/dev/null 2>&1
e2fsck -fy "$WORK/changed" >/dev/null 2>&1 || true
random $((2 << 20)) other >"$WORK/raw"
# A directory of 3,000 names; names that are markup, or not text; links.
mkdir -p "$WORK/inside/many" "$WORK/inside/deep/er"
(cd "$WORK/inside/many" && seq -f 'name-%04.0f' 3000 | xargs touch)
random 3000017 download >"$WORK/inside/deep/er/big.bin"
cp "$WORK/inside/deep/er/big.bin" "$WORK/inside/"'<script>window.hacked=1;<img src=x onerror=window.hacked=1>'
printf 'not text\n' >"$WORK/inside/"$'\xff\xfe.txt'
ln -s deep/er "$WORK/inside/to-directory"
ln -s deep/er/big.bin "$WORK/inside/to-file"
ln -s /etc/passwd "$WORK/inside/to-nothing"
ext4_image "$WORK/inside.raw" 64 "$WORK/inside"
platter init
platter capture "$WORK/inside.raw" lab/inside >/dev/null
platter capture "$WORK/disk" lab/debian --label os=debian --note 'as it came' >/dev/null
platter capture "$WORK/changed" lab/debian --note 'a file more' >/dev/null
platter clone lab/debian@1 lab/copy >/dev/null
platter capture --raw "$WORK/raw" other/raw \
	--note '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>' >/dev/null
platter_json serve token add all --role read --images '*' | jq -r .secret >"$WORK/token"
platter_json serve token add lab --role read --images 'lab/*' | jq -r .secret >"$WORK/token-lab"
# The certificate is created at the first start.
"$PLATTER" --store "$STORE" serve --listen "127.0.0.1:$PORT" >"$WORK/first.log" 2>&1 &
WATCHED=$!
for _ in $(seq 600); do ! grep -q fingerprint "$WORK/first.log" || break; sleep 0.05; done
kill "$WATCHED" || true
wait "$WATCHED" 2>/dev/null || true
WATCHED=

python3 "$TESTS/dashboard.py" "$PLATTER" "$STORE" "$WORK" "$PORT" >"$WORK/said" 2>"$LOG" && code=0 || code=$?
cat "$WORK/said"
PASSED=$((PASSED + $(grep -c '^ok ' "$WORK/said" || true)))
FAILED=$((FAILED + $(grep -c '^not ok ' "$WORK/said" || true)))
if [ "$code" = 0 ]; then ok "the tests in the browser end normally"; else not_ok "the tests in the browser end normally"; fi

# A real cast reports to the origin of the store.
if [ "$(id -u)" = 0 ]; then
	"$PLATTER" --store "$STORE" serve >"$WORK/origin.log" 2>&1 &
	WATCHED=$!
	for _ in $(seq 600); do [ ! -S "$STORE/serve.sock" ] || break; sleep 0.05; done
	"$ROOM" up 2 1gbit 0
	for n in 1 2; do
		"$ROOM" in "$n" timeout 60 "$PLATTER" --quiet receive lab/debian "$WORK/target-$n" --interface eth0 --hello "seat-$n" --trust-any \
			>"$WORK/receive-$n.log" 2>&1 &
	done
	casts() { curl -s -m 5 --unix-socket "$STORE/serve.sock" http://origin/api/v1/casts; }
	"$ROOM" in sender timeout 60 "$PLATTER" --store "$STORE" --quiet cast lab/debian --interface eth0 --receivers 2 --rate 40M \
		>"$WORK/cast.log" 2>&1 &
	cast=$!
	for _ in $(seq 200); do
		casts >"$WORK/casts"
		! jq -e '.[0].state == "casting" and .[0].sent_bytes > 0' "$WORK/casts" >/dev/null 2>&1 || break
		sleep 0.05
	done
	cp "$WORK/casts" "$LOG"
	check "the origin lists a running cast" jq -e '.[0] | .state == "casting" and .version == "lab/debian@2" and .receivers_total == 2' "$WORK/casts"
	check "the cast succeeds" wait "$cast"
	casts >"$WORK/casts"
	check "and the origin lists it as done, with every receiver" jq -e '.[0] | .state == "done" and .receivers_done == 2 and
		([.receivers[].name] | sort) == ["seat-1", "seat-2"] and all(.receivers[]; .state == "done" and .written_bytes > 0)' "$WORK/casts"
	"$ROOM" down
	kill "$WATCHED"
	wait "$WATCHED" 2>/dev/null || true
	WATCHED=
else
	skip "a room needs root"
fi
finish
