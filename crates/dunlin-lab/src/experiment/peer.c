// Common code of the foreign peers: sockets, and the exit on a failure.

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATIENCE_SECONDS = 30, BACKLOG = 2 };

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static int without_delay(int fd) {
    int on = 1;
    if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on)) fail("no connection");
    return fd;
}

static int listen_somewhere(void) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (struct sockaddr *)&address, size) || listen(fd, BACKLOG)) fail("cannot listen");
    if (getsockname(fd, (struct sockaddr *)&address, &size)) fail("no port");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
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

// Opens UDP sockets and prints their ports.
static void listen_for_datagrams(int *sockets, int count) {
    for (int i = 0; i < count; i++) {
        struct sockaddr_in address = {.sin_family = AF_INET};
        socklen_t size = sizeof address;
        sockets[i] = socket(AF_INET, SOCK_DGRAM, 0);
        if (bind(sockets[i], (struct sockaddr *)&address, size)) fail("cannot bind");
        if (getsockname(sockets[i], (struct sockaddr *)&address, &size)) fail("no port");
        printf(i ? " %d" : "%d", ntohs(address.sin_port));
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

static int connect_datagrams(const char *ip, int port) {
    struct sockaddr_in address = address_of(ip, port);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) fail("cannot connect");
    return fd;
}

static struct sockaddr_in peer_of(int fd) {
    struct sockaddr_in address;
    socklen_t size = sizeof address;
    if (getpeername(fd, (struct sockaddr *)&address, &size)) fail("no peer");
    return address;
}

static int connect_to(const char *ip, const char *port) {
    struct sockaddr_in address = address_of(ip, atoi(port));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) fail("cannot connect");
    return fd;
}
