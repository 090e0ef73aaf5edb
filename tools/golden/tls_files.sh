#!/bin/bash
# Writes the certificates of trainyard/parallel/testdata/tls, for tests on loopback only: an authority with a certificate
# for 127.0.0.1 and localhost, and another authority with a certificate of its own. They hold for 100 years.
#
# usage: tools/golden/tls_files.sh
set -euo pipefail
cd "$(dirname "$0")/../../trainyard/parallel/testdata/tls"
authority() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500 -subj "/CN=Trainyard test authority $1" \
    -keyout "$1_ca.key" -out "$1_ca.pem" 2>/dev/null
}
certificate() {
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "/CN=Trainyard test $1" -keyout "$1.key" -out "$1.csr" 2>/dev/null
  openssl x509 -req -in "$1.csr" -CA "$1_ca.pem" -CAkey "$1_ca.key" -CAcreateserial -days 36500 -out "$1.pem" \
    -extfile <(echo "subjectAltName=IP:127.0.0.1,DNS:localhost") 2>/dev/null
}
for name in own other; do
  authority "$name"
  certificate "$name"
done
rm -f ./*.csr ./*.srl ./*_ca.key
