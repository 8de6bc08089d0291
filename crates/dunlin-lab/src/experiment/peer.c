// What foreign peers share: sockets, and the end of everything that fails.

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

static int connect_to(const char *ip, const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (inet_pton(AF_INET, ip, &address.sin_addr) != 1) fail("no address");
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) fail("cannot connect");
    return fd;
}
