#!/usr/bin/env bash
# Installs one peer of the benchmarks if it is missing. On failure the last line on standard error is the reason.
#
#   bash bench/peers/install.sh java               canal.server and canal.client 1.1.7 from Maven Central, compiled with ours
#   bash bench/peers/install.sh go                 go-mysql 1.12.0 from the Go proxy, with Debian's Go or a newer one
#   bash bench/peers/install.sh mysqlbinlog        mariadb-binlog from Debian
#   bash bench/peers/install.sh mysql-replication  nothing: the virtual environment contains it
#   bash bench/peers/install.sh debezium           Debezium's embedded engine 3.5.0 from Maven Central, compiled with ours
#   bash bench/peers/install.sh mydumper           mydumper from Debian, unpacked into the cache without root
#
# CANAL_HA_CACHE   directory of the cache (default: ~/.cache/canal-ha)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${CANAL_HA_CACHE:-$HOME/.cache/canal-ha}
target=$cache/bench
log=$target/install-${1:-}.log
mkdir -p "$target"
: >"$log"

fail() {
    sed 's/^/    | /' <(tail -n 10 "$log") >&2
    printf '%s\n' "$*" >&2
    exit 1
}

as_root() {
    if [[ $(id -u) == 0 ]]; then
        "$@"
    else
        sudo -- "$@"
    fi
}

# packages NAME...: Debian packages with programs, without services.
packages() {
    {
        as_root apt-get -q update -o Acquire::Retries=3 &&
            as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends --no-remove \
                -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@"
    } >>"$log" 2>&1 || fail "apt-get could not install: $*"
}

# fingerprint FILE...: changes when one of the files changes.
fingerprint() { sha256sum "$@" | sha256sum | cut -d' ' -f1; }

# --- canal and Debezium -----------------------------------------------------------------------------------------------

# java_peer NAME WHAT: what the pom.xml in directory NAME requires, and the compiled programs of that directory.
java_peer() {
    local directory=$target/$1 wanted
    bash "$here/../../deploy/install.sh" java >>"$log" 2>&1 || fail "JDK or Maven is missing"
    wanted=$(fingerprint "$here/$1"/*)
    [[ $(cat "$directory/installed" 2>/dev/null) != "$wanted" ]] || return 0
    rm -rf "$directory"
    mkdir -p "$directory/classes"
    mvn -q -B -f "$here/$1/pom.xml" -Dmaven.repo.local="$cache/maven" dependency:copy-dependencies \
        -DoutputDirectory="$directory/lib" >>"$log" 2>&1 || fail "Maven could not fetch $2"
    javac -cp "$directory/lib/*" -d "$directory/classes" "$here/$1"/*.java >>"$log" 2>&1 ||
        fail "the benchmark's Java programs do not compile"
    printf '%s\n' "$wanted" >"$directory/installed"
}

# --- go-mysql ---------------------------------------------------------------------------------------------------------

go_needed=1.22 # bench/peers/go/go.mod
go_newer=1.24.0

# new_enough GO: whether this Go can compile the syncer.
new_enough() {
    local version
    version=$(cd / && GOTOOLCHAIN=local "$1" version 2>/dev/null) || return 1
    version=${version#go version go}
    [[ $(printf '%s\n' "$go_needed" "${version%% *}" | sort -V | head -n 1) == "$go_needed" ]]
}

# newer_go GO: fetches a newer Go from its module and sets `go` to it.
newer_go() {
    local machine module
    case $(uname -m) in
    x86_64) machine=amd64 ;;
    aarch64) machine=arm64 ;;
    *) fail "no Go is published for $(uname -m)" ;;
    esac
    module=golang.org/toolchain@v0.0.1-go$go_newer.linux-$machine
    # an old Go cannot run in this module, and a new one would switch to the version in go.mod
    (cd / && GOTOOLCHAIN=local GOFLAGS=-modcacherw "$1" mod download "$module") >>"$log" 2>&1 ||
        fail "the Go proxy has no $module, and this Go is older than $go_needed"
    go=$(cd / && "$1" env GOMODCACHE)/$module
    chmod +x "$go"/bin/* "$go"/pkg/tool/*/* # module archives store no permissions
    go=$go/bin/go
}

install_go() {
    local go wanted
    wanted=$(fingerprint "$here"/go/*)
    [[ ! -x $target/bench-go || $(cat "$target/go-installed" 2>/dev/null) != "$wanted" ]] || return 0
    command -v go >/dev/null || packages golang-go
    go=$(command -v go)
    new_enough "$go" || newer_go "$go"
    (cd "$here/go" && GOTOOLCHAIN=local GOFLAGS=-mod=readonly "$go" build -o "$target/bench-go" .) >>"$log" 2>&1 ||
        fail "go-mysql could not be fetched or compiled"
    printf '%s\n' "$wanted" >"$target/go-installed"
}

# --- mydumper ---------------------------------------------------------------------------------------------------------

# The packages are only unpacked, which needs no root. `run` in the tree starts the program with the tree's libraries.
install_mydumper() {
    local tree=$target/mydumper wanted=(mydumper libmariadb3 libglib2.0-0 libpcre3) libraries package
    ! "$tree/run" --version >/dev/null 2>&1 || return 0
    libraries=$(uname -m)-linux-gnu
    rm -rf "$tree"
    mkdir -p "$tree"
    {
        cd "$tree" &&
            { apt-get -q download "${wanted[@]}" || { as_root apt-get -q update && apt-get -q download "${wanted[@]}"; }; }
    } >>"$log" 2>&1 || fail "apt-get could not download: ${wanted[*]}"
    for package in *.deb; do
        dpkg-deb --extract "$package" . >>"$log" 2>&1 || fail "dpkg-deb could not unpack $package"
    done
    rm ./*.deb
    cat >"$tree/run" <<RUN
#!/bin/sh
export LD_LIBRARY_PATH="$tree/lib/$libraries:$tree/usr/lib/$libraries"
export MARIADB_PLUGIN_DIR="$tree/usr/lib/$libraries/libmariadb3/plugin"
exec "$tree/usr/bin/mydumper" "\$@"
RUN
    chmod +x "$tree/run"
    "$tree/run" --version >>"$log" 2>&1 || fail "mydumper does not run here"
}

# --- the others -------------------------------------------------------------------------------------------------------

case ${1:-} in
java) java_peer java "canal's server" ;;
debezium) java_peer debezium Debezium ;;
go) install_go ;;
mysqlbinlog) command -v mariadb-binlog >/dev/null || packages mariadb-client ;;
mysql-replication) ;;
mydumper) install_mydumper ;;
*) fail "expected java, go, mysqlbinlog, mysql-replication, debezium or mydumper, not: ${1:-}" ;;
esac
