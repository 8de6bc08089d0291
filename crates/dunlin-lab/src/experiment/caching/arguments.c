// What both foreign peers share of this experiment.
//
// PROGRAM server VERSION SUITE MODE ROOT CHAIN KEY           prints its port, takes two connections
// PROGRAM client VERSION SUITE MODE ROOT CHAIN KEY IP PORT   makes two, prints for each whether it was full or resumed
//
// VERSION is tls1.2 or tls1.3; SUITE is for TLS 1.2, and MODE vanilla or resumption. ROOT, CHAIN and KEY are files in PEM.

enum { ROLE = 1, VERSION, SUITE, MODE, ROOT, CHAIN, KEY, IP, PORT };
enum { CONNECTIONS = 2 };

static const char QUESTION[] = "hello wolfssl!";
static const char ANSWER[] = "I hear you fa shizzle!";

static int is(const char *word, const char *other) { return !strcmp(word, other); }
