// GnuTLS, over datagrams only. Settings that the method leaves open are GnuTLS's defaults, except those that
// make hellos small.

static gnutls_certificate_credentials_t keys;
static char priority[256];
static int resumes;
// The one session of a server, and of a client.
static gnutls_datum_t kept_id, kept, kept_by_client;

static gnutls_datum_t copy_of(gnutls_datum_t data) {
    gnutls_datum_t copy = {gnutls_malloc(data.size), data.size};
    if (!copy.data) fail("no memory");
    memcpy(copy.data, data.data, data.size);
    return copy;
}

static int store(void *unused, gnutls_datum_t id, gnutls_datum_t data) {
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

static void configure(int server, int resume, char **words) {
    int rsa = is(words[SUITE], "ECDHE-RSA-AES256-GCM-SHA384");
    (void)server;
    resumes = resume;
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
    check(gnutls_certificate_allocate_credentials(&keys));
    check(gnutls_certificate_set_x509_trust_file(keys, words[ROOT], GNUTLS_X509_FMT_PEM));
    check(gnutls_certificate_set_x509_key_file(keys, words[CHAIN], words[KEY], GNUTLS_X509_FMT_PEM));
}

static void *begin(int server, int fd, int largest) {
    gnutls_session_t session = new_session(server, fd, largest, priority, keys);
    gnutls_session_set_verify_cert(session, NULL, 0);
    if (server) gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUIRE);
    if (server && resumes) {
        gnutls_db_set_store_function(session, store);
        gnutls_db_set_retrieve_function(session, find);
        gnutls_db_set_remove_function(session, forget);
    }
    if (kept_by_client.data) check(gnutls_session_set_data(session, kept_by_client.data, kept_by_client.size));
    shake_hands(session);
    return session;
}

static void keep_session(void *session) { check(gnutls_session_get_data2(session, &kept_by_client)); }

static int is_resumed(void *session) { return gnutls_session_is_resumed(session); }

static int get(void *session, char *buffer, int size) {
    ssize_t length = receive(session, buffer, size);
    check(length);
    return length;
}

static int put(void *session, const char *message, int length) { return gnutls_record_send(session, message, length); }

static void send_close_notify(void *session) { check(gnutls_bye(session, GNUTLS_SHUT_WR)); }

static void end(void *session) { gnutls_deinit(session); }
