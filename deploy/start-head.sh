#!/bin/sh
# Starts the head of a Ray cluster by hand: docs/cluster.md.
#
#   deploy/start-head.sh                           on loopback: nobody else can join, or reach it
#   deploy/start-head.sh 10.0.0.1                  for the machines that reach 10.0.0.1; workers: start-worker.sh
#   deploy/start-head.sh 10.0.0.1 --num-cpus 0     the rest goes to `ray start`: a head that trains nothing
#
# RAY says which ray, RAY_PORT which port (6379), RAY_BASE_PORT where the other ports begin (20000). With --block it stays
# in the foreground, and Ctrl-C ends this Ray alone; `ray stop` ends all Rays of this user on the machine.
# Whoever reaches a Ray port runs code there, so every process asks for the token in ~/.ray/auth_token; it is made where
# there is none. Copy it to the other machines, readable for you alone.
set -eu

address=${1:-127.0.0.1}
[ $# -gt 0 ] && shift
ray=${RAY:-ray}
port=${RAY_PORT:-6379}
base=${RAY_BASE_PORT:-20000}
loopback=

case $address in
-* | *[!0-9a-fA-F.:]*)
    echo "start-head.sh: the first argument must be an IP address of this machine, got '$address'" >&2
    echo "usage: deploy/start-head.sh [ADDRESS [OPTIONS OF ray start]], ADDRESS 127.0.0.1 for this machine alone" >&2
    exit 2
    ;;
127.* | ::1)
    # Ray replaces a loopback address by one that others reach, and listens on every interface, unless it is told that
    # it knows no clusters; the variable is named after the systems on which that is so by default.
    export RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0
    loopback=yes
    ;;
esac

export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0
token=${RAY_AUTH_TOKEN_PATH:-$HOME/.ray/auth_token}
if [ -z "${RAY_AUTH_TOKEN:-}" ]; then
    # Ray writes the file as the umask says, and as a rule others may then read it.
    if ! "$ray" get-auth-token --help >/dev/null 2>&1; then  # Ray before 2.52
        [ -n "$loopback" ] || echo "start-head.sh: this Ray knows no tokens; whoever reaches $address runs code here" >&2
    elif [ -z "${RAY_AUTH_TOKEN_PATH:-}" ]; then
        (umask 077 && "$ray" get-auth-token --generate >/dev/null)
    fi
    if [ -O "$token" ]; then chmod go= "$token"; fi
fi

# A job of Ray's runs its command here, and finds `topk` where `ray` is, also where RAY says where that is.
bin=$(dirname "$(command -v "$ray")")
export PATH="$bin:$PATH"

case $address in *:*) there="[$address]:$port" ;; *) there=$address:$port ;; esac
if "$bin/python" -c "import socket; socket.create_connection(('$address', $port), 1)" 2>/dev/null; then
    echo "start-head.sh: something listens at $there, perhaps a Ray that was started before: join it, or take" \
        "other ports, RAY_PORT=$((port + 1)) RAY_BASE_PORT=$((base + 1000))" >&2
    exit 2
fi

# Ray's client has a port only where it is installed, and `ray start` refuses the option elsewhere.
client=
if "$bin/python" -c 'import grpc' 2>/dev/null; then
    client="--ray-client-server-port $((base + 9))"
fi

# Every port is said, so that a firewall can be told of them: close-ports.sh.
export AUTOSCALER_METRIC_PORT=$((base + 7)) DASHBOARD_METRIC_PORT=$((base + 8))
last=
case " $* " in *" --block "*) last=exec ;; esac # a service's SIGTERM is Ray's to hear
$last "$ray" start --head --node-ip-address "$address" --port "$port" --dashboard-host 127.0.0.1 \
    --node-manager-port $((base + 1)) --object-manager-port $((base + 2)) --runtime-env-agent-port $((base + 3)) \
    --dashboard-agent-grpc-port $((base + 4)) --dashboard-agent-listen-port $((base + 5)) \
    --metrics-export-port $((base + 6)) $client \
    --min-worker-port $((base + 100)) --max-worker-port $((base + 999)) "$@"

echo
echo "start-head.sh: Ray runs at $there. To use it, in your shell:"
echo "    export RAY_AUTH_MODE=token"
echo "    topk plan STUDY --address $there"
echo "    topk run STUDY --address $there"
if [ -n "$loopback" ]; then
    echo "'ray status' finds a Ray on loopback after: export RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0"
else
    echo "On each machine that is to join it, with a copy of $token that you alone can read:"
    echo "    deploy/start-worker.sh $there"
fi
"$bin/python" -c 'import aiohttp_cors' 2>/dev/null ||
    echo "'ray job submit' and the dashboard need, before Ray starts: pip install 'ray[default]'"
echo "'ray stop' ends it, and every other Ray of yours on this machine, running studies' too."
