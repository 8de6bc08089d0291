// GnuTLS, over datagrams only. Settings that the method leaves open are GnuTLS's defaults, except those that
// make hellos small.

// The one session of a server.
static gnutls_datum_t kept_id, kept;

static gnutls_datum_t copy_of(gnutls_datum_t data) {
    gnutls_datum_t copy = {gnutls_malloc(data.size), data.size};
    if (!copy.data) fail("no memory");
    memcpy(copy.data, data.data, data.size);
    return copy;
}

static int keep(void *unused, gnutls_datum_t id, gnutls_datum_t data) {
    (void)unused;
    kept_id = copy_of(id);
    kept = copy_of(data);
    return 0;
}

static gnutls_datum_t find(void *unused, gnutls_datum_t id) {
    gnutls_datum_t nothing = {NULL, 0};
    (void)unused;
    int is_kept = kept.data && id.size == kept_id.size && !memcmp(id.data, kept_id.data, id.size);
    return is_kept ? copy_of(kept) : nothing;
}

static int forget(void *unused, gnutls_datum_t id) {
    (void)unused, (void)id;
    return 0;
}

static void expect(gnutls_session_t session, const char *message) {
    char buffer[64];
    ssize_t length = receive(session, buffer, sizeof buffer);
    check(length);
    if (length != (ssize_t)strlen(message) || memcmp(buffer, message, length)) fail("another message");
}

static void expect_end(gnutls_session_t session) {
    char byte;
    if (receive(session, &byte, 1) != 0) fail("no close_notify");
}

static void say(gnutls_session_t session, const char *message) {
    if (gnutls_record_send(session, message, strlen(message)) != (ssize_t)strlen(message)) fail("cannot write");
}

int main(int argc, char **argv) {
    alarm(PATIENCE_SECONDS);
    if (argc <= KEY) fail("arguments");
    int server = is(argv[ROLE], "server"), resume = is(argv[MODE], "resumption");
    int rsa = is(argv[SUITE], "ECDHE-RSA-AES256-GCM-SHA384"), largest = atoi(argv[MTU]) - IP_AND_UDP;
    char priority[256];
    snprintf(
        priority, sizeof priority,
        "NONE:+VERS-DTLS1.2:+%s:+AES-256-GCM:+AEAD:%s:+GROUP-SECP256R1:+COMP-NULL:+CTYPE-X509",
        rsa ? "ECDHE-RSA" : "ECDHE-ECDSA",
#ifdef AS_SHIPPED
        "+SIGN-ALL"
#else
        rsa ? "+SIGN-RSA-PSS-RSAE-SHA256:+SIGN-RSA-SHA256:%NO_ETM" : "+SIGN-ECDSA-SHA256:+SIGN-EdDSA-Ed25519:%NO_ETM"
#endif
    );
    gnutls_certificate_credentials_t keys;
    check(gnutls_certificate_allocate_credentials(&keys));
    check(gnutls_certificate_set_x509_trust_file(keys, argv[ROOT], GNUTLS_X509_FMT_PEM));
    check(gnutls_certificate_set_x509_key_file(keys, argv[CHAIN], argv[KEY], GNUTLS_X509_FMT_PEM));
    gnutls_datum_t session_data = {NULL, 0};
    int listeners[CONNECTIONS] = {-1, -1};
    if (server) listen_for_all(argv, listeners);
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = open_connection(argv, i, listeners[i]);
        gnutls_session_t session = new_session(server, fd, largest, priority, keys);
        gnutls_session_set_verify_cert(session, NULL, 0);
        if (server) gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUIRE);
        if (server && resume) {
            gnutls_db_set_store_function(session, keep);
            gnutls_db_set_retrieve_function(session, find);
            gnutls_db_set_remove_function(session, forget);
        }
        if (session_data.data) check(gnutls_session_set_data(session, session_data.data, session_data.size));
        shake_hands(session);
        if (server) {
            expect(session, QUESTION);
            say(session, ANSWER);
            expect_end(session);
            check(gnutls_bye(session, GNUTLS_SHUT_WR));
        } else {
            say(session, QUESTION);
            expect(session, ANSWER);
            if (resume) check(gnutls_session_get_data2(session, &session_data));
            check(gnutls_bye(session, GNUTLS_SHUT_WR));
            expect_end(session);
            puts(gnutls_session_is_resumed(session) ? "resumed" : "full");
        }
        gnutls_deinit(session);
        close(fd);
    }
}
