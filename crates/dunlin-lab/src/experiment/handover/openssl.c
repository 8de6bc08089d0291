// OpenSSL's DTLS 1.2. Without an answer within the timeout, the client connects and sends the message again.

#include <pthread.h>

enum { HANDSHAKE_MS = 3000, RETRY_MS = 5, SILENCE_SECONDS = 1, IDLE_SECONDS = 5 };

static SSL_CTX *configure(int server, char **words) {
    SSL_CTX *ctx = new_context("dtls1.2");
    if (!SSL_CTX_set_cipher_list(ctx, "ECDHE-ECDSA-AES128-GCM-SHA256")) refuse("no cipher suite");
    if (!SSL_CTX_set1_groups_list(ctx, "P-256")) refuse("no group");
    use_files(ctx, words + ROOT);
    SSL_CTX_set_session_id_context(ctx, (const unsigned char *)"lab", 3);
    if (!is(words[SCHEME], "ticket")) SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);
    if (is(words[SCHEME], "standard")) SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    if (server) demand_cookies(ctx);
    return ctx;
}

// Waits for a client with a cookie.
static SSL *next_client(SSL_CTX *ctx, int fd, struct sockaddr_in *client) {
    SSL *ssl = SSL_new(ctx);
    BIO *bio = BIO_new_dgram(fd, BIO_NOCLOSE);
    BIO_ADDR *address = BIO_ADDR_new();
    if (!ssl || !bio || !address) refuse("no memory");
    SSL_set_bio(ssl, bio, bio);
    SSL_set_options(ssl, SSL_OP_NO_QUERY_MTU);
    SSL_set_mtu(ssl, LARGEST_DATAGRAM);
    while (DTLSv1_listen(ssl, address) <= 0) ERR_clear_error();
    size_t length = sizeof client->sin_addr;
    *client = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = BIO_ADDR_rawport(address)};
    BIO_ADDR_rawaddress(address, &client->sin_addr, &length);
    BIO_ADDR_free(address);
    return ssl;
}

// Serves a client over a socket, and frees both after a silence.
static void serve(SSL *ssl, int fd, struct sockaddr_in client, int silence_seconds) {
    char message[MESSAGE_BYTES];
    struct timeval silence = {silence_seconds, 0};
    if (connect(fd, (struct sockaddr *)&client, sizeof client)) fail("no client");
    BIO *bio = SSL_get_rbio(ssl);
    BIO_set_fd(bio, fd, BIO_NOCLOSE);
    BIO_ctrl(bio, BIO_CTRL_DGRAM_SET_CONNECTED, 0, &client);
    BIO_ctrl(bio, BIO_CTRL_DGRAM_SET_RECV_TIMEOUT, 0, &silence);
    if (SSL_accept(ssl) == 1)
        for (int length; (length = SSL_read(ssl, message, sizeof message)) > 0;) SSL_write(ssl, message, length);
    ERR_clear_error();
    // Otherwise OpenSSL would forget the session of a connection that it does not close.
    SSL_set_shutdown(ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    SSL_free(ssl);
    close(fd);
}

struct client {
    SSL *ssl;
    int fd;
    struct sockaddr_in address;
};

static void *serve_client(void *argument) {
    struct client client = *(struct client *)argument;
    free(argument);
    serve(client.ssl, client.fd, client.address, IDLE_SECONDS);
    return NULL;
}

static void serve_all(char **words) {
    SSL_CTX *ctx = configure(1, words);
    int single = is(words[KIND], "single"), fd;
    listen_for(1, &fd, 1);
    int port = port_of(fd);
    for (;;) {
        struct client *client = malloc(sizeof *client);
        if (!client) fail("no memory");
        client->ssl = next_client(ctx, fd, &client->address);
        if (single) {
            serve(client->ssl, fd, client->address, SILENCE_SECONDS);
            free(client);
            fd = open_at(SOCK_DGRAM, port);
            continue;
        }
        client->fd = open_at(SOCK_DGRAM, port);
        pthread_t thread;
        if (pthread_create(&thread, NULL, serve_client, client)) fail("no thread");
        pthread_detach(thread);
    }
}

// Handshakes until this time.
static int handshake(SSL *ssl, int fd, double until) {
    for (;;) {
        int result = SSL_connect(ssl);
        if (result == 1) return 1;
        int error = SSL_get_error(ssl, result), refused = error == SSL_ERROR_SYSCALL;
        // A socket whose network is gone, or whose port is closed, may come back.
        if ((error != SSL_ERROR_WANT_READ && !refused) || now_ms() >= until) return 0;
        ERR_clear_error();
        struct timeval timer;
        double next = until;
        if (DTLSv1_get_timeout(ssl, &timer)) {
            double due = now_ms() + timer.tv_sec * 1e3 + timer.tv_usec * 1e-3;
            if (due < next) next = due;
        }
        if (refused) pause_ms(1);
        if (!wait_until(fd, next)) DTLSv1_handle_timeout(ssl);
    }
}

static SSL_SESSION *session;

// Connects, again if it has to.
static SSL *connect_again(SSL_CTX *ctx, char **words, int *fd) {
    struct sockaddr_in address = address_of(words[IP], atoi(words[PORT]));
    for (;;) {
        *fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
        // Without a network there is no route.
        if (connect(*fd, (struct sockaddr *)&address, sizeof address)) {
            close(*fd);
            pause_ms(RETRY_MS);
            continue;
        }
        SSL *ssl = new_connection(ctx, *fd, LARGEST_DATAGRAM);
        if (session && !is(words[SCHEME], "standard") && !SSL_set_session(ssl, session)) refuse("no session");
        if (handshake(ssl, *fd, now_ms() + HANDSHAKE_MS)) {
            SSL_SESSION_free(session);
            session = SSL_get1_session(ssl);
            return ssl;
        }
        ERR_clear_error();
        SSL_free(ssl);
        close(*fd);
    }
}

// Sends a message and waits for its answer.
static int exchange(SSL *ssl, int fd, int number) {
    char message[MESSAGE_BYTES] = {0}, answer[MESSAGE_BYTES];
    memcpy(message, &number, sizeof number);
    double until = now_ms() + TIMEOUT_MS;
    SSL_write(ssl, message, sizeof message);
    ERR_clear_error();
    while (wait_until(fd, until)) {
        int length = SSL_read(ssl, answer, sizeof answer);
        if (length == MESSAGE_BYTES && !memcmp(message, answer, sizeof message)) return 1;
        ERR_clear_error();
        if (now_ms() >= until) break;
        if (length < 0) pause_ms(1);
    }
    return 0;
}

int main(int argc, char **argv) {
    prepare(argc, argv);
    if (is(argv[ROLE], "server")) serve_all(argv);
    SSL_CTX *ctx = configure(0, argv);
    int fd, messages = atoi(argv[MESSAGES]), handshakes = 1, resumed = 0, resent = 0;
    double began = now_ms();
    SSL *ssl = connect_again(ctx, argv, &fd);
    double first = now_ms() - began;
    for (int number = 0; number < messages;) {
        if (exchange(ssl, fd, number)) {
            number++;
            if (number < messages) pause_ms(PACE_MS);
            continue;
        }
        // The same as at the server.
        SSL_set_shutdown(ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
        SSL_free(ssl);
        close(fd);
        ssl = connect_again(ctx, argv, &fd);
        handshakes++;
        resent++;
        resumed += SSL_session_reused(ssl);
    }
    print_results(now_ms() - began, first, messages, resent, handshakes, resumed);
    return 0;
}
