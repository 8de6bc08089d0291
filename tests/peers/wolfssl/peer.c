// A peer over wolfSSL: it connects by TCP, is a client or server of TLS, and echoes until the other one
// closes.
//
//   peer client|server PORT 1.2|1.3 SUITE               with the shared key
//   peer client|server PORT 1.2|1.3 SUITE ROOT CHAIN KEY  with certificates, which both have

#include <arpa/inet.h>
#include <sys/socket.h>
#include <wolfssl/options.h>
#include <wolfssl/ssl.h>

#include "common.h"

enum { ROLE = 1, PORT, VERSION, SUITE, ROOT, CHAIN, KEY };

static void use_keys(WOLFSSL_CTX *ctx, int server, int is_13) {
    if (is_13 && server) wolfSSL_CTX_set_psk_server_tls13_callback(ctx, server_key13);
    else if (is_13) wolfSSL_CTX_set_psk_client_tls13_callback(ctx, client_key13);
    else if (server) wolfSSL_CTX_set_psk_server_callback(ctx, server_key);
    else wolfSSL_CTX_set_psk_client_callback(ctx, client_key);
}

static WOLFSSL_CTX *configure(int argc, char **argv, int server) {
    int is_13 = !strcmp(argv[VERSION], "1.3");
    WOLFSSL_METHOD *client_method = is_13 ? wolfTLSv1_3_client_method() : wolfTLSv1_2_client_method();
    WOLFSSL_METHOD *server_method = is_13 ? wolfTLSv1_3_server_method() : wolfTLSv1_2_server_method();
    WOLFSSL_CTX *ctx = wolfSSL_CTX_new(server ? server_method : client_method);
    if (!ctx || wolfSSL_CTX_set_cipher_list(ctx, suite) != WOLFSSL_SUCCESS) fail("no such suite");
    if (argc > KEY) use_certificates(ctx, argv[ROOT], argv[CHAIN], argv[KEY]);
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
