#!/usr/bin/env bash
# Give the existing znodes of canal-ha to one digest user, so that nobody else reads or writes them.
#
#     ZK_AUTH=canal:secret bash zk/acl.sh zk1:2181,zk2:2181,zk3:2181[/chroot]
#
# Then set canal.zookeeper.auth to the same user:password on every node and restart the nodes one after the other; what
# they create from then on has this ACL. Clients that find nodes through ZooKeeper need the digest too; canal's Java
# client has no way to give it: let it use a fixed list of addresses.
set -euo pipefail

servers=${1:?usage: ZK_AUTH=user:password bash zk/acl.sh host:port[,host:port][/chroot]}
: "${ZK_AUTH:?set ZK_AUTH=user:password}"
cli=$(command -v zkCli.sh || echo /usr/share/zookeeper/bin/zkCli.sh)

# From standard input, so that the password shows in no list of processes.
"$cli" -server "$servers" <<COMMANDS
addauth digest $ZK_AUTH
setAcl -R /otter/canal auth::cdrwa
getAcl /otter/canal
quit
COMMANDS
