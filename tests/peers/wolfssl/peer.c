// A peer over wolfSSL: it connects by TCP, is a client or server of TLS, and echoes until the other one closes.
//
//   peer client|server PORT 1.2|1.3 SUITE               with the shared key
//   peer client|server PORT 1.2|1.3 SUITE ROOT CHAIN KEY  with certificates, which both have

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <wolfssl/options.h>
#include <wolfssl/ssl.h>

// Who waits longer has hung.
enum { PATIENCE_SECONDS = 120 };

enum { ROLE = 1, PORT, VERSION, SUITE, ROOT, CHAIN, KEY };

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

static void use_keys(WOLFSSL_CTX *ctx, int server, int is_13) {
    if (is_13 && server) wolfSSL_CTX_set_psk_server_tls13_callback(ctx, server_key13);
    else if (is_13) wolfSSL_CTX_set_psk_client_tls13_callback(ctx, client_key13);
    else if (server) wolfSSL_CTX_set_psk_server_callback(ctx, server_key);
    else wolfSSL_CTX_set_psk_client_callback(ctx, client_key);
}

static void use_certificates(WOLFSSL_CTX *ctx, char **files) {
    if (wolfSSL_CTX_use_certificate_chain_file(ctx, files[CHAIN]) != WOLFSSL_SUCCESS) fail("no certificate");
    if (wolfSSL_CTX_use_PrivateKey_file(ctx, files[KEY], WOLFSSL_FILETYPE_PEM) != WOLFSSL_SUCCESS) fail("no key");
    if (wolfSSL_CTX_load_verify_locations(ctx, files[ROOT], NULL) != WOLFSSL_SUCCESS) fail("no root");
    wolfSSL_CTX_set_verify(ctx, WOLFSSL_VERIFY_PEER | WOLFSSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
}

static WOLFSSL_CTX *configure(int argc, char **argv, int server) {
    int is_13 = !strcmp(argv[VERSION], "1.3");
    WOLFSSL_METHOD *client_method = is_13 ? wolfTLSv1_3_client_method() : wolfTLSv1_2_client_method();
    WOLFSSL_METHOD *server_method = is_13 ? wolfTLSv1_3_server_method() : wolfTLSv1_2_server_method();
    WOLFSSL_CTX *ctx = wolfSSL_CTX_new(server ? server_method : client_method);
    if (!ctx || wolfSSL_CTX_set_cipher_list(ctx, suite) != WOLFSSL_SUCCESS) fail("no such suite");
    if (argc > KEY) use_certificates(ctx, argv);
    else use_keys(ctx, server, is_13);
    return ctx;
}

static int connect_to(const char *port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to)) fail("cannot connect");
    return fd;
}

static void echo(WOLFSSL *ssl) {
    char data[16 * 1024];
    int length;
    while ((length = wolfSSL_read(ssl, data, sizeof data)) > 0)
        if (wolfSSL_write(ssl, data, length) != length) fail("cannot write");
    if (wolfSSL_get_error(ssl, length) != WOLFSSL_ERROR_ZERO_RETURN) refuse("no close_notify", ssl, length);
}

int main(int argc, char **argv) {
    alarm(PATIENCE_SECONDS);
    if (argc <= SUITE) fail("arguments");
    int server = !strcmp(argv[ROLE], "server");
    suite = argv[SUITE];
    wolfSSL_Init();
    WOLFSSL *ssl = wolfSSL_new(configure(argc, argv, server));
    if (!ssl || wolfSSL_set_fd(ssl, connect_to(argv[PORT])) != WOLFSSL_SUCCESS) fail("no connection");
    if (!server) wolfSSL_UseSNI(ssl, WOLFSSL_SNI_HOST_NAME, "localhost", strlen("localhost"));
    if (!server && argc > KEY) wolfSSL_check_domain_name(ssl, "localhost");
    int result = server ? wolfSSL_accept(ssl) : wolfSSL_connect(ssl);
    if (result != WOLFSSL_SUCCESS) refuse("no handshake", ssl, result);
    printf("connected %s\n", wolfSSL_get_version(ssl));
    fflush(stdout);
    echo(ssl);
    wolfSSL_shutdown(ssl);
    puts("closed");
}
