// A client without any knowledge of the strategies: it uploads as curl does, each time on a new connection.
//
// PROGRAM IP PORT PATH MODE SUITES ROOT CERTIFICATE KEY
//     for each number of bytes on standard input, uploads as many, and prints the microseconds from the
//     connection to the answer, and the suite in use
//
// MODE is resume; psk, which is TLS 1.3 with a pre-shared key; redirect, where the server at PORT speaks
// plain HTTP and names the port of the upload; or -. SUITES are those of TLS 1.2. With SSLKEYLOGFILE, appends
// the keys to that file.

enum { IP = 1, PORT, PATH, MODE, SUITES, ROOT, CERTIFICATE, KEY, WORDS };
enum { LARGEST = 10 << 20, LINE = 1024, ANSWER = 4096 };

static const char TLS13_SUITES[] = "TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256";
static const char IDENTITY[] = "device-1";

// The pre-shared key, which belongs to SHA-256.
static int use_psk(SSL *ssl, const EVP_MD *hash, const unsigned char **id, size_t *length, SSL_SESSION **session) {
    static const unsigned char TLS_AES_128_GCM_SHA256[] = {0x13, 0x01};
    unsigned char psk[PSK_BYTES];
    *session = NULL;
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, TLS_AES_128_GCM_SHA256);
    if (!cipher) return 0;
    if (hash && hash != SSL_CIPHER_get_handshake_digest(cipher)) return 1;
    memset(psk, PSK_BYTE, sizeof psk);
    *session = SSL_SESSION_new();
    if (!*session || !SSL_SESSION_set1_master_key(*session, psk, sizeof psk)) return 0;
    if (!SSL_SESSION_set_cipher(*session, cipher)) return 0;
    if (!SSL_SESSION_set_protocol_version(*session, TLS1_3_VERSION)) return 0;
    *id = (const unsigned char *)IDENTITY;
    *length = strlen(IDENTITY);
    return 1;
}

static void log_key(const SSL *ssl, const char *line) {
    (void)ssl;
    FILE *log = fopen(getenv("SSLKEYLOGFILE"), "a");
    if (!log || fprintf(log, "%s\n", line) < 0 || fclose(log)) fail("no key log");
}

static SSL_CTX *configure(char **words) {
    int psk = is(words[MODE], "psk");
    SSL_CTX *ctx = new_context(psk ? "tls1.3" : "tls1.2");
    // Like curl, it also offers the older version.
    if (SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1) refuse("no such version");
    if (SSL_CTX_set_cipher_list(ctx, words[SUITES]) != 1) refuse("no cipher suite");
    if (SSL_CTX_set_ciphersuites(ctx, TLS13_SUITES) != 1) refuse("no cipher suite");
    if (SSL_CTX_set1_groups_list(ctx, "X25519") != 1) refuse("no group");
    if (SSL_CTX_set1_sigalgs_list(ctx, psk ? "RSA-PSS+SHA256" : "RSA+SHA256") != 1) refuse("no signature scheme");
    if (psk) SSL_CTX_set_psk_use_session_callback(ctx, use_psk);
    if (getenv("SSLKEYLOGFILE")) SSL_CTX_set_keylog_callback(ctx, log_key);
    use_files(ctx, words + ROOT);
    SSL_CTX_clear_mode(ctx, SSL_MODE_NO_AUTO_CHAIN);
    if (!is(words[MODE], "resume")) SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);
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

// Asks over plain HTTP. Writes the port and the path that the answer names.
static void ask(char **words, int bytes, char *port, char *path) {
    char text[ANSWER + 1];
    int fd = open_connection(0, -1, words + IP, 0), length = 0, more;
    int asked = snprintf(text, LINE,
                         "PUT %s?client=%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n",
                         words[PATH], IDENTITY, bytes);
    if (write(fd, text, asked) != asked) fail("no request");
    while (length < ANSWER && (more = read(fd, text + length, ANSWER - length)) > 0) length += more;
    text[length] = 0;
    char *location = strstr(text, "\r\nLocation: https://");
    if (strncmp(text, "HTTP/1.1 307", 12) || !location) fail("no redirection");
    if (sscanf(location, "\r\nLocation: https://%*[^:]:%15[0-9]%255[^\r]", port, path) != 2) fail("no address");
    close(fd);
}

int main(int argc, char **argv) {
    if (argc != WORDS) fail("arguments");
    SSL_CTX *ctx = configure(argv);
    char *data = malloc(LARGEST), line[LINE];
    if (!data) fail("no memory");
    memset(data, 'x', LARGEST);
    char port[16], path[256];
    SSL_SESSION *session = NULL;
    snprintf(port, sizeof port, "%s", argv[PORT]);
    snprintf(path, sizeof path, "%s", argv[PATH]);
    while (fgets(line, sizeof line, stdin)) {
        alarm(PATIENCE_SECONDS);
        int bytes = atoi(line);
        if (bytes < 1 || bytes > LARGEST) fail("no such size");
        double start = now_us();
        if (is(argv[MODE], "redirect")) ask(argv, bytes, port, path);
        int fd = open_connection(0, -1, (char *[]){argv[IP], port}, 0);
        SSL *ssl = new_connection(ctx, fd, 0);
        if (session && SSL_set_session(ssl, session) != 1) refuse("no session");
        if (SSL_connect(ssl) != 1) refuse("no handshake");
        put(ssl, path, data, bytes);
        double end = now_us();
        if (is(argv[MODE], "resume")) {
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
