#!/bin/sh
# Runs quiche's own unit tests, and the hook's, on the assembled source. They read files such as
# `examples/cert.crt`, so they run inside the pristine package. Arguments go to the test binary.
set -eu
cd "$(dirname "$0")"

if ! messages=$(cargo test --lib --no-run --message-format=json-render-diagnostics); then
    echo "the unit tests do not compile; the errors are above" >&2
    exit 1
fi
# cargo's message about the build script names the pristine package. The last executable is the
# test binary.
pristine=$(printf '%s\n' "$messages" | sed -n 's/.*\["QUICHE_PRISTINE","\([^"]*\)"\].*/\1/p' | tail -n 1)
binary=$(printf '%s\n' "$messages" | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
if [ -z "$pristine" ] || [ -z "$binary" ]; then
    echo "cargo did not name the pristine package and the test binary; run 'cargo test --lib' here to see why" >&2
    exit 1
fi

# Two of quiche's tests expect the handshake of boring 5.2, which is six bytes smaller than that of
# 5.4. They also fail on the pristine quiche.
size_of_handshake=sends_ack_only_pkt_when_full_cwnd_and_ack_elicited
cd "$pristine"
exec "$binary" \
    --skip "$size_of_handshake::cc_algorithm_name_2___bbr2_gcongestion__" \
    --skip "${size_of_handshake}_despite_max_unacknowledging::cc_algorithm_name_2___bbr2_gcongestion__" \
    "$@"
