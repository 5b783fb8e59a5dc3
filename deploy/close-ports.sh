#!/bin/sh
# Lets Ray's ports be reached on one address of this machine and on loopback only: docs/cluster.md. Wants root and nft.
#
#   deploy/close-ports.sh 10.0.0.1 10.0.0.0/24     from that network alone; without it, from whoever reaches the address
#   deploy/close-ports.sh --open                   takes it back
#
# Ray listens on every interface as soon as its address is not loopback, and knows no setting for it. The token keeps
# others out of all but the metrics, which are for everybody who asks; this keeps them from the ports themselves.
# RAY_PORT and RAY_BASE_PORT as for start-head.sh.
set -eu

address=${1:-}
network=${2:-0.0.0.0/0}
port=${RAY_PORT:-6379}
base=${RAY_BASE_PORT:-20000}

case $address in
--open)
    printf 'table inet topk_ray\ndelete table inet topk_ray\n' | nft -f - # whether there is one or not
    exit
    ;;
'' | *[!0-9.]*)
    echo "close-ports.sh: the first argument must be an IPv4 address of this machine, or --open, got '$address'" >&2
    exit 2
    ;;
esac

# One transaction: a rule that nft refuses leaves the ports as they were, and they are open at no moment between.
nft -f - <<RULES
table inet topk_ray
delete table inet topk_ray
table inet topk_ray {
    chain input {
        type filter hook input priority 0; policy accept;
        iifname "lo" accept
        ip daddr $address ip saddr $network accept
        tcp dport { $port, $base-$((base + 999)) } drop
    }
}
RULES
