// OpenSSL's DTLS 1.2. A client sends messages, one at a time, to a server that sends each of them back. Without an answer within the
// timeout, the client connects again and sends the message again.
//
// PROGRAM server KIND SCHEME ROOT CHAIN KEY                     prints its port, serves until it is killed
// PROGRAM client KIND SCHEME ROOT CHAIN KEY IP PORT MESSAGES    prints its results when all messages have an answer
//
// KIND is listening (any number of connections), or single (one connection, which ends after a second of silence). SCHEME is
// standard, session_id or ticket. ROOT, CHAIN and KEY are files in PEM.

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

enum { ROLE = 1, KIND, SCHEME, ROOT, CHAIN, KEY, IP, PORT, MESSAGES };
enum { LONGEST_SECONDS = 1800, LARGEST_DATAGRAM = 1200, MESSAGE_BYTES = 32 };
enum { TIMEOUT_MS = 1000, PACE_MS = 100, HANDSHAKE_MS = 3000, RETRY_MS = 5, SILENCE_SECONDS = 1, IDLE_SECONDS = 5, PRIORITY = 10 };

static int is(const char *word, const char *other) { return !strcmp(word, other); }

static double now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e3 + time.tv_nsec * 1e-6;
}

static void pause_ms(double ms) {
    struct timespec time = {(time_t)(ms / 1e3), (long)(ms * 1e6) % 1000000000L};
    nanosleep(&time, NULL);
}

static SSL_CTX *configure(int server, char **words) {
    SSL_CTX *ctx = SSL_CTX_new(DTLS_method());
    if (!ctx || !SSL_CTX_set_min_proto_version(ctx, DTLS1_2_VERSION)) refuse("no such version");
    if (!SSL_CTX_set_cipher_list(ctx, "ECDHE-ECDSA-AES128-GCM-SHA256")) refuse("no cipher suite");
    if (!SSL_CTX_set1_groups_list(ctx, "P-256")) refuse("no group");
    if (SSL_CTX_use_certificate_chain_file(ctx, words[CHAIN]) != 1) refuse("no certificate");
    if (SSL_CTX_use_PrivateKey_file(ctx, words[KEY], SSL_FILETYPE_PEM) != 1) refuse("no key");
    if (SSL_CTX_load_verify_locations(ctx, words[ROOT], NULL) != 1) refuse("no root");
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_mode(ctx, SSL_MODE_NO_AUTO_CHAIN);
    SSL_CTX_set_session_id_context(ctx, (const unsigned char *)"lab", 3);
    if (!is(words[SCHEME], "ticket")) SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);
    if (is(words[SCHEME], "standard")) SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    if (server) use_cookies(ctx);
    return ctx;
}

// Opens a socket at a port, which several sockets may share.
static int open_at(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int on = 1, fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on)) fail("no socket");
    if (bind(fd, (struct sockaddr *)&address, sizeof address)) fail("cannot bind");
    return fd;
}

// Waits for a client with a cookie.
static SSL *next_client(SSL_CTX *ctx, int fd, struct sockaddr_in *client) {
    SSL *ssl = SSL_new(ctx);
    BIO *bio = BIO_new_dgram(fd, BIO_NOCLOSE);
    BIO_ADDR *address = BIO_ADDR_new();
    if (!ssl || !bio || !address) refuse("no memory");
    SSL_set_bio(ssl, bio, bio);
    SSL_set_options(ssl, SSL_OP_COOKIE_EXCHANGE | SSL_OP_NO_QUERY_MTU);
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
    int single = is(words[KIND], "single"), fd = open_at(0);
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &size)) fail("no port");
    int port = ntohs(address.sin_port);
    printf("%d\n", port);
    fflush(stdout);
    for (;;) {
        struct client *client = malloc(sizeof *client);
        if (!client) fail("no memory");
        client->ssl = next_client(ctx, fd, &client->address);
        if (single) {
            serve(client->ssl, fd, client->address, SILENCE_SECONDS);
            free(client);
            fd = open_at(port);
            continue;
        }
        client->fd = open_at(port);
        pthread_t thread;
        if (pthread_create(&thread, NULL, serve_client, client)) fail("no thread");
        pthread_detach(thread);
    }
}

// Waits for a datagram until this time.
static int wait_until(int fd, double until) {
    double left = until - now_ms();
    struct pollfd polled = {fd, POLLIN, 0};
    // In whole milliseconds, not too early.
    return poll(&polled, 1, left < 0 ? 0 : (int)left + 1) > 0;
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
        SSL *ssl = SSL_new(ctx);
        if (!ssl) refuse("no connection");
        use_datagrams(ssl, *fd, LARGEST_DATAGRAM);
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
    alarm(LONGEST_SECONDS);
    // Like the other side of the comparison, if it may: the result is then about the network, not about the machine.
    sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = PRIORITY});
    if (argc <= KEY) fail("arguments");
    if (is(argv[ROLE], "server")) serve_all(argv);
    if (argc <= MESSAGES) fail("arguments");
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
    printf("%.3f %.3f %d %d %d\n", now_ms() - began, first, resent, handshakes, resumed);
    return 0;
}
