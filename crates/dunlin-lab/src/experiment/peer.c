// Common code of the foreign peers: arguments, sockets, time, and the exit on a failure.

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_SECONDS = 30, BACKLOG = 2, IP_AND_UDP = 28 };
// The pre-shared key of all experiments.
enum { PSK_BYTES = 32, PSK_BYTE = 7 };

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static int is(const char *word, const char *other) { return !strcmp(word, other); }

static double now_us(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e6 + time.tv_nsec * 1e-3;
}

// The number at this place of a list that is separated by spaces.
static int number_of(const char *numbers, int place) {
    while (numbers && place-- > 0) numbers = strchr(numbers + 1, ' ');
    if (!numbers) fail("too few ports");
    return atoi(numbers);
}

static struct sockaddr_in address_of(const char *ip, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (inet_pton(AF_INET, ip, &address.sin_addr) != 1) fail("no address");
    return address;
}

// Opens a socket at a port, which several sockets may share; 0 is any.
static int open_at(int type, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int on = 1, fd = socket(AF_INET, type, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on)) fail("no socket");
    if (bind(fd, (struct sockaddr *)&address, sizeof address)) fail("cannot bind");
    return fd;
}

static int port_of(int fd) {
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &size)) fail("no port");
    return ntohs(address.sin_port);
}

static struct sockaddr_in peer_of(int fd) {
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    if (getpeername(fd, (struct sockaddr *)&address, &size)) fail("no peer");
    return address;
}

static int without_delay(int fd) {
    int on = 1;
    if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on)) fail("no connection");
    return fd;
}

// Opens the listeners of a server's connections, and prints their ports. Over TCP they are one.
static void listen_for(int datagrams, int *listeners, int count) {
    for (int i = 0; i < count; i++) {
        listeners[i] = i && !datagrams ? listeners[0] : open_at(datagrams ? SOCK_DGRAM : SOCK_STREAM, 0);
        if (i && !datagrams) continue;
        if (!datagrams && listen(listeners[i], BACKLOG)) fail("cannot listen");
        printf(i ? " %d" : "%d", port_of(listeners[i]));
    }
    printf("\n");
    fflush(stdout);
}

// Connects a server's socket to the sender of the first datagram, which stays in the queue.
static int accept_datagrams(int fd) {
    struct sockaddr_in peer;
    socklen_t size = sizeof peer;
    char byte;
    if (recvfrom(fd, &byte, 1, MSG_PEEK, (struct sockaddr *)&peer, &size) < 0) fail("no datagram");
    if (connect(fd, (struct sockaddr *)&peer, size)) fail("no peer");
    return fd;
}

static int connect_to(int type, const char *ip, int port) {
    struct sockaddr_in address = address_of(ip, port);
    int fd = socket(AF_INET, type, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) fail("cannot connect");
    return fd;
}

// Opens the socket of a connection: a server's from its listener, a client's to an IP address and one of the
// server's ports.
static int open_connection(int datagrams, int listener, char **to, int number) {
    if (datagrams)
        return listener < 0 ? connect_to(SOCK_DGRAM, to[0], number_of(to[1], number)) : accept_datagrams(listener);
    return without_delay(listener < 0 ? connect_to(SOCK_STREAM, to[0], atoi(to[1])) : accept(listener, NULL, NULL));
}
