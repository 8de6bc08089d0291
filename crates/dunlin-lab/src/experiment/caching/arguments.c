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
enum { CONNECTIONS = 2, IP_AND_UDP = 28 };

static const char QUESTION[] = "hello wolfssl!";
static const char ANSWER[] = "I hear you fa shizzle!";

static int is(const char *word, const char *other) { return !strcmp(word, other); }

// Opens the sockets of a server: one, or over UDP one for each connection.
static void listen_for_all(char **words, int *sockets) {
    if (is(words[VERSION], "dtls1.2")) listen_for_datagrams(sockets, CONNECTIONS);
    else sockets[0] = sockets[1] = listen_somewhere();
}

// Opens the socket of a connection. `listener` is a server's.
static int open_connection(char **words, int number, int listener) {
    int server = is(words[ROLE], "server");
    if (is(words[VERSION], "dtls1.2"))
        return server ? accept_datagrams(listener) : connect_datagrams(words[IP], number_of(words[PORT], number));
    return without_delay(server ? accept(listener, NULL, NULL) : connect_to(words[IP], words[PORT]));
}
