// OpenSSL. Settings that the method leaves open are OpenSSL's defaults, except those that make hellos small.

static SSL_SESSION *session;

static int keep(SSL *ssl, SSL_SESSION *new) {
    (void)ssl;
    SSL_SESSION_free(session);
    session = new;
    return 1;
}

#ifndef AS_SHIPPED
// The schemes of the handshake and of the certificates.
static const char *schemes_of(const EVP_PKEY *key) {
    switch (EVP_PKEY_get_base_id(key)) {
    case EVP_PKEY_RSA: return "RSA-PSS+SHA256:RSA+SHA256";
    case EVP_PKEY_EC: return "ECDSA+SHA256";
    default: return "ed25519";
    }
}
#endif

static SSL_CTX *configure(int server, int resume, char **files) {
    int datagrams = is(files[VERSION], "dtls1.2"), tls13 = is(files[VERSION], "tls1.3");
    SSL_CTX *ctx = SSL_CTX_new(datagrams ? DTLS_method() : TLS_method());
    int version = datagrams ? DTLS1_2_VERSION : tls13 ? TLS1_3_VERSION : TLS1_2_VERSION;
    if (!ctx || !SSL_CTX_set_min_proto_version(ctx, version)) refuse("no such version");
    if (!SSL_CTX_set_max_proto_version(ctx, version)) refuse("no such version");
    if (tls13 ? !SSL_CTX_set_ciphersuites(ctx, "TLS_AES_256_GCM_SHA384") : !SSL_CTX_set_cipher_list(ctx, files[SUITE]))
        refuse("no cipher suite");
    if (!SSL_CTX_set1_groups_list(ctx, "P-256")) refuse("no group");
    if (SSL_CTX_use_certificate_chain_file(ctx, files[CHAIN]) != 1) refuse("no certificate");
    if (SSL_CTX_use_PrivateKey_file(ctx, files[KEY], SSL_FILETYPE_PEM) != 1) refuse("no key");
    if (SSL_CTX_load_verify_locations(ctx, files[ROOT], NULL) != 1) refuse("no root");
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    // The chain is what the file has: leaf and intermediate, without the root.
    SSL_CTX_set_mode(ctx, SSL_MODE_NO_AUTO_CHAIN | SSL_MODE_AUTO_RETRY);
    // Tickets that name a session: those that hold one would carry the client's certificates. In TLS 1.2 a
    // session has an ID.
    if (server || !tls13) SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);
#ifndef AS_SHIPPED
    SSL_CTX_clear_options(ctx, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
    SSL_CTX_set_options(ctx, SSL_OP_NO_ENCRYPT_THEN_MAC);
    if (!SSL_CTX_set1_sigalgs_list(ctx, schemes_of(SSL_CTX_get0_privatekey(ctx)))) refuse("no signature scheme");
#endif
    if (datagrams && server) {
        SSL_CTX_set_options(ctx, SSL_OP_COOKIE_EXCHANGE);
        use_cookies(ctx);
    }
    if (!resume) SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    if (server) {
        SSL_CTX_set_num_tickets(ctx, resume);
        SSL_CTX_set_session_id_context(ctx, (const unsigned char *)"lab", 3);
    } else if (resume) {
        SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
        SSL_CTX_sess_set_new_cb(ctx, keep);
    }
    return ctx;
}

static void expect(SSL *ssl, const char *message) {
    char buffer[64];
    int length = SSL_read(ssl, buffer, sizeof buffer);
    if (length != (int)strlen(message) || memcmp(buffer, message, length)) refuse("another message");
}

static void say(SSL *ssl, const char *message) {
    if (SSL_write(ssl, message, strlen(message)) != (int)strlen(message)) refuse("cannot write");
}

static void expect_end(SSL *ssl) {
    char byte;
    int result = SSL_read(ssl, &byte, 1);
    if (SSL_get_error(ssl, result) != SSL_ERROR_ZERO_RETURN) refuse("no close_notify");
}

int main(int argc, char **argv) {
    alarm(PATIENCE_SECONDS);
    if (argc <= KEY) fail("arguments");
    int server = is(argv[ROLE], "server");
    SSL_CTX *ctx = configure(server, is(argv[MODE], "resumption"), argv);
    int listeners[CONNECTIONS] = {-1, -1};
    if (server) listen_for_all(argv, listeners);
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = open_connection(argv, i, listeners[i]);
        SSL *ssl = SSL_new(ctx);
        if (!ssl || !SSL_set_fd(ssl, fd)) refuse("no connection");
        if (is(argv[VERSION], "dtls1.2")) use_datagrams(ssl, fd, atoi(argv[MTU]) - IP_AND_UDP);
        if (!server && session && !SSL_set_session(ssl, session)) refuse("no session");
        if ((server ? SSL_accept(ssl) : SSL_connect(ssl)) != 1) refuse("no handshake");
        if (server) {
            expect(ssl, QUESTION);
            say(ssl, ANSWER);
            expect_end(ssl);
            SSL_shutdown(ssl);
        } else {
            say(ssl, QUESTION);
            expect(ssl, ANSWER);
            SSL_shutdown(ssl);
            expect_end(ssl);
            puts(SSL_session_reused(ssl) ? "resumed" : "full");
        }
        SSL_free(ssl);
        close(fd);
    }
}
