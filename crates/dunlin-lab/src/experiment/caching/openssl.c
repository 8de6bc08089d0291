// OpenSSL. Settings that the method leaves open are OpenSSL's defaults, except those that make hellos small.

static SSL_CTX *ctx;
static SSL_SESSION *session;

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

static void configure(int server, int resume, char **words) {
    int tls13 = is(words[VERSION], "tls1.3");
    ctx = new_context(words[VERSION]);
    if (tls13 ? !SSL_CTX_set_ciphersuites(ctx, "TLS_AES_256_GCM_SHA384") : !SSL_CTX_set_cipher_list(ctx, words[SUITE]))
        refuse("no cipher suite");
    if (!SSL_CTX_set1_groups_list(ctx, "P-256")) refuse("no group");
    use_files(ctx, words + ROOT);
    // Tickets that name a session: those that hold one would carry the client's certificates. In TLS 1.2 a
    // session has an ID.
    if (server || !tls13) SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);
    shorten_hellos(ctx);
#ifndef AS_SHIPPED
    if (!SSL_CTX_set1_sigalgs_list(ctx, schemes_of(SSL_CTX_get0_privatekey(ctx)))) refuse("no signature scheme");
#endif
    if (server && is(words[VERSION], "dtls1.2")) demand_cookies(ctx);
    if (!resume) SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    if (server) {
        SSL_CTX_set_num_tickets(ctx, resume);
        SSL_CTX_set_session_id_context(ctx, (const unsigned char *)"lab", 3);
    }
}

static void *begin(int server, int fd, int largest) {
    SSL *ssl = new_connection(ctx, fd, largest);
    if (session && !SSL_set_session(ssl, session)) refuse("no session");
    if ((server ? SSL_accept(ssl) : SSL_connect(ssl)) != 1) refuse("no handshake");
    return ssl;
}

static void keep_session(void *ssl) { session = SSL_get1_session(ssl); }

static int is_resumed(void *ssl) { return SSL_session_reused(ssl); }

static int get(void *ssl, char *buffer, int size) {
    int length = SSL_read(ssl, buffer, size);
    if (length > 0) return length;
    if (SSL_get_error(ssl, length) != SSL_ERROR_ZERO_RETURN) refuse("no data");
    return 0;
}

static int put(void *ssl, const char *message, int length) { return SSL_write(ssl, message, length); }

static void send_close_notify(void *ssl) { SSL_shutdown(ssl); }

static void end(void *ssl) { SSL_free(ssl); }
