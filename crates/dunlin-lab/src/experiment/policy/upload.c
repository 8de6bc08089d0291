// A client without any knowledge of the strategies: it uploads as curl does, with TLS 1.2, each time on a new connection.
//
// PROGRAM IP PORT PATH RESUMPTION ROOT CERTIFICATE KEY
//     for each number of bytes on standard input, uploads as many, and prints the microseconds from the connection to the
//     answer, and the suite in use

#include <time.h>

enum { IP = 1, PORT, PATH, RESUMPTION, ROOT, CERTIFICATE, KEY, WORDS };
enum { LARGEST = 10 << 20, LINE = 1024, ANSWER = 4096 };

static const char SUITES[] = "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-RSA-AES128-GCM-SHA256";

static double now_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec * 1e-3;
}

static SSL_CTX *configure(char **words) {
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    if (!ctx || SSL_CTX_set_max_proto_version(ctx, TLS1_2_VERSION) != 1) refuse("no such version");
    if (SSL_CTX_set_cipher_list(ctx, SUITES) != 1) refuse("no cipher suite");
    if (SSL_CTX_set1_groups_list(ctx, "X25519") != 1) refuse("no group");
    if (SSL_CTX_set1_sigalgs_list(ctx, "RSA+SHA256") != 1) refuse("no signature scheme");
    if (SSL_CTX_load_verify_file(ctx, words[ROOT]) != 1) refuse("no root");
    if (SSL_CTX_use_certificate_chain_file(ctx, words[CERTIFICATE]) != 1) refuse("no certificate");
    if (SSL_CTX_use_PrivateKey_file(ctx, words[KEY], SSL_FILETYPE_PEM) != 1) refuse("no key");
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(ctx, SSL_MODE_AUTO_RETRY);
    if (strcmp(words[RESUMPTION], "resume")) SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);
    return ctx;
}

// Reads an answer without a body, and checks the first digit of its status.
static void hear(SSL *ssl, char status) {
    char answer[ANSWER + 1];
    int length = 0;
    do {
        int more = SSL_read(ssl, answer + length, ANSWER - length);
        if (more <= 0) refuse("no answer");
        answer[length += more] = 0;
    } while (!strstr(answer, "\r\n\r\n") && length < ANSWER);
    if (strncmp(answer, "HTTP/1.1 ", 9) || answer[9] != status) fail(answer);
}

static void put(SSL *ssl, const char *path, const char *data, int bytes) {
    char request[LINE];
    // As curl does, wait for the server's consent before a long body.
    int length = snprintf(request, sizeof request,
                          "PUT %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", path, bytes);
    if (SSL_write(ssl, request, length) != length) refuse("no request");
    hear(ssl, '1');
    if (SSL_write(ssl, data, bytes) != bytes) refuse("no upload");
    hear(ssl, '2');
}

int main(int argc, char **argv) {
    if (argc != WORDS) fail("arguments");
    SSL_CTX *ctx = configure(argv);
    char *data = malloc(LARGEST), line[LINE];
    if (!data) fail("no memory");
    memset(data, 'x', LARGEST);
    SSL_SESSION *session = NULL;
    while (fgets(line, sizeof line, stdin)) {
        alarm(PATIENCE_SECONDS);
        int bytes = atoi(line);
        if (bytes < 1 || bytes > LARGEST) fail("no such size");
        double start = now_us();
        int fd = without_delay(connect_to(argv[IP], argv[PORT]));
        SSL *ssl = SSL_new(ctx);
        if (!ssl || !SSL_set_fd(ssl, fd)) refuse("no connection");
        if (session && SSL_set_session(ssl, session) != 1) refuse("no session");
        if (SSL_connect(ssl) != 1) refuse("no handshake");
        put(ssl, argv[PATH], data, bytes);
        double end = now_us();
        if (!strcmp(argv[RESUMPTION], "resume")) {
            SSL_SESSION_free(session);
            session = SSL_get1_session(ssl);
        }
        SSL_shutdown(ssl);
        close(fd);
        printf("%.3f %s\n", end - start, SSL_get_cipher(ssl));
        fflush(stdout);
        SSL_free(ssl);
        alarm(0);
    }
    return 0;
}
