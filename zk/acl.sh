#!/usr/bin/env bash
# Give all znodes of canal-ha to one account of ZooKeeper's digest scheme, so that nobody else reads or writes them:
#
#     ZK_AUTH=canal:secret bash zk/acl.sh zk1:2181,zk2:2181,zk3:2181[/chroot]
#
# With ZK_AUTH_OLD=canal:former they belong to both accounts, while the nodes and clients change from one to the other.
# With ZK_WORLD_READ=true everybody may read who runs a destination, as with canal.zookeeper.world.read.
#
# Every node must know ZK_AUTH before: docs/how-to/change-the-zookeeper-account.md has the order. Afterwards the script
# reads all rights back. If one is wrong, it names the znodes and fails.
set -euo pipefail

usage='usage: ZK_AUTH=user:password [ZK_AUTH_OLD=user:password] bash zk/acl.sh host:port[,host:port][/chroot]'
servers=${1:?$usage}
: "${ZK_AUTH:?$usage}"
old=${ZK_AUTH_OLD:-}
for account in "$ZK_AUTH" "$old"; do
    case $account in
        *[\"[:cntrl:]]*) echo 'acl.sh: zkCli takes no account with a quotation mark or a control character' >&2; exit 2 ;;
        *[![:ascii:]]*) echo 'acl.sh: takes no account with other than ASCII characters' >&2; exit 2 ;;
        '' | *:*) ;;
        *) echo "acl.sh: $usage" >&2; exit 2 ;;
    esac
    case ${account%%:*} in *,*) echo 'acl.sh: zkCli takes no account with a comma in its name' >&2; exit 2 ;; esac
done
root=/otter/canal
tells_who_runs="^$root/destinations/[^/]+/(running|cluster(/[^/]+)?)\$"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Run the commands of standard input and print what zkCli says, without its prompts. The passwords show in no list of
# processes. zkCli ends well also if a command fails, so only what it says counts.
zk() {
    local cli
    cli=$(command -v zkCli.sh || echo /usr/share/zookeeper/bin/zkCli.sh)
    {
        printf 'addauth digest "%s"\n' ${old:+"$old"} "$ZK_AUTH"
        cat
        echo quit
    } | "$cli" -waitforconnection -server "$servers" 2>&1 | sed 's/^\[zk: [^]]*\] //' || true
}

# user:password as the id that ZooKeeper makes of it.
id_of() { printf "%s:%s\n" "${1%%:*}" "$(printf %s "$1" | openssl dgst -sha1 -binary | openssl base64)"; }

{
    id_of "$ZK_AUTH"
    [ -z "$old" ] || id_of "$old"
} | sort -u >"$work/ids"
sed 's/^/digest,/' "$work/ids" >"$work/accounts"
# Not auth::, which also means the certificate of zkCli.
rights=$(sed 's/.*/digest:&:cdrwa/' "$work/ids" | paste -sd ,)

# Run the commands of standard input, then write all znodes into $work/paths.
list() {
    { cat; echo "ls -R $root"; } | zk >"$work/said"
    grep -x "$root\(/.*\)\?" "$work/said" >"$work/paths" || {
        grep -v '^$' "$work/said" | tail -n 3 >&2
        echo "acl.sh: found no znodes at $servers below $root" >&2
        exit 1
    }
}

# Set the rights. Each znode gets all of its rights at once, so that nobody loses one for a moment.
close() {
    list </dev/null
    rights=$rights awk -v open="$tells_who_runs" -v world="${ZK_WORLD_READ:-}" '
        { print "setAcl " $0 " \"" ENVIRON["rights"] (world == "true" && $0 ~ open ? ",world:anyone:r" : "") "\"" }
    ' "$work/paths" >"$work/commands"
    list <"$work/commands"
}

# Read the rights back; write the znodes with others than they should have into $work/wrong.
check() {
    sed 's/^/getAcl -s /' "$work/paths" | zk >"$work/said"
    awk -v open="$tells_who_runs" -v world="${ZK_WORLD_READ:-}" '
        FILENAME == ARGV[1] { account[$0] = 1; accounts++; next }
        FILENAME == ARGV[2] { path[++paths] = $0; next }
        /^\047[a-z0-9]+,\047/ { gsub(/\047/, ""); who = $0; next }
        /^: [a-z]+$/        {
            rights = substr($0, 3)
            if (who in account && rights == "cdrwa") good++
            else if (world == "true" && path[at + 1] ~ open && who == "world,anyone" && rights == "r") good++
            else bad++
            who = ""
            next
        }
        /^numChildren = /   {
            wanted = accounts + (world == "true" && path[at + 1] ~ open)
            if (bad || good != wanted) print path[at + 1]
        }
        /^numChildren = |^Node does not exist: |^Insufficient permission : / {
            at++
            if (/^Insufficient/) print path[at]
            good = bad = 0
        }
        END { if (at != paths) print "no answer for " paths - at " znodes" }
    ' "$work/accounts" "$work/paths" "$work/said" >"$work/wrong"
}

for _ in 1 2 3; do # nodes and clients make znodes meanwhile
    close
    check
    if [ ! -s "$work/wrong" ]; then
        echo "$(wc -l <"$work/paths") znodes below $root at $servers belong to $(paste -sd ' ' "$work/accounts") alone"
        exit 0
    fi
done
head -n 20 "$work/wrong" >&2
echo "acl.sh: $(wc -l <"$work/wrong") znodes below $root have other rights, the first ones above. Who made them? Give the" \
    "account of its nodes and clients as ZK_AUTH_OLD, or delete what a stranger has made" >&2
exit 1
