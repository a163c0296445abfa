#!/usr/bin/env bash
# tests/api-fuzz.sh: schemathesis sends an origin requests that its description (/api/v1/openapi.json) allows, and
# requests that it does not: with a token of each role over TLS, and through the unix socket. Every response must match
# the description (status, media type, schema); none may be a server error, and no token may be bypassed. PLATTER_SEED
# selects the requests, PLATTER_EXAMPLES their number.
. "$(dirname "$0")/lib.sh"

VENV=$("$TESTS/prerequisites" --venv)
EXAMPLES=${PLATTER_EXAMPLES:-40}
SCHEMATHESIS=$VENV/bin/schemathesis
if [ ! -x "$SCHEMATHESIS" ]; then
	skip "schemathesis is not installed: \`tests/prerequisites full\` installs it"
	finish
	exit 0
fi
PORT=$((20000 + SRANDOM % 12000))
ORIGIN=
RELAY=
suite_cleanup() {
	local process
	for process in $ORIGIN $RELAY; do kill "$process" 2>/dev/null; done
}

random $((1 << 20)) fuzz >"$WORK/disk"
platter init
platter capture --raw "$WORK/disk" lab/a >/dev/null
platter clone lab/a other/b >/dev/null
declare -A TOKEN
for role in read write admin; do
	TOKEN[$role]=$(platter_json serve token add "$role" --role "$role" --images '*' | jq -r .secret)
	TOKEN[$role-lab]=$(platter_json serve token add "$role-lab" --role "$role" --images 'lab/*' | jq -r .secret)
done
"$PLATTER" --store "$STORE" serve --listen "unix:$STORE/serve.sock" --listen "127.0.0.1:$PORT" >"$WORK/origin.log" 2>&1 &
ORIGIN=$!
for _ in $(seq 600); do [ ! -S "$STORE/serve.sock" ] || break; sleep 0.05; done
socat "TCP-LISTEN:$((PORT + 1)),bind=127.0.0.1,fork,reuseaddr" "UNIX-CONNECT:$STORE/serve.sock" 2>/dev/null &
RELAY=$!
check "the origin listens on TCP and through the unix socket" curl -sf --retry 20 --retry-connrefused --retry-delay 1 "http://127.0.0.1:$((PORT + 1))/healthz"
# schemathesis treats frame streams as plain bytes; the unix socket needs no authentication.
curl -s --unix-socket "$STORE/serve.sock" http://origin/api/v1/openapi.json |
	jq '.paths[][] |= (if .requestBody.content["application/x-platter-frames"] then .requestBody.content |= with_entries(.key = "application/octet-stream") else . end)' \
		>"$WORK/token.json"
jq 'del(.security, .components.securitySchemes)' "$WORK/token.json" >"$WORK/socket.json"

# attack NAME URL DESCRIPTION TOKEN: events are an endless stream and left out; a schema cannot express that bytes are not
# a frame or an image does not exist, so valid requests may still be refused
attack() {
	local name=$1 url=$2 headers=()
	[ -z "$4" ] || headers=(--header "Authorization: Bearer $4")
	(cd "$WORK" && timeout 900 "$SCHEMATHESIS" --no-color run "$WORK/$3.json" --url "$url" --tls-verify "$STORE/serve-certificate.pem" "${headers[@]}" \
		--exclude-path /api/v1/events --exclude-checks positive_data_acceptance --phases examples,coverage,fuzzing \
		--max-examples "$EXAMPLES" --seed "$SEED" --request-timeout 20 --suppress-health-check filter_too_much) >"$WORK/said" 2>&1 && code=0 || code=$?
	# For a failure, prints the request, the response and how to reproduce it.
	sed -n '/^=* FAILURES =*$/,/^=* WARNINGS =*$/p' "$WORK/said" | grep . >"$LOG" || cp "$WORK/said" "$LOG"
	[ -z "${PLATTER_KEEP:-}" ] || cp "$WORK/said" "$PLATTER_KEEP/api-fuzz-${name// /-}.log"
	if [ "$code" = 0 ]; then ok "$name: every response matches the description"; else not_ok "$name: every response matches the description"; fi
	check "$name: the origin still serves" curl -sf --unix-socket "$STORE/serve.sock" http://origin/api/v1/images
}
for who in read write admin-lab admin; do
	attack "$who over TLS" "https://localhost:$PORT" token "${TOKEN[$who]}"
done
attack "nobody over TLS" "https://localhost:$PORT" token ''
attack "the unix socket" "http://127.0.0.1:$((PORT + 1))" socket ''
check "no response had status 500" sh -c "! curl -s --unix-socket '$STORE/serve.sock' http://origin/metrics | grep 'requests_total.*status=\"500\"'"
kill "$ORIGIN"
wait "$ORIGIN" 2>/dev/null || true
ORIGIN=
check "the store is sound" platter check
finish
