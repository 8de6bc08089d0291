// GnuTLS over datagrams, with the same restrictions as the other side of the comparison: one version, suite,
// group and signature scheme, no tickets. All other settings are GnuTLS's defaults.
//
// PROGRAM server PRIORITY WHO LARGEST ROOT CERTIFICATE KEY            prints its port, takes one connection
// PROGRAM client PRIORITY WHO LARGEST ROOT CERTIFICATE KEY IP PORT    makes one
//
// PRIORITY is GnuTLS's own string. WHO authenticates: the server, mutual by certificates, or mutual by a psk,
// in which case the server may have a certificate as well. LARGEST is the largest datagram. Certificates and
// keys are files in DER; - is nothing.

enum { ROLE = 1, PRIORITY, WHO, LARGEST, ROOT, CERTIFICATE, KEY, IP, PORT };

static const char IDENTITY[] = "Client_identity";

static int find_psk(gnutls_session_t session, const char *identity, gnutls_datum_t *psk) {
    (void)session;
    if (!is(identity, IDENTITY)) return -1;
    psk->data = gnutls_malloc(psk->size = PSK_BYTES);
    if (!psk->data) return -1;
    memset(psk->data, PSK_BYTE, PSK_BYTES);
    return 0;
}

static void use_psk(gnutls_session_t session, int server) {
    if (server) {
        gnutls_psk_server_credentials_t keys;
        check(gnutls_psk_allocate_server_credentials(&keys));
        gnutls_psk_set_server_credentials_function(keys, find_psk);
        check(gnutls_credentials_set(session, GNUTLS_CRD_PSK, keys));
        return;
    }
    unsigned char bytes[PSK_BYTES];
    gnutls_datum_t psk = {bytes, PSK_BYTES};
    memset(bytes, PSK_BYTE, PSK_BYTES);
    gnutls_psk_client_credentials_t keys;
    check(gnutls_psk_allocate_client_credentials(&keys));
    check(gnutls_psk_set_client_credentials(keys, IDENTITY, &psk, GNUTLS_PSK_KEY_RAW));
    check(gnutls_credentials_set(session, GNUTLS_CRD_PSK, keys));
}

int main(int argc, char **argv) {
    alarm(PATIENCE_SECONDS);
    if (argc <= KEY) fail("arguments");
    int server = is(argv[ROLE], "server"), mutual = is(argv[WHO], "mutual"), listener = -1;
    gnutls_certificate_credentials_t keys;
    check(gnutls_certificate_allocate_credentials(&keys));
    if (!is(argv[CERTIFICATE], "-") && (server || mutual))
        check(gnutls_certificate_set_x509_key_file(keys, argv[CERTIFICATE], argv[KEY], GNUTLS_X509_FMT_DER));
    int verifies = !is(argv[ROOT], "-") && (!server || mutual);
    if (verifies) check(gnutls_certificate_set_x509_trust_file(keys, argv[ROOT], GNUTLS_X509_FMT_DER));
    if (server) listen_for(1, &listener, 1);
    else if (argc <= PORT) fail("arguments");
    int fd = open_connection(1, listener, argv + IP, 0);
    gnutls_session_t session = new_session(server, fd, atoi(argv[LARGEST]), argv[PRIORITY], keys);
    if (is(argv[WHO], "psk")) use_psk(session, server);
    if (verifies) gnutls_session_set_verify_cert(session, NULL, 0);
    if (server && mutual) gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUIRE);
    shake_hands(session);
    return 0;
}
