// A peer over Mbed TLS on a UDP socket: it is a client or server of DTLS 1.2, says in a line what was agreed,
// and echoes records until the other side closes.
//
//   peer client|server PORT CID MTU CONNECTIONS                   with the shared key
//   peer client|server PORT CID MTU CONNECTIONS ROOT CHAIN KEY    with certificates, which both sides have
//
// A server chooses its port and prints it. CID is the length of the connection ID to receive, or -1 for no
// connection IDs. A client with two CONNECTIONS, one after the other, resumes the first session.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <arpa/inet.h>

#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/error.h>
#include <mbedtls/net_sockets.h>
#include <mbedtls/ssl.h>
#include <mbedtls/ssl_cookie.h>
#include <mbedtls/ssl_ticket.h>
#include <mbedtls/timing.h>

// A peer that takes longer has hung.
enum { PATIENCE_SECONDS = 120, TICKET_SECONDS = 3600 };
enum { ROLE = 1, PORT, CID, MTU, CONNECTIONS, ROOT, CHAIN, KEY };

static const char IDENTITY[] = "device-1";
static const char LABEL[] = "EXPORTER-of-a-test";

static mbedtls_entropy_context entropy;
static mbedtls_ctr_drbg_context drbg;
static mbedtls_ssl_config config;
static mbedtls_ssl_context ssl;
static mbedtls_ssl_cookie_ctx cookies;
static mbedtls_ssl_ticket_context tickets;
static mbedtls_timing_delay_context timer;
static mbedtls_x509_crt roots, chain;
static mbedtls_pk_context key;
static mbedtls_ssl_session session;
static int id_length, session_is_kept;
static unsigned char exported[32];

static void check(const char *what, int result) {
    char text[160];
    if (result >= 0) return;
    mbedtls_strerror(result, text, sizeof text);
    fprintf(stderr, "mbedtls: %s: %s\n", what, text);
    exit(1);
}

static void configure(int argc, char **argv, int server) {
    int end = server ? MBEDTLS_SSL_IS_SERVER : MBEDTLS_SSL_IS_CLIENT;
    mbedtls_entropy_init(&entropy);
    mbedtls_ctr_drbg_init(&drbg);
    check("random", mbedtls_ctr_drbg_seed(&drbg, mbedtls_entropy_func, &entropy, NULL, 0));
    mbedtls_ssl_config_init(&config);
    check("configuration", mbedtls_ssl_config_defaults(&config, end, MBEDTLS_SSL_TRANSPORT_DATAGRAM,
                                                       MBEDTLS_SSL_PRESET_DEFAULT));
    mbedtls_ssl_conf_rng(&config, mbedtls_ctr_drbg_random, &drbg);
    if (argc > KEY) {
        check("root", mbedtls_x509_crt_parse_file(&roots, argv[ROOT]));
        check("certificates", mbedtls_x509_crt_parse_file(&chain, argv[CHAIN]));
        check("key", mbedtls_pk_parse_keyfile(&key, argv[KEY], NULL, mbedtls_ctr_drbg_random, &drbg));
        mbedtls_ssl_conf_ca_chain(&config, &roots, NULL);
        check("own certificate", mbedtls_ssl_conf_own_cert(&config, &chain, &key));
        mbedtls_ssl_conf_authmode(&config, MBEDTLS_SSL_VERIFY_REQUIRED);
    } else {
        unsigned char psk[32];
        for (int i = 0; i < 32; i++) psk[i] = i;
        check("psk", mbedtls_ssl_conf_psk(&config, psk, sizeof psk, (const unsigned char *)IDENTITY, strlen(IDENTITY)));
    }
    id_length = atoi(argv[CID]);
    if (id_length >= 0)
        check("length of IDs", mbedtls_ssl_conf_cid(&config, id_length, MBEDTLS_SSL_UNEXPECTED_CID_IGNORE));
    if (!server) return;
    check("cookies", mbedtls_ssl_cookie_setup(&cookies, mbedtls_ctr_drbg_random, &drbg));
    mbedtls_ssl_conf_dtls_cookies(&config, mbedtls_ssl_cookie_write, mbedtls_ssl_cookie_check, &cookies);
    check("tickets", mbedtls_ssl_ticket_setup(&tickets, mbedtls_ctr_drbg_random, &drbg, MBEDTLS_CIPHER_AES_128_GCM,
                                              TICKET_SECONDS));
    mbedtls_ssl_conf_session_tickets_cb(&config, mbedtls_ssl_ticket_write, mbedtls_ssl_ticket_parse, &tickets);
}

// Begins a connection. Without the client's address there are no cookies.
static void begin(const unsigned char *client, size_t length) {
    unsigned char id[MBEDTLS_SSL_CID_IN_LEN_MAX];
    check("reset", mbedtls_ssl_session_reset(&ssl));
    if (client) check("client's address", mbedtls_ssl_set_client_transport_id(&ssl, client, length));
    if (id_length < 0) return;
    check("random", mbedtls_ctr_drbg_random(&drbg, id, id_length));
    check("connection ID", mbedtls_ssl_set_cid(&ssl, MBEDTLS_SSL_CID_ENABLED, id, id_length));
}

// Exports a key from the master secret. mbedtls_ssl_export_keying_material crashes on the side that sends the
// last flight, until the first record arrives.
static void export_key(void *unused, mbedtls_ssl_key_export_type type, const unsigned char *secret, size_t length,
                       const unsigned char client[32], const unsigned char server[32], mbedtls_tls_prf_types prf) {
    unsigned char randoms[64];
    memcpy(randoms, client, 32);
    memcpy(randoms + 32, server, 32);
    check("key export", mbedtls_ssl_tls_prf(prf, secret, length, LABEL, randoms, sizeof randoms, exported, sizeof exported));
}

static int handshake(void) {
    int result;
    do {
        result = mbedtls_ssl_handshake(&ssl);
    } while (result == MBEDTLS_ERR_SSL_WANT_READ || result == MBEDTLS_ERR_SSL_WANT_WRITE);
    return result;
}

static void report(void) {
    unsigned char id[MBEDTLS_SSL_CID_OUT_LEN_MAX];
    int has_id;
    size_t length = 0;
    check("peer's ID", mbedtls_ssl_get_peer_cid(&ssl, &has_id, id, &length));
    printf("connected suite=%s id=", mbedtls_ssl_get_ciphersuite(&ssl));
    for (size_t i = 0; has_id && i < length; i++) printf("%02x", id[i]);
    printf(" exported=");
    for (size_t i = 0; i < sizeof exported; i++) printf("%02x", exported[i]);
    puts("");
    fflush(stdout);
}

static void echo(void) {
    static unsigned char data[1 << 14];
    for (;;) {
        int length = mbedtls_ssl_read(&ssl, data, sizeof data);
        if (length == MBEDTLS_ERR_SSL_WANT_READ || length == MBEDTLS_ERR_SSL_TIMEOUT) continue;
        if (length == MBEDTLS_ERR_SSL_PEER_CLOSE_NOTIFY) return;
        check("no close_notify", length);
        check("cannot write", mbedtls_ssl_write(&ssl, data, length));
    }
}

int main(int argc, char **argv) {
    alarm(PATIENCE_SECONDS);
    if (argc <= CONNECTIONS) return 2;
    int server = !strcmp(argv[ROLE], "server");
    unsigned char client[16];
    size_t length = 0;
    mbedtls_net_context listener, peer;
    configure(argc, argv, server);
    mbedtls_ssl_init(&ssl);
    check("setup", mbedtls_ssl_setup(&ssl, &config));
    check("host name", mbedtls_ssl_set_hostname(&ssl, server ? NULL : "localhost"));
    mbedtls_ssl_set_export_keys_cb(&ssl, export_key, NULL);
    mbedtls_ssl_set_mtu(&ssl, atoi(argv[MTU]));
    mbedtls_ssl_set_timer_cb(&ssl, &timer, mbedtls_timing_set_delay, mbedtls_timing_get_delay);
    mbedtls_net_init(&listener);
    if (server) {
        struct sockaddr_in address;
        socklen_t size = sizeof address;
        check("bind", mbedtls_net_bind(&listener, "127.0.0.1", "0", MBEDTLS_NET_PROTO_UDP));
        if (getsockname(listener.fd, (struct sockaddr *)&address, &size)) return 1;
        printf("listening %d\n", ntohs(address.sin_port));
        fflush(stdout);
    }
    for (int i = atoi(argv[CONNECTIONS]); i > 0; i--) {
        mbedtls_net_init(&peer);
        if (server) check("accept", mbedtls_net_accept(&listener, &peer, client, sizeof client, &length));
        else check("connect", mbedtls_net_connect(&peer, "127.0.0.1", argv[PORT], MBEDTLS_NET_PROTO_UDP));
        mbedtls_ssl_set_bio(&ssl, &peer, mbedtls_net_send, mbedtls_net_recv, mbedtls_net_recv_timeout);
        begin(server ? client : NULL, length);
        if (session_is_kept) check("session", mbedtls_ssl_set_session(&ssl, &session));
        int result = handshake();
        while (result == MBEDTLS_ERR_SSL_HELLO_VERIFY_REQUIRED) {
            begin(client, length);
            result = handshake();
        }
        check("no handshake", result);
        report();
        if (!server) {
            check("session", mbedtls_ssl_get_session(&ssl, &session));
            session_is_kept = 1;
        }
        echo();
        mbedtls_ssl_close_notify(&ssl);
        puts("closed");
        fflush(stdout);
        mbedtls_net_free(&peer);
    }
}
