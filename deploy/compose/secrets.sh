#!/usr/bin/env bash
# Writes the passwords, accounts and tokens of docker-compose.ha.yml: random ones, in files that only you can read. Git
# ignores them. Existing files stay. For new secrets remove the directory and the volumes (docker-compose … down -v).
#
#   bash deploy/compose/secrets.sh [DIR]        default: deploy/compose/secrets
set -euo pipefail

directory=${1:-$(dirname "${BASH_SOURCE[0]}")/secrets}
if ! command -v openssl >/dev/null; then
    printf 'secrets: openssl is missing; next: install the package openssl\n' >&2
    exit 1
fi
umask 077
mkdir -p "$directory"
chmod 0700 "$directory"
cd "$directory"

# keep FILE TEXT: writes a file if it is missing.
keep() { [[ -e $1 ]] || printf '%s\n' "$2" >"$1"; }

random() { openssl rand -hex 24; }

# password_hash FILE, token_hash FILE: hashes as in an accounts file (docs/security.md).
password_hash() { tr -d '\n' <"$1" | openssl dgst -sha1 -binary | openssl dgst -sha1 -r | cut -d' ' -f1; }
token_hash() { tr -d '\n' <"$1" | openssl dgst -sha256 -r | cut -d' ' -f1; }

for name in mysql-root mysql-canal client.password operator.password monitoring.token; do
    keep "$name" "$(random)"
done
keep zookeeper "canal:$(random)"
keep accounts.toml "# written by deploy/compose/secrets.sh: hashes of the other files
[accounts.client]
passwords = [\"$(password_hash client.password)\"]
roles = [\"read\"]
destinations = [\"example\"]
client_ids = [1001, 1002]

[accounts.operator]
passwords = [\"$(password_hash operator.password)\"]
roles = [\"read\", \"admin\"]
destinations = [\"*\"]

[accounts.monitoring]
tokens = [\"$(token_hash monitoring.token)\"]
roles = [\"read\"]
destinations = [\"*\"]
client_ids = []"
chmod 0600 ./*
printf 'secrets: %s\n' "$PWD"
