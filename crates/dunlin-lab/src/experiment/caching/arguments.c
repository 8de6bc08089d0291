// What both foreign peers share of this experiment.
//
// PROGRAM server vanilla|resumption ROOT CHAIN KEY           prints its port, takes two connections
// PROGRAM client vanilla|resumption ROOT CHAIN KEY IP PORT   makes two, prints for each whether it was full or resumed
//
// ROOT, CHAIN and KEY are files in PEM.

enum { ROLE = 1, MODE, ROOT, CHAIN, KEY, IP, PORT };
enum { CONNECTIONS = 2 };

static const char QUESTION[] = "hello wolfssl!";
static const char ANSWER[] = "I hear you fa shizzle!";
