// Common code of the OpenSSL programs.

#include <openssl/err.h>
#include <openssl/ssl.h>

static void refuse(const char *what) {
    unsigned long error = ERR_get_error();
    fail(error ? ERR_error_string(error, NULL) : what);
}

// A context with one version of the protocol: tls1.2, tls1.3 or dtls1.2.
static SSL_CTX *new_context(const char *version) {
    int datagrams = is(version, "dtls1.2");
    int number = datagrams ? DTLS1_2_VERSION : is(version, "tls1.3") ? TLS1_3_VERSION : TLS1_2_VERSION;
    SSL_CTX *ctx = SSL_CTX_new(datagrams ? DTLS_method() : TLS_method());
    if (!ctx || SSL_CTX_set_min_proto_version(ctx, number) != 1) refuse("no such version");
    if (SSL_CTX_set_max_proto_version(ctx, number) != 1) refuse("no such version");
    return ctx;
}

// Uses trust anchors, chain and key from files in PEM, and demands a certificate from the peer.
static void use_files(SSL_CTX *ctx, char **files) {
    if (SSL_CTX_load_verify_locations(ctx, files[0], NULL) != 1) refuse("no root");
    if (SSL_CTX_use_certificate_chain_file(ctx, files[1]) != 1) refuse("no certificate");
    if (SSL_CTX_use_PrivateKey_file(ctx, files[2], SSL_FILETYPE_PEM) != 1) refuse("no key");
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    // The chain is what the file has: leaf and intermediate, without the root.
    SSL_CTX_set_mode(ctx, SSL_MODE_NO_AUTO_CHAIN);
}

// Leaves out of hellos what neither side needs.
static void shorten_hellos(SSL_CTX *ctx) {
#ifdef AS_SHIPPED
    (void)ctx;
#else
    SSL_CTX_clear_options(ctx, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
    SSL_CTX_set_options(ctx, SSL_OP_NO_ENCRYPT_THEN_MAC);
#endif
}

// A cookie as long as one of OpenSSL's own server.
enum { COOKIE_BYTES = 20 };

static int make_cookie(SSL *ssl, unsigned char *cookie, unsigned *length) {
    (void)ssl;
    memset(cookie, 7, *length = COOKIE_BYTES);
    return 1;
}

static int check_cookie(SSL *ssl, const unsigned char *cookie, unsigned length) {
    (void)ssl, (void)cookie;
    return length == COOKIE_BYTES;
}

static void demand_cookies(SSL_CTX *ctx) {
    SSL_CTX_set_options(ctx, SSL_OP_COOKIE_EXCHANGE);
    SSL_CTX_set_cookie_generate_cb(ctx, make_cookie);
    SSL_CTX_set_cookie_verify_cb(ctx, check_cookie);
}

// The smallest datagrams that OpenSSL sends. At a smaller MTU, IP splits them.
enum { SMALLEST_DATAGRAM = 256 - IP_AND_UDP };

// A connection over a connected socket, over UDP with datagrams of this length, which is 0 over TCP.
static SSL *new_connection(SSL_CTX *ctx, int fd, int largest) {
    SSL *ssl = SSL_new(ctx);
    if (!ssl || !SSL_set_fd(ssl, fd)) refuse("no connection");
    if (!largest) return ssl;
    struct sockaddr_in peer = peer_of(fd);
    BIO *bio = BIO_new_dgram(fd, BIO_NOCLOSE);
    if (!bio) refuse("no connection");
    BIO_ctrl(bio, BIO_CTRL_DGRAM_SET_CONNECTED, 0, &peer);
    SSL_set_bio(ssl, bio, bio);
    SSL_set_options(ssl, SSL_OP_NO_QUERY_MTU);
    if (!SSL_set_mtu(ssl, largest < SMALLEST_DATAGRAM ? SMALLEST_DATAGRAM : largest)) refuse("no such MTU");
    return ssl;
}
