// Common code of the peers over wolfSSL: the pre-shared key, the certificates, and their exit on a failure.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A peer that takes longer has hung.
enum { PATIENCE_SECONDS = 120 };

static const char IDENTITY[] = "device-1";
static const char *suite;

static void fail(const char *what) {
    fprintf(stderr, "wolfssl: %s\n", what);
    exit(1);
}

static void refuse(const char *what, WOLFSSL *ssl, int result) {
    char text[160], error[80];
    snprintf(text, sizeof text, "%s: %s", what, wolfSSL_ERR_error_string(wolfSSL_get_error(ssl, result), error));
    fail(text);
}

static unsigned int shared_key(unsigned char *key) {
    for (int i = 0; i < 32; i++) key[i] = i;
    return 32;
}

static unsigned int client_key(WOLFSSL *ssl, const char *hint, char *identity, unsigned int identity_max,
                               unsigned char *key, unsigned int key_max) {
    if (identity_max < sizeof IDENTITY || key_max < 32) return 0;
    memcpy(identity, IDENTITY, sizeof IDENTITY);
    return shared_key(key);
}

static unsigned int server_key(WOLFSSL *ssl, const char *identity, unsigned char *key, unsigned int key_max) {
    return key_max < 32 || strcmp(identity, IDENTITY) ? 0 : shared_key(key);
}

static unsigned int client_key13(WOLFSSL *ssl, const char *hint, char *identity, unsigned int identity_max,
                                 unsigned char *key, unsigned int key_max, const char **of_suite) {
    *of_suite = suite;
    return client_key(ssl, hint, identity, identity_max, key, key_max);
}

static unsigned int server_key13(WOLFSSL *ssl, const char *identity, unsigned char *key, unsigned int key_max,
                                 const char **of_suite) {
    *of_suite = suite;
    return server_key(ssl, identity, key, key_max);
}

static void use_certificates(WOLFSSL_CTX *ctx, const char *root, const char *chain, const char *key) {
    if (wolfSSL_CTX_use_certificate_chain_file(ctx, chain) != WOLFSSL_SUCCESS) fail("no certificate");
    if (wolfSSL_CTX_use_PrivateKey_file(ctx, key, WOLFSSL_FILETYPE_PEM) != WOLFSSL_SUCCESS) fail("no key");
    if (wolfSSL_CTX_load_verify_locations(ctx, root, NULL) != WOLFSSL_SUCCESS) fail("no root");
    wolfSSL_CTX_set_verify(ctx, WOLFSSL_VERIFY_PEER | WOLFSSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
}
