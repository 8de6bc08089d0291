// A peer over wolfSSL on a UDP socket: it is a client or server of DTLS 1.3, says in a line what was agreed,
// and echoes records until the other side closes. It answers the record "id" with the connection ID that it
// sends, in hexadecimal.
//
//   dtls13 client|server PORT CID MTU SUITE                   with the shared key
//   dtls13 client|server PORT CID MTU SUITE ROOT CHAIN KEY    with certificates, which both sides have
//
// A server chooses its port and prints it. CID is the length of the connection ID to receive, or -1 for no
// connection IDs.

#include <arpa/inet.h>
#include <sys/socket.h>
#include <wolfssl/wolfcrypt/settings.h>
#include <wolfssl/ssl.h>

#include "common.h"

enum { ROLE = 1, PORT, CID, MTU, SUITE, ROOT, CHAIN, KEY };
enum { MAX_RECORD = 1 << 14, MAX_ID = 255 };

static const char LABEL[] = "EXPORTER-of-a-test";

static WOLFSSL_CTX *configure(int argc, char **argv, int server) {
    WOLFSSL_CTX *ctx = wolfSSL_CTX_new(server ? wolfDTLSv1_3_server_method() : wolfDTLSv1_3_client_method());
    if (!ctx || wolfSSL_CTX_set_cipher_list(ctx, suite) != WOLFSSL_SUCCESS) fail("no such suite");
    if (argc > KEY) use_certificates(ctx, argv[ROOT], argv[CHAIN], argv[KEY]);
    else if (server) wolfSSL_CTX_set_psk_server_tls13_callback(ctx, server_key13);
    else wolfSSL_CTX_set_psk_client_tls13_callback(ctx, client_key13);
    return ctx;
}

// Returns a socket that is connected to the other side.
static int open_socket(int server, const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0) fail("no socket");
    if (!server) {
        address.sin_port = htons(atoi(port));
    } else {
        char first;
        if (bind(fd, (struct sockaddr *)&address, length)) fail("cannot bind");
        if (getsockname(fd, (struct sockaddr *)&address, &length)) fail("no port");
        printf("listening %d\n", ntohs(address.sin_port));
        fflush(stdout);
        if (recvfrom(fd, &first, 1, MSG_PEEK, (struct sockaddr *)&address, &length) < 0) fail("no client");
    }
    if (connect(fd, (struct sockaddr *)&address, length)) fail("cannot connect");
    return fd;
}

static void use_id(WOLFSSL *ssl, int length) {
    unsigned char id[MAX_ID];
    for (int i = 0; i < length; i++) id[i] = rand();
    if (length < 0) return;
    if (wolfSSL_dtls_cid_use(ssl) != WOLFSSL_SUCCESS) fail("no connection IDs");
    if (wolfSSL_dtls_cid_set(ssl, id, length) != WOLFSSL_SUCCESS) fail("no such connection ID");
}

// Writes the connection ID that this side sends, in hexadecimal, and returns the length of the text.
static int sent_id(WOLFSSL *ssl, char *text) {
    unsigned char id[MAX_ID];
    unsigned int length = 0;
    text[0] = 0;
    if (wolfSSL_dtls_cid_get_tx_size(ssl, &length) != WOLFSSL_SUCCESS) length = 0;
    if (length && wolfSSL_dtls_cid_get_tx(ssl, id, sizeof id) != WOLFSSL_SUCCESS) fail("no ID to send");
    for (unsigned int i = 0; i < length; i++) sprintf(text + 2 * i, "%02x", id[i]);
    return 2 * length;
}

static void report(WOLFSSL *ssl) {
    unsigned char exported[32];
    char text[2 * MAX_ID + 1];
    if (wolfSSL_export_keying_material(ssl, exported, sizeof exported, LABEL, strlen(LABEL), NULL, 0, 0) !=
        WOLFSSL_SUCCESS)
        fail("no exported key");
    sent_id(ssl, text);
    printf("connected version=%s suite=%s id=%s exported=", wolfSSL_get_version(ssl), wolfSSL_get_cipher(ssl), text);
    for (size_t i = 0; i < sizeof exported; i++) printf("%02x", exported[i]);
    puts("");
    fflush(stdout);
}

static void echo(WOLFSSL *ssl) {
    static char data[MAX_RECORD];
    int length;
    while ((length = wolfSSL_read(ssl, data, sizeof data)) > 0) {
        if (length == 2 && !memcmp(data, "id", 2)) length = sent_id(ssl, data);
        if (wolfSSL_write(ssl, data, length) != length) fail("cannot write");
    }
    if (wolfSSL_get_error(ssl, length) != WOLFSSL_ERROR_ZERO_RETURN) refuse("no close_notify", ssl, length);
}

int main(int argc, char **argv) {
    alarm(PATIENCE_SECONDS);
    if (argc <= SUITE) fail("arguments");
    int server = !strcmp(argv[ROLE], "server");
    suite = argv[SUITE];
    srand(getpid());
    wolfSSL_Init();
    WOLFSSL *ssl = wolfSSL_new(configure(argc, argv, server));
    if (!ssl || wolfSSL_dtls_set_mtu(ssl, atoi(argv[MTU])) != WOLFSSL_SUCCESS) fail("no connection");
    wolfSSL_KeepArrays(ssl);
    use_id(ssl, atoi(argv[CID]));
    if (server) wolfSSL_dtls13_allow_ch_frag(ssl, 1);
    else wolfSSL_UseSNI(ssl, WOLFSSL_SNI_HOST_NAME, "localhost", strlen("localhost"));
    if (!server && argc > KEY) wolfSSL_check_domain_name(ssl, "localhost");
    if (wolfSSL_set_dtls_fd_connected(ssl, open_socket(server, argv[PORT])) != WOLFSSL_SUCCESS) fail("no socket");
    int result = server ? wolfSSL_accept(ssl) : wolfSSL_connect(ssl);
    if (result != WOLFSSL_SUCCESS) refuse("no handshake", ssl, result);
    report(ssl);
    echo(ssl);
    wolfSSL_shutdown(ssl);
    puts("closed");
}
