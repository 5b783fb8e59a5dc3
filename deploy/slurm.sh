#!/bin/bash
# Runs a study on the nodes of a Slurm job, and goes on in the next one where the time limit cuts it off: docs/cluster.md.
#
#   sbatch --nodes 4 --time 24:00:00 deploy/slurm.sh letters_quick --store /shared/runs
#
# What stands behind the script goes to `topk run`. The store, the datasets, and this installation have to lie on a file
# system that all nodes share. TOPK_BIN says where `topk` and `ray` are, unless they are on the PATH; HEAD_ADDRESS the
# address of the first node, where it has several and the name does not lead to the one that the others reach.
#SBATCH --job-name=topk
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@180
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=topk-%j.log
set -uo pipefail

[ -n "${TOPK_BIN:-}" ] && PATH=$TOPK_BIN:$PATH
nodes=${SLURM_JOB_NUM_NODES:?slurm.sh is a job script: sbatch deploy/slurm.sh STUDY}
say() { echo "$(date '+%F %T') slurm.sh: $*"; }

# Three minutes before the time limit, and when it is preempted, the job gets SIGTERM, here alone. The driver ends in
# order, trials keep their checkpoints; where it comes before there is a driver, nothing has to be kept.
stopped='' begun='' child='' ray='' logs=''
stop() {
    stopped=yes
    say "SIGTERM: the time is up, or the job is cancelled"
    [ -z "$child" ] || kill -TERM "$child"
}
trap stop TERM

# Waits for a process and returns its code; a signal ends `wait`, not what it waits for.
ended() {
    local code
    while :; do
        wait "$1"
        code=$?
        kill -0 "$1" 2>/dev/null || return "$code"
    done
}

start_ray() {
    local name
    name=$(hostname)
    address=${HEAD_ADDRESS:-$(getent ahostsv4 "$name" | awk '$1 !~ /^127\./ { print $1; exit }')}
    address=${address:-$(hostname -I | awk '{ print $1 }')}
    port=$((20000 + SLURM_JOB_ID % 20000)) # other jobs may share the node
    # Whoever reaches a Ray port without a token runs code there. This one is of this job alone, in the environment of
    # its processes, which nobody else can read.
    RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
    export RAY_AUTH_MODE=token RAY_AUTH_TOKEN RAY_USAGE_STATS_ENABLED=0
    # All nodes have Ray's files under one path, which nobody can have made before, and each makes it for this user
    # alone. It is short, for the sockets in it may have 107 bytes.
    RAY_FOLDER=${TMPDIR:-/tmp}
    [ ${#RAY_FOLDER} -le 24 ] || RAY_FOLDER=/tmp
    RAY_FOLDER=$RAY_FOLDER/topk-$(od -An -N5 -tx1 /dev/urandom | tr -d ' \n')
    export HEAD="$address:$port" RAY_FOLDER
    logs=$(mktemp -d) || { say "no folder for Ray's log can be made in ${TMPDIR:-/tmp}"; exit 2; }
    # shellcheck disable=SC2016 # expanded on each node
    srun --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" \
        --overlap --kill-on-bad-exit=0 bash -c '
        made=yes
        if ! mkdir -m 700 "$RAY_FOLDER"; then
            [ -O "$RAY_FOLDER" ] && [ ! -L "$RAY_FOLDER" ] || exit 2 # unless another node of the job is this machine
            made=
        fi
        child=
        trap "[ -z \"\$child\" ] || kill -TERM \$child" TERM
        own=$(ip -o route get "${HEAD%:*}" 2>/dev/null | sed -n "s/.* src \([^ ]*\).*/\1/p")
        ports="--dashboard-agent-listen-port 0 --min-worker-port 0 --max-worker-port 0"
        if [ "$SLURM_PROCID" = 0 ]; then
            ray start --block --head --node-ip-address "${HEAD%:*}" --port "${HEAD##*:}" $ports \
                --include-dashboard=false --temp-dir "$RAY_FOLDER/r" --num-cpus "${SLURM_CPUS_PER_TASK:-1}" &
        else
            for _ in $(seq 60); do # until the head listens
                (: </dev/tcp/"${HEAD%:*}"/"${HEAD##*:}") 2>/dev/null && break
                sleep 1
            done
            ray start --block --address "$HEAD" --node-ip-address "${own:-${HEAD%:*}}" $ports \
                --num-cpus "${SLURM_CPUS_PER_TASK:-1}" &
        fi
        child=$!
        code=0
        wait "$child" || code=$?
        while kill -0 "$child" 2>/dev/null; do wait "$child" || code=$?; done # a signal ended the waiting alone
        [ -z "$made" ] || rm -rf "$RAY_FOLDER"
        exit "$code"
    ' >"$logs/ray.log" 2>&1 &
    ray=$!
}

# A study takes as many trials at once as the nodes hold that are there when it starts.
wait_for_nodes() {
    python - "$HEAD" "$nodes" <<'PYTHON'
import sys, time, ray
until = time.monotonic() + 300
while True:
    try:
        ray.init(address=sys.argv[1], logging_level=50, log_to_driver=False)
        break
    except (ConnectionError, RuntimeError):
        if time.monotonic() > until:
            sys.exit(f"slurm.sh: no Ray answers at {sys.argv[1]} within 5 minutes")
        time.sleep(2)
while (there := sum(node["Alive"] for node in ray.nodes())) < int(sys.argv[2]):
    if time.monotonic() > until:
        print(f"slurm.sh: {there} of {sys.argv[2]} nodes have joined within 5 minutes, going on with these")
        break
    time.sleep(1)
PYTHON
}

say "job $SLURM_JOB_ID, run ${SLURM_RESTART_COUNT:-0}, on $SLURM_JOB_NODELIST: topk run $*"
where=()
code=0
if [ "$nodes" -gt 1 ]; then
    start_ray
    wait_for_nodes &
    child=$!
    ended "$child" || code=$?
    where=(--address "$HEAD")
fi
if [ "$code" = 0 ] && [ -z "$stopped" ]; then
    topk run "$@" "${where[@]}" &
    child=$! begun=yes
    ended "$child" || code=$?
fi
child=''
if [ -n "$ray" ]; then
    kill -TERM "$ray" 2>/dev/null
    ended "$ray"
    [ "$code" = 0 ] || tail -n 20 "$logs/ray.log"
    rm -rf "$logs"
fi

# What was cut off goes on in the next run of this job; a study that has ended, in whichever way, does not, nor one whose
# job somebody has cancelled, which is then no longer running.
running() { scontrol show job "$SLURM_JOB_ID" --oneliner | grep -q ' JobState=RUNNING '; }
if [ -n "$stopped" ] && running && { [ "$code" = 143 ] || [ -z "$begun" ]; }; then
    say "the code is $code; the job is put into the queue again"
    exec scontrol requeue "$SLURM_JOB_ID"
fi
say "the code is $code"
exit "$code"
