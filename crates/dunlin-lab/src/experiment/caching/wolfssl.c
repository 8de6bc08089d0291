// wolfSSL. Settings that the method leaves open are wolfSSL's defaults, except those that make hellos small.

#include <wolfssl/options.h>
#include <wolfssl/ssl.h>

static void refuse(const char *what, WOLFSSL *ssl) {
    char text[128];
    fail(ssl ? wolfSSL_ERR_error_string(wolfSSL_get_error(ssl, 0), text) : what);
}

static WOLFSSL_CTX *configure(int server, int resume, char **files) {
    int tls13 = is(files[VERSION], "tls1.3"), datagrams = is(files[VERSION], "dtls1.2");
    int group = WOLFSSL_ECC_SECP256R1;
    WOLFSSL_CTX *ctx = wolfSSL_CTX_new(
        datagrams ? server ? wolfDTLSv1_2_server_method() : wolfDTLSv1_2_client_method()
        : tls13 ? server ? wolfTLSv1_3_server_method() : wolfTLSv1_3_client_method()
              : server ? wolfTLSv1_2_server_method() : wolfTLSv1_2_client_method()
    );
    const char *suite = tls13 ? "TLS13-AES256-GCM-SHA384" : files[SUITE];
    if (!ctx || wolfSSL_CTX_set_cipher_list(ctx, suite) != WOLFSSL_SUCCESS) refuse("no cipher suite", NULL);
    // In TLS 1.2 it takes the curve of the key, or P-256.
    if (tls13 && wolfSSL_CTX_set_groups(ctx, &group, 1) != WOLFSSL_SUCCESS) refuse("no group", NULL);
    if (wolfSSL_CTX_use_certificate_chain_file(ctx, files[CHAIN]) != WOLFSSL_SUCCESS)
        refuse("no certificate", NULL);
    if (wolfSSL_CTX_use_PrivateKey_file(ctx, files[KEY], WOLFSSL_FILETYPE_PEM) != WOLFSSL_SUCCESS)
        refuse("no key", NULL);
    if (wolfSSL_CTX_load_verify_locations(ctx, files[ROOT], NULL) != WOLFSSL_SUCCESS)
        refuse("no root", NULL);
    wolfSSL_CTX_set_verify(ctx, WOLFSSL_VERIFY_PEER | WOLFSSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    if (server && tls13 && !resume && wolfSSL_CTX_no_ticket_TLSv13(ctx)) refuse("tickets", NULL);
    // In TLS 1.2 a session has an ID.
    if (server && !tls13 && wolfSSL_CTX_NoTicketTLSv12(ctx) != WOLFSSL_SUCCESS) refuse("tickets", NULL);
#ifndef AS_SHIPPED
    int rsa = !strcmp(files[SUITE], "ECDHE-RSA-AES256-GCM-SHA384");
    const char *schemes = rsa ? "RSA-PSS+SHA256:RSA+SHA256" : "ECDSA+SHA256:ED25519";
    if (wolfSSL_CTX_set1_sigalgs_list(ctx, schemes) != WOLFSSL_SUCCESS) refuse("no signature scheme", NULL);
    if (wolfSSL_CTX_AllowEncryptThenMac(ctx, 0) != WOLFSSL_SUCCESS) refuse("encrypt-then-mac", NULL);
#endif
    if (!resume) wolfSSL_CTX_set_session_cache_mode(ctx, WOLFSSL_SESS_CACHE_OFF);
    return ctx;
}

static void expect(WOLFSSL *ssl, const char *message) {
    char buffer[64];
    int length = wolfSSL_read(ssl, buffer, sizeof buffer);
    if (length != (int)strlen(message) || memcmp(buffer, message, length)) refuse("another message", ssl);
}

static void say(WOLFSSL *ssl, const char *message) {
    if (wolfSSL_write(ssl, message, strlen(message)) != (int)strlen(message)) refuse("cannot write", ssl);
}

static void expect_end(WOLFSSL *ssl) {
    char byte;
    int result = wolfSSL_read(ssl, &byte, 1);
    if (wolfSSL_get_error(ssl, result) != WOLFSSL_ERROR_ZERO_RETURN) refuse("no close_notify", ssl);
}

int main(int argc, char **argv) {
    alarm(PATIENCE_SECONDS);
    if (argc <= KEY) fail("arguments");
    int server = is(argv[ROLE], "server"), resume = is(argv[MODE], "resumption");
    wolfSSL_Init();
    WOLFSSL_CTX *ctx = configure(server, resume, argv);
    WOLFSSL_SESSION *session = NULL;
    int listeners[CONNECTIONS] = {-1, -1};
    if (server) listen_for_all(argv, listeners);
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = open_connection(argv, i, listeners[i]);
        WOLFSSL *ssl = wolfSSL_new(ctx);
        if (!ssl || wolfSSL_set_fd(ssl, fd) != WOLFSSL_SUCCESS) refuse("no connection", NULL);
        // Debian's build has no setting for the MTU: IP splits its datagrams.
        struct sockaddr_in peer;
        if (is(argv[VERSION], "dtls1.2")) {
            peer = peer_of(fd);
            if (wolfSSL_dtls_set_peer(ssl, &peer, sizeof peer) != WOLFSSL_SUCCESS) refuse("no peer", NULL);
        }
        if (session && wolfSSL_set_session(ssl, session) != WOLFSSL_SUCCESS) refuse("no session", NULL);
        if ((server ? wolfSSL_accept(ssl) : wolfSSL_connect(ssl)) != WOLFSSL_SUCCESS) refuse("no handshake", ssl);
        if (server) {
            expect(ssl, QUESTION);
            say(ssl, ANSWER);
            expect_end(ssl);
            wolfSSL_shutdown(ssl);
        } else {
            say(ssl, QUESTION);
            expect(ssl, ANSWER);
            if (resume) session = wolfSSL_get1_session(ssl);
            wolfSSL_shutdown(ssl);
            expect_end(ssl);
            puts(wolfSSL_session_reused(ssl) ? "resumed" : "full");
        }
        wolfSSL_free(ssl);
        close(fd);
    }
}
