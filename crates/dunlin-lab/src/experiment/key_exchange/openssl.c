// OpenSSL, with the same restrictions as the other side of the comparison: one version, suite, group and
// signature scheme, no tickets, no session IDs; over datagrams, a cookie. All other settings are OpenSSL's
// defaults, except those that make hellos small.
//
// PROGRAM server VERSION SUITE GROUP SCHEME WHO ROOT CERTIFICATE KEY
//     prints its port, takes one connection
// PROGRAM client VERSION SUITE GROUP SCHEME WHO ROOT CERTIFICATE KEY IP PORT
//     makes one
// PROGRAM memory VERSION SUITE GROUP SCHEME WHO ROOT CERTIFICATE KEY N CERTIFICATE KEY
//     handshakes N times with itself, server first; prints the microseconds of client and server
//
// VERSION is tls1.2, tls1.3 or dtls1.2. WHO authenticates: the server, mutual by certificates, or mutual by a psk,
// in which case the server may have a certificate as well. GROUP is a name, or the prime of a finite field in
// hexadecimal. Certificates and keys are files in DER; - is nothing.

#include <openssl/param_build.h>

enum { ROLE = 1, VERSION, SUITE, GROUP, SCHEME, WHO, ROOT, CERTIFICATE, KEY, IP, PORT };
enum { TIMES = IP, CLIENT_CERTIFICATE, CLIENT_KEY };
// The shortest prime has 512 bits, and no group has so long a name.
enum { PRIME_DIGITS = 512 / 4 };
// The largest datagram on Ethernet.
enum { BUFFER = 1 << 16, LARGEST_DATAGRAM = 1500 - IP_AND_UDP };

static const char IDENTITY[] = "Client_identity";

static unsigned psk_of_client(SSL *ssl, const char *hint, char *identity, unsigned length, unsigned char *psk, unsigned size) {
    (void)ssl, (void)hint;
    if (length < sizeof IDENTITY || size < PSK_BYTES) return 0;
    memcpy(identity, IDENTITY, sizeof IDENTITY);
    memset(psk, PSK_BYTE, PSK_BYTES);
    return PSK_BYTES;
}

static unsigned psk_of_server(SSL *ssl, const char *identity, unsigned char *psk, unsigned size) {
    (void)ssl;
    if (strcmp(identity, IDENTITY) || size < PSK_BYTES) return 0;
    memset(psk, PSK_BYTE, PSK_BYTES);
    return PSK_BYTES;
}

static void finite_field(SSL_CTX *ctx, const char *prime) {
    BIGNUM *p = NULL;
    OSSL_PARAM_BLD *builder = OSSL_PARAM_BLD_new();
    if (!builder || !BN_hex2bn(&p, prime) || !OSSL_PARAM_BLD_push_BN(builder, "p", p)) refuse("no prime");
    // All of them have this generator.
    BIGNUM *g = BN_new();
    if (!g || !BN_set_word(g, 2) || !OSSL_PARAM_BLD_push_BN(builder, "g", g)) refuse("no generator");
    OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(builder);
    EVP_PKEY_CTX *maker = EVP_PKEY_CTX_new_from_name(NULL, "DH", NULL);
    EVP_PKEY *field = NULL;
    if (EVP_PKEY_fromdata_init(maker) != 1 || EVP_PKEY_fromdata(maker, &field, EVP_PKEY_KEY_PARAMETERS, params) != 1)
        refuse("no finite field");
    if (SSL_CTX_set0_tmp_dh_pkey(ctx, field) != 1) refuse("no finite field");
    EVP_PKEY_CTX_free(maker);
    OSSL_PARAM_free(params);
    OSSL_PARAM_BLD_free(builder);
    BN_free(p);
    BN_free(g);
}

static void trust(SSL_CTX *ctx, const char *file) {
    FILE *opened = fopen(file, "rb");
    X509 *root = opened ? d2i_X509_fp(opened, NULL) : NULL;
    if (!root || X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), root) != 1) refuse("no root");
    X509_free(root);
    fclose(opened);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
}

static SSL_CTX *configure(int server, char **words, const char *certificate, const char *key) {
    int tls13 = is(words[VERSION], "tls1.3"), mutual = is(words[WHO], "mutual");
    int is_prime = strlen(words[GROUP]) >= PRIME_DIGITS;
    SSL_CTX *ctx = new_context(words[VERSION]);
    // The small keys of the paper.
    SSL_CTX_set_security_level(ctx, 0);
    if (!(tls13 ? SSL_CTX_set_ciphersuites : SSL_CTX_set_cipher_list)(ctx, words[SUITE])) refuse("no cipher suite");
    if (is_prime) {
        finite_field(ctx, words[GROUP]);
    } else if (!is(words[GROUP], "-") && !SSL_CTX_set1_groups_list(ctx, words[GROUP])) {
        refuse("no group");
    }
    if (!SSL_CTX_set1_sigalgs_list(ctx, words[SCHEME])) refuse("no signature scheme");
    SSL_CTX_set_mode(ctx, SSL_MODE_NO_AUTO_CHAIN | SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);
    shorten_hellos(ctx);
    SSL_CTX_set_num_tickets(ctx, 0);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    if (server && is(words[VERSION], "dtls1.2")) demand_cookies(ctx);
    if (is(words[WHO], "psk") && server) SSL_CTX_set_psk_server_callback(ctx, psk_of_server);
    if (is(words[WHO], "psk") && !server) SSL_CTX_set_psk_client_callback(ctx, psk_of_client);
    if (!is(certificate, "-") && (server || mutual)) {
        if (SSL_CTX_use_certificate_file(ctx, certificate, SSL_FILETYPE_ASN1) != 1) refuse("no certificate");
        if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_ASN1) != 1) refuse("no key");
    }
    if (!is(words[ROOT], "-") && (!server || mutual)) trust(ctx, words[ROOT]);
    return ctx;
}

static int step(SSL *ssl) {
    int result = SSL_do_handshake(ssl);
    if (result != 1 && SSL_get_error(ssl, result) != SSL_ERROR_WANT_READ) refuse("no handshake");
    return result == 1;
}

static void in_memory(SSL_CTX *client_ctx, SSL_CTX *server_ctx) {
    double start = now_us(), client_us, server_us;
    SSL *client = SSL_new(client_ctx);
    SSL_set_connect_state(client);
    client_us = now_us() - start;
    start = now_us();
    SSL *server = SSL_new(server_ctx);
    SSL_set_accept_state(server);
    server_us = now_us() - start;
    BIO *ends[2];
    if (BIO_new_bio_pair(&ends[0], BUFFER, &ends[1], BUFFER) != 1) refuse("no memory");
    SSL_set_bio(client, ends[0], ends[0]);
    SSL_set_bio(server, ends[1], ends[1]);
    for (int client_done = 0, server_done = 0; !client_done || !server_done;) {
        start = now_us();
        client_done = client_done || step(client);
        double between = now_us();
        server_done = server_done || step(server);
        client_us += between - start;
        server_us += now_us() - between;
    }
    printf("%.3f %.3f\n", client_us, server_us);
    SSL_free(client);
    SSL_free(server);
}

int main(int argc, char **argv) {
    alarm(PATIENCE_SECONDS);
    if (argc <= KEY) fail("arguments");
    if (is(argv[ROLE], "memory")) {
        if (argc <= CLIENT_KEY) fail("arguments");
        SSL_CTX *server = configure(1, argv, argv[CERTIFICATE], argv[KEY]);
        SSL_CTX *client = configure(0, argv, argv[CLIENT_CERTIFICATE], argv[CLIENT_KEY]);
        for (int left = atoi(argv[TIMES]); left > 0; left--) in_memory(client, server);
        return 0;
    }
    int server = is(argv[ROLE], "server"), datagrams = is(argv[VERSION], "dtls1.2"), listener = -1;
    SSL_CTX *ctx = configure(server, argv, argv[CERTIFICATE], argv[KEY]);
    if (server) listen_for(datagrams, &listener, 1);
    else if (argc <= PORT) fail("arguments");
    int fd = open_connection(datagrams, listener, argv + IP, 0);
    SSL *ssl = new_connection(ctx, fd, datagrams ? LARGEST_DATAGRAM : 0);
    if ((server ? SSL_accept(ssl) : SSL_connect(ssl)) != 1) refuse("no handshake");
    if (datagrams) return 0;
    // TCP ends without close_notify, the client first, so that all that was sent is the handshake.
    char byte;
    if (!server) shutdown(fd, SHUT_WR);
    if (read(fd, &byte, 1) != 0) fail("more than a handshake");
    return 0;
}
