// Common code of the OpenSSL programs.

#include <openssl/err.h>
#include <openssl/ssl.h>

static void refuse(const char *what) {
    unsigned long error = ERR_get_error();
    fail(error ? ERR_error_string(error, NULL) : what);
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

static void use_cookies(SSL_CTX *ctx) {
    SSL_CTX_set_cookie_generate_cb(ctx, make_cookie);
    SSL_CTX_set_cookie_verify_cb(ctx, check_cookie);
}

// The smallest datagrams that OpenSSL sends. At a smaller MTU, IP splits them.
enum { SMALLEST_DATAGRAM = 256 - 28 };

// Uses a connected socket with datagrams of this length.
static void use_datagrams(SSL *ssl, int fd, int largest) {
    struct sockaddr_in peer = peer_of(fd);
    BIO *bio = BIO_new_dgram(fd, BIO_NOCLOSE);
    if (!bio) refuse("no connection");
    BIO_ctrl(bio, BIO_CTRL_DGRAM_SET_CONNECTED, 0, &peer);
    SSL_set_bio(ssl, bio, bio);
    SSL_set_options(ssl, SSL_OP_NO_QUERY_MTU);
    if (!SSL_set_mtu(ssl, largest < SMALLEST_DATAGRAM ? SMALLEST_DATAGRAM : largest)) refuse("no such MTU");
}
