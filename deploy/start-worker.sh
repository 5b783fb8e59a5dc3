#!/bin/sh
# Joins this machine to a Ray cluster that start-head.sh has started, and stays with it: docs/cluster.md.
#
#   deploy/start-worker.sh 10.0.0.1:6379                    in the foreground, as a service or in tmux
#   deploy/start-worker.sh 10.0.0.1:6379 --num-gpus 2       the rest goes to `ray start`
#
# A node that the head has not heard of for about a minute, for instance because a cable was pulled, is given up,
# and its processes end when they hear of it. Here they are started anew, so that it joins again once the head answers.
#
# NODE_ADDRESS is this machine's address, by default that from which the head is reached; RAY, RAY_BASE_PORT and the
# token as for start-head.sh.
set -eu

head=${1:-}
case $head in
*:*[0-9]) shift ;;
*)
    echo "start-worker.sh: the first argument must be the head's HOST:PORT, got '$head'" >&2
    exit 2
    ;;
esac
ray=${RAY:-ray}
base=${RAY_BASE_PORT:-20000}

token=${RAY_AUTH_TOKEN_PATH:-$HOME/.ray/auth_token}
if ! "$ray" get-auth-token --help >/dev/null 2>&1; then # Ray before 2.52
    echo "start-worker.sh: this Ray knows no tokens; whoever reaches its ports runs code here" >&2
elif [ -z "${RAY_AUTH_TOKEN:-}" ]; then
    if [ ! -s "$token" ]; then
        echo "start-worker.sh: no token in $token: copy the head's" >&2
        exit 2
    fi
    if [ "$(ls -lL "$token" | cut -c 5-10)" != ------ ]; then
        echo "start-worker.sh: others on this machine can read $token, and so run code on the cluster: chmod 600 $token" >&2
    fi
fi
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0

own() {
    [ -n "${NODE_ADDRESS:-}" ] && echo "$NODE_ADDRESS" && return
    ip -o route get "$(getent ahosts "${head%:*}" | awk 'NR == 1 { print $1 }')" | sed -n 's/.* src \([^ ]*\).*/\1/p'
}

child=
trap 'trap - TERM INT; [ -z "$child" ] || kill -TERM "$child"; wait; exit 143' TERM INT
while :; do
    address=$(own) && [ -n "$address" ] || { echo "start-worker.sh: no route to ${head%:*}" >&2; sleep 5; continue; }
    "$ray" start --address "$head" --node-ip-address "$address" --block \
        --node-manager-port $((base + 1)) --object-manager-port $((base + 2)) --runtime-env-agent-port $((base + 3)) \
        --dashboard-agent-grpc-port $((base + 4)) --dashboard-agent-listen-port $((base + 5)) \
        --metrics-export-port $((base + 6)) \
        --min-worker-port $((base + 100)) --max-worker-port $((base + 999)) "$@" &
    child=$!
    wait "$child" || echo "start-worker.sh: Ray has ended here with code $?; it is started anew in 5 s" >&2
    child=
    sleep 5
done
