// Common code of this experiment's foreign peers.
//
// PROGRAM server VERSION SUITE MODE MTU ROOT CHAIN KEY
//     prints its ports, takes two connections
// PROGRAM client VERSION SUITE MODE MTU ROOT CHAIN KEY IP PORTS
//     makes two, prints for each whether it was full or resumed
//
// VERSION is tls1.2, tls1.3 or dtls1.2; SUITE is for version 1.2, and MODE vanilla or resumption. ROOT, CHAIN
// and KEY are files in PEM. A server over TCP has one port; over UDP it has one for each connection, and
// demands a cookie.

enum { ROLE = 1, VERSION, SUITE, MODE, MTU, ROOT, CHAIN, KEY, IP, PORT };
enum { CONNECTIONS = 2 };

static const char QUESTION[] = "hello wolfssl!";
static const char ANSWER[] = "I hear you fa shizzle!";

// The parts of a stack, each in its own file. A connection is a pointer to the stack's own type.

static void configure(int server, int resume, char **words);
// Makes a connection over a socket, and its handshake; `largest` is the largest datagram, or 0 over TCP. A client
// resumes the session that it has kept.
static void *begin(int server, int fd, int largest);
static void keep_session(void *connection);
static int is_resumed(void *connection);
// Returns the number of bytes; 0 after close_notify.
static int get(void *connection, char *buffer, int size);
static int put(void *connection, const char *message, int length);
static void send_close_notify(void *connection);
static void end(void *connection);

static void expect(void *connection, const char *message) {
    char buffer[64];
    int length = get(connection, buffer, sizeof buffer);
    if (length != (int)strlen(message) || memcmp(buffer, message, length)) fail("another message");
}

static void say(void *connection, const char *message) {
    if (put(connection, message, strlen(message)) != (int)strlen(message)) fail("cannot write");
}

int main(int argc, char **argv) {
    alarm(PATIENCE_SECONDS);
    if (argc <= KEY) fail("arguments");
    int server = is(argv[ROLE], "server"), resume = is(argv[MODE], "resumption");
    int datagrams = is(argv[VERSION], "dtls1.2"), listeners[CONNECTIONS] = {-1, -1};
    configure(server, resume, argv);
    if (server) listen_for(datagrams, listeners, CONNECTIONS);
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = open_connection(datagrams, listeners[i], argv + IP, i);
        void *connection = begin(server, fd, datagrams ? atoi(argv[MTU]) - IP_AND_UDP : 0);
        if (!server) say(connection, QUESTION);
        expect(connection, server ? QUESTION : ANSWER);
        if (server) say(connection, ANSWER);
        if (!server && resume) keep_session(connection);
        // The client closes first.
        if (!server) send_close_notify(connection);
        char byte;
        if (get(connection, &byte, 1)) fail("no close_notify");
        if (server) send_close_notify(connection);
        else puts(is_resumed(connection) ? "resumed" : "full");
        end(connection);
        close(fd);
    }
}
