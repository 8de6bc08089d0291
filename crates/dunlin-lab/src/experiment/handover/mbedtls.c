// Mbed TLS's DTLS 1.2 with connection IDs (RFC 9146). The library leaves the network to its caller: this
// program finds the association of a datagram by its ID, and follows the sender of the newest record. Nothing
// proves that the client is at the new address, since Mbed TLS has no return routability check (RFC 9853).

#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <math.h>

#include <mbedtls/version.h>
#if MBEDTLS_VERSION_MAJOR != 3
#error "only Mbed TLS 3 has the connection IDs of RFC 9146 and this interface"
#endif
#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/error.h>
#include <mbedtls/ssl.h>
#include <mbedtls/ssl_cookie.h>
#include <mbedtls/timing.h>
#ifdef MBEDTLS_PSA_CRYPTO_C
#include <psa/crypto.h>
#endif

enum { ID_BYTES = 8, BUFFER = 1 << 16, CLIENT_PORT = 40000 };
// A client gives up after HOPELESS_MS without an acknowledgement.
enum { TICK_MS = 20, MARGIN_MS = 20, HOPELESS_MS = 60000 };
// The type of a record with an ID, and the places of its number with the epoch and of its ID (RFC 9146 §4).
enum { RECORD_WITH_ID = 25, NUMBER_AT = 3, NUMBER_BYTES = 8, ID_AT = 11 };

static mbedtls_entropy_context entropy;
static mbedtls_ctr_drbg_context drbg;
static mbedtls_ssl_config config;
static mbedtls_ssl_cookie_ctx cookies;
static mbedtls_x509_crt root, chain;
static mbedtls_pk_context key;

struct association {
    mbedtls_ssl_context ssl;
    mbedtls_timing_delay_context timer;
    unsigned char id[ID_BYTES];
    int fd, is_open;
    struct sockaddr_in peer;
    // The datagram to read next.
    const unsigned char *datagram;
    size_t length;
    // The number of the newest record.
    unsigned char newest[NUMBER_BYTES];
    struct association *next;
};

static void check(const char *what, int result) {
    char text[160], why[160];
    if (result >= 0) return;
    mbedtls_strerror(result, why, sizeof why);
    snprintf(text, sizeof text, "%s: %s", what, why);
    fail(text);
}

static void configure(int server, char **words) {
    static const int suites[] = {MBEDTLS_TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, 0};
    static const uint16_t groups[] = {MBEDTLS_SSL_IANA_TLS_GROUP_SECP256R1, 0};
    int end = server ? MBEDTLS_SSL_IS_SERVER : MBEDTLS_SSL_IS_CLIENT;
#ifdef MBEDTLS_PSA_CRYPTO_C
    if (psa_crypto_init() != PSA_SUCCESS) fail("no cryptography");
#endif
    mbedtls_entropy_init(&entropy);
    mbedtls_ctr_drbg_init(&drbg);
    check("random", mbedtls_ctr_drbg_seed(&drbg, mbedtls_entropy_func, &entropy, NULL, 0));
    mbedtls_ssl_config_init(&config);
    check("configuration", mbedtls_ssl_config_defaults(&config, end, MBEDTLS_SSL_TRANSPORT_DATAGRAM, MBEDTLS_SSL_PRESET_DEFAULT));
    mbedtls_ssl_conf_rng(&config, mbedtls_ctr_drbg_random, &drbg);
    mbedtls_ssl_conf_ciphersuites(&config, suites);
    mbedtls_ssl_conf_groups(&config, groups);
    check("root", mbedtls_x509_crt_parse_file(&root, words[ROOT]));
    check("chain", mbedtls_x509_crt_parse_file(&chain, words[CHAIN]));
    check("key", mbedtls_pk_parse_keyfile(&key, words[KEY], NULL, mbedtls_ctr_drbg_random, &drbg));
    mbedtls_ssl_conf_ca_chain(&config, &root, NULL);
    check("certificate", mbedtls_ssl_conf_own_cert(&config, &chain, &key));
    mbedtls_ssl_conf_authmode(&config, MBEDTLS_SSL_VERIFY_REQUIRED);
    check("length of IDs", mbedtls_ssl_conf_cid(&config, ID_BYTES, MBEDTLS_SSL_UNEXPECTED_CID_IGNORE));
#ifdef MBEDTLS_SSL_SESSION_TICKETS
    if (!server) mbedtls_ssl_conf_session_tickets(&config, MBEDTLS_SSL_SESSION_TICKETS_DISABLED);
#endif
    if (!server) return;
    check("cookies", mbedtls_ssl_cookie_setup(&cookies, mbedtls_ctr_drbg_random, &drbg));
    mbedtls_ssl_conf_dtls_cookies(&config, mbedtls_ssl_cookie_write, mbedtls_ssl_cookie_check, &cookies);
}

// Without a network, a datagram is lost.
static int send_datagram(void *of, const unsigned char *data, size_t length) {
    struct association *self = of;
    sendto(self->fd, data, length, 0, (struct sockaddr *)&self->peer, sizeof self->peer);
    return (int)length;
}

static int next_datagram(void *of, unsigned char *data, size_t room) {
    struct association *self = of;
    if (!self->datagram) return MBEDTLS_ERR_SSL_WANT_READ;
    size_t length = self->length < room ? self->length : room;
    memcpy(data, self->datagram, length);
    self->datagram = NULL;
    return (int)length;
}

// Begins a handshake with a new ID; a server does it again for a hello with a cookie.
static void begin(struct association *self, int server) {
    check("reset", mbedtls_ssl_session_reset(&self->ssl));
    if (server)
        check("address", mbedtls_ssl_set_client_transport_id(&self->ssl, (unsigned char *)&self->peer, sizeof self->peer));
    check("random", mbedtls_ctr_drbg_random(&drbg, self->id, ID_BYTES));
    check("connection ID", mbedtls_ssl_set_cid(&self->ssl, MBEDTLS_SSL_CID_ENABLED, self->id, ID_BYTES));
}

static struct association *new_association(int fd, struct sockaddr_in peer, int server) {
    struct association *self = calloc(1, sizeof *self);
    if (!self) fail("no memory");
    self->fd = fd;
    self->peer = peer;
    mbedtls_ssl_init(&self->ssl);
    check("setup", mbedtls_ssl_setup(&self->ssl, &config));
    if (!server) check("name", mbedtls_ssl_set_hostname(&self->ssl, "localhost"));
    mbedtls_ssl_set_mtu(&self->ssl, LARGEST_DATAGRAM);
    mbedtls_ssl_set_timer_cb(&self->ssl, &self->timer, mbedtls_timing_set_delay, mbedtls_timing_get_delay);
    mbedtls_ssl_set_bio(&self->ssl, self, send_datagram, next_datagram, NULL);
    begin(self, server);
    return self;
}

// Continues a handshake; an expired timer sends its flight again.
static void shake(struct association *self, int server) {
    if (self->is_open) return;
    int result = mbedtls_ssl_handshake(&self->ssl);
    if (result == MBEDTLS_ERR_SSL_HELLO_VERIFY_REQUIRED) begin(self, server);
    else if (result != MBEDTLS_ERR_SSL_WANT_READ) check("no handshake", result);
    self->is_open = !result;
    if (!result) {
        int has_id;
        check("ID", mbedtls_ssl_get_peer_cid(&self->ssl, &has_id, NULL, NULL));
        if (!has_id) fail("no connection IDs");
    }
}

static int receive(int fd, unsigned char *datagram, struct sockaddr_in *from) {
    socklen_t size = sizeof *from;
    return (int)recvfrom(fd, datagram, BUFFER, MSG_DONTWAIT, (struct sockaddr *)from, &size);
}

static int is_address(struct sockaddr_in one, struct sockaddr_in other) {
    return one.sin_addr.s_addr == other.sin_addr.s_addr && one.sin_port == other.sin_port;
}

static int has_id(const unsigned char *datagram, int length) {
    return length >= ID_AT + ID_BYTES && datagram[0] == RECORD_WITH_ID;
}

// Sends all received messages of an association back, and follows the sender of the newest record.
static void answer(struct association *self, struct sockaddr_in from, const unsigned char *number) {
    unsigned char message[MESSAGE_BYTES];
    for (int length; (length = mbedtls_ssl_read(&self->ssl, message, sizeof message)) > 0;) {
        if (memcmp(number, self->newest, NUMBER_BYTES) > 0) {
            memcpy(self->newest, number, NUMBER_BYTES);
            self->peer = from;
        }
        check("cannot write", mbedtls_ssl_write(&self->ssl, message, length));
    }
}

static void serve_all(void) {
    static unsigned char datagram[BUFFER];
    struct association *all = NULL, *of;
    struct sockaddr_in from;
    int fd, length;
    listen_for(1, &fd, 1);
    for (;;) {
        wait_until(fd, now_ms() + TICK_MS);
        while ((length = receive(fd, datagram, &from)) > 0) {
            for (of = all; of; of = of->next)
                if (has_id(datagram, length) ? !memcmp(of->id, datagram + ID_AT, ID_BYTES) : is_address(of->peer, from)) break;
            if (!of && has_id(datagram, length)) continue;
            if (!of) {
                of = new_association(fd, from, 1);
                of->next = all;
                all = of;
            }
            of->datagram = datagram;
            of->length = length;
            shake(of, 1);
            if (of->is_open && length >= ID_AT) answer(of, from, datagram + NUMBER_AT);
            of->datagram = NULL;
        }
        for (of = all; of; of = of->next) shake(of, 1);
    }
}

// The timeout of messages (RFC 6298), computed as in Dunlin's client.
static struct { double mean, variation; int doubled; } trips = {-1, 0, 0};

static void measured(double ms) {
    if (trips.mean < 0) {
        trips.mean = ms;
        trips.variation = ms / 2;
    } else {
        trips.variation += (fabs(trips.mean - ms) - trips.variation) / 4;
        trips.mean += (ms - trips.mean) / 8;
    }
    trips.doubled = 0;
}

static double timeout_ms(void) {
    if (trips.mean < 0) return TIMEOUT_MS;
    double ms = ldexp(trips.mean + fmax(MARGIN_MS, 4 * trips.variation), trips.doubled);
    return fmin(ms, TIMEOUT_MS);
}

// Opens a socket that becomes readable when addresses or routes change.
static int watch_addresses(void) {
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK, NETLINK_ROUTE);
    struct sockaddr_nl groups = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV4_ROUTE};
    if (fd < 0 || bind(fd, (struct sockaddr *)&groups, sizeof groups)) fail("no netlink");
    return fd;
}

// The client's address on the way to the server; zero without a network.
static uint32_t own_address(struct sockaddr_in server) {
    struct sockaddr_in own = {0};
    socklen_t size = sizeof own;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (connect(fd, (struct sockaddr *)&server, sizeof server) || getsockname(fd, (struct sockaddr *)&own, &size)) own.sin_addr.s_addr = 0;
    close(fd);
    return own.sin_addr.s_addr;
}

static struct association *connection;
static struct sockaddr_in server;
static uint32_t address;
static int watch;

// Waits for a datagram or a change of the address until this time. Returns whether the address is a new one.
static int wait_for_any(double until) {
    double left = until - now_ms();
    struct pollfd polled[] = {{watch, POLLIN, 0}, {connection->fd, POLLIN, 0}};
    // In whole milliseconds, not too early.
    poll(polled, 2, left < 0 ? 0 : (int)left + 1);
    if (!polled[0].revents) return 0;
    char drained[4096];
    while (recv(watch, drained, sizeof drained, 0) > 0) {}
    uint32_t before = address;
    address = own_address(server);
    return address && address != before;
}

// Takes the datagrams that have arrived. Returns whether the message came back.
static int is_acknowledged(const unsigned char *message) {
    static unsigned char datagram[BUFFER];
    unsigned char acknowledgement[MESSAGE_BYTES];
    struct sockaddr_in from;
    int found = 0;
    for (int length; (length = receive(connection->fd, datagram, &from)) > 0;) {
        connection->datagram = datagram;
        connection->length = length;
        while ((length = mbedtls_ssl_read(&connection->ssl, acknowledgement, sizeof acknowledgement)) > 0)
            found |= length == MESSAGE_BYTES && !memcmp(acknowledgement, message, MESSAGE_BYTES);
        connection->datagram = NULL;
    }
    return found;
}

static double send_message(const unsigned char *message) {
    check("cannot write", mbedtls_ssl_write(&connection->ssl, message, MESSAGE_BYTES));
    return now_ms() + timeout_ms();
}

// Sends a message until it comes back: again at once after a change of the address, and at each timeout.
// Returns whether it came back.
static int exchange(int number, int *resent) {
    unsigned char message[MESSAGE_BYTES] = {0};
    uint32_t order = htonl(number);
    memcpy(message, &order, sizeof order);
    double sent = now_ms(), until = send_message(message);
    int copies = 1;
    while (!is_acknowledged(message)) {
        if (now_ms() - sent > HOPELESS_MS) return 0;
        int has_moved = wait_for_any(address ? until : now_ms() + TIMEOUT_MS);
        // Without a network the client waits for one.
        if (!has_moved && (!address || now_ms() < until)) continue;
        // The acknowledgement may have arrived in time, but not yet been read.
        if (!has_moved && is_acknowledged(message)) break;
        trips.doubled = has_moved ? 0 : trips.doubled + 1;
        until = send_message(message);
        copies++;
    }
    if (copies == 1) measured(now_ms() - sent);
    *resent += copies - 1;
    return 1;
}

static void talk(char **words) {
    int messages = atoi(words[MESSAGES]), resent = 0, acknowledged = 0;
    static unsigned char datagram[BUFFER];
    struct sockaddr_in from;
    server = address_of(words[IP], atoi(words[PORT]));
    watch = watch_addresses();
    connection = new_association(open_at(SOCK_DGRAM, CLIENT_PORT), server, 0);
    for (address = own_address(server); !address;) wait_for_any(now_ms() + TICK_MS);
    double began = now_ms();
    for (shake(connection, 0); !connection->is_open; shake(connection, 0)) {
        wait_for_any(now_ms() + TICK_MS);
        for (int length; !connection->is_open && (length = receive(connection->fd, datagram, &from)) > 0;) {
            connection->datagram = datagram;
            connection->length = length;
            shake(connection, 0);
        }
        connection->datagram = NULL;
    }
    double first = now_ms() - began;
    while (acknowledged < messages && exchange(acknowledged, &resent)) {
        double until = now_ms() + PACE_MS;
        acknowledged++;
        while (acknowledged < messages && now_ms() < until) {
            wait_for_any(until);
            // Late copies.
            is_acknowledged((const unsigned char[MESSAGE_BYTES]){0xff});
        }
    }
    print_results(now_ms() - began, first, acknowledged, resent, 1, 0);
}

int main(int argc, char **argv) {
    prepare(argc, argv);
    int server = is(argv[ROLE], "server");
    if (!is(argv[SCHEME], "cid12") || !is(argv[KIND], "listening")) fail("no such scheme");
    configure(server, argv);
    if (server) serve_all();
    talk(argv);
    return 0;
}
