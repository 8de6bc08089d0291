// wolfSSL. Settings that the method leaves open are wolfSSL's defaults, except those that make hellos small.

#include <wolfssl/options.h>
#include <wolfssl/ssl.h>

static WOLFSSL_CTX *ctx;
static WOLFSSL_SESSION *session;

static void refuse(const char *what, WOLFSSL *ssl) {
    char text[128];
    fail(ssl ? wolfSSL_ERR_error_string(wolfSSL_get_error(ssl, 0), text) : what);
}

// Checks the result of a step that succeeds or not.
static void check(int result, const char *what) {
    if (result != WOLFSSL_SUCCESS) refuse(what, NULL);
}

static void configure(int server, int resume, char **words) {
    int tls13 = is(words[VERSION], "tls1.3"), datagrams = is(words[VERSION], "dtls1.2");
    int group = WOLFSSL_ECC_SECP256R1;
    ctx = wolfSSL_CTX_new(
        datagrams ? server ? wolfDTLSv1_2_server_method() : wolfDTLSv1_2_client_method()
        : tls13 ? server ? wolfTLSv1_3_server_method() : wolfTLSv1_3_client_method()
              : server ? wolfTLSv1_2_server_method() : wolfTLSv1_2_client_method()
    );
    if (!ctx) refuse("no memory", NULL);
    check(wolfSSL_CTX_set_cipher_list(ctx, tls13 ? "TLS13-AES256-GCM-SHA384" : words[SUITE]), "no cipher suite");
    // In TLS 1.2 it takes the curve of the key, or P-256.
    if (tls13) check(wolfSSL_CTX_set_groups(ctx, &group, 1), "no group");
    check(wolfSSL_CTX_use_certificate_chain_file(ctx, words[CHAIN]), "no certificate");
    check(wolfSSL_CTX_use_PrivateKey_file(ctx, words[KEY], WOLFSSL_FILETYPE_PEM), "no key");
    check(wolfSSL_CTX_load_verify_locations(ctx, words[ROOT], NULL), "no root");
    wolfSSL_CTX_set_verify(ctx, WOLFSSL_VERIFY_PEER | WOLFSSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    if (server && tls13 && !resume && wolfSSL_CTX_no_ticket_TLSv13(ctx)) refuse("tickets", NULL);
    // In TLS 1.2 a session has an ID.
    if (server && !tls13) check(wolfSSL_CTX_NoTicketTLSv12(ctx), "tickets");
#ifndef AS_SHIPPED
    int rsa = is(words[SUITE], "ECDHE-RSA-AES256-GCM-SHA384");
    const char *schemes = rsa ? "RSA-PSS+SHA256:RSA+SHA256" : "ECDSA+SHA256:ED25519";
    check(wolfSSL_CTX_set1_sigalgs_list(ctx, schemes), "no signature scheme");
    check(wolfSSL_CTX_AllowEncryptThenMac(ctx, 0), "encrypt-then-mac");
#endif
    if (!resume) wolfSSL_CTX_set_session_cache_mode(ctx, WOLFSSL_SESS_CACHE_OFF);
}

static void *begin(int server, int fd, int largest) {
    WOLFSSL *ssl = wolfSSL_new(ctx);
    if (!ssl) refuse("no connection", NULL);
    check(wolfSSL_set_fd(ssl, fd), "no connection");
    // Debian's build has no setting for the MTU: IP splits its datagrams.
    struct sockaddr_in peer;
    if (largest) {
        peer = peer_of(fd);
        check(wolfSSL_dtls_set_peer(ssl, &peer, sizeof peer), "no peer");
    }
    if (session) check(wolfSSL_set_session(ssl, session), "no session");
    if ((server ? wolfSSL_accept(ssl) : wolfSSL_connect(ssl)) != WOLFSSL_SUCCESS) refuse("no handshake", ssl);
    return ssl;
}

static void keep_session(void *ssl) { session = wolfSSL_get1_session(ssl); }

static int is_resumed(void *ssl) { return wolfSSL_session_reused(ssl); }

static int get(void *ssl, char *buffer, int size) {
    int length = wolfSSL_read(ssl, buffer, size);
    if (length > 0) return length;
    if (wolfSSL_get_error(ssl, length) != WOLFSSL_ERROR_ZERO_RETURN) refuse("no data", ssl);
    return 0;
}

static int put(void *ssl, const char *message, int length) { return wolfSSL_write(ssl, message, length); }

static void send_close_notify(void *ssl) { wolfSSL_shutdown(ssl); }

static void end(void *ssl) { wolfSSL_free(ssl); }
