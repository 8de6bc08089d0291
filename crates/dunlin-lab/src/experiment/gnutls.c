// Common code of the GnuTLS programs: errors, and the cookie of a server over datagrams.

#include <errno.h>
#include <fcntl.h>
#include <gnutls/dtls.h>
#include <gnutls/gnutls.h>
#include <poll.h>

enum { LARGEST_DATAGRAM = 1 << 16 };

static void check(int result) {
    if (result < 0) fail(gnutls_strerror(result));
}

// Sends a datagram. One that no socket receives is lost, as on any network: a busy machine may not have opened
// the other socket yet, or have closed it already.
static ssize_t push(gnutls_transport_ptr_t fd, const void *data, size_t size) {
    ssize_t sent = send((int)(long)fd, data, size, 0);
    return sent < 0 && errno == ECONNREFUSED ? (ssize_t)size : sent;
}

// Demands a cookie, and waits for the ClientHello that returns it, which stays in the queue.
static void demand_cookie(int fd, gnutls_dtls_prestate_st *state) {
    static char datagram[LARGEST_DATAGRAM];
    struct sockaddr_in peer = peer_of(fd);
    gnutls_datum_t key;
    check(gnutls_key_generate(&key, GNUTLS_COOKIE_KEY_SIZE));
    for (;;) {
        ssize_t size = recv(fd, datagram, sizeof datagram, MSG_PEEK);
        if (size < 0) fail("no datagram");
        memset(state, 0, sizeof *state);
        if (gnutls_dtls_cookie_verify(&key, &peer, sizeof peer, datagram, size, state) >= 0) break;
        check(gnutls_dtls_cookie_send(&key, &peer, sizeof peer, state, (gnutls_transport_ptr_t)(long)fd, push));
        recv(fd, datagram, sizeof datagram, 0);
    }
    gnutls_free(key.data);
}

// A session over a connected socket, whose server has demanded a cookie. The socket must not block: with one
// that does, GnuTLS sleeps after each datagram, so that flights of many datagrams are sent again.
static gnutls_session_t new_session(int server, int fd, int largest, const char *priority, gnutls_certificate_credentials_t keys) {
    gnutls_dtls_prestate_st state;
    gnutls_session_t session;
    if (server) demand_cookie(fd, &state);
    if (fcntl(fd, F_SETFL, O_NONBLOCK)) fail("it blocks");
    unsigned flags = GNUTLS_DATAGRAM | GNUTLS_NONBLOCK | GNUTLS_NO_TICKETS;
    check(gnutls_init(&session, (server ? GNUTLS_SERVER : GNUTLS_CLIENT) | flags));
    if (server) gnutls_dtls_prestate_set(session, &state);
    check(gnutls_priority_set_direct(session, priority, NULL));
    if (keys) check(gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, keys));
    gnutls_transport_set_int(session, fd);
    gnutls_transport_set_push_function(session, push);
    gnutls_dtls_set_mtu(session, largest);
    return session;
}

// Waits for a datagram, at most for this many milliseconds; -1 is for ever.
static void wait_for_datagram(gnutls_session_t session, int most) {
    struct pollfd polled = {.fd = gnutls_transport_get_int(session), .events = POLLIN};
    poll(&polled, 1, most);
}

static void shake_hands(gnutls_session_t session) {
    int result;
    while ((result = gnutls_handshake(session)) < 0 && !gnutls_error_is_fatal(result))
        if (result == GNUTLS_E_AGAIN) wait_for_datagram(session, gnutls_dtls_get_timeout(session));
    check(result);
}

static ssize_t receive(gnutls_session_t session, void *buffer, size_t size) {
    ssize_t length;
    while ((length = gnutls_record_recv(session, buffer, size)) == GNUTLS_E_AGAIN) wait_for_datagram(session, -1);
    return length;
}
