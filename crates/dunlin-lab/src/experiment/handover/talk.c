// The common part of the rivals' programs. A client sends one message at a time. The server sends it back.
//
// PROGRAM server KIND SCHEME ROOT CHAIN KEY                    prints its port, serves until it is killed
// PROGRAM client KIND SCHEME ROOT CHAIN KEY IP PORT MESSAGES   prints its results after the last answer
//
// KIND is listening (any number of connections), or single (one connection, which ends after a second of
// silence). SCHEME is a scheme of the experiment. ROOT, CHAIN and KEY are files in PEM.

#include <poll.h>
#include <sched.h>

enum { ROLE = 1, KIND, SCHEME, ROOT, CHAIN, KEY, IP, PORT, MESSAGES };
enum { LONGEST_SECONDS = 1800, LARGEST_DATAGRAM = 1200, MESSAGE_BYTES = 32 };
enum { TIMEOUT_MS = 1000, PACE_MS = 100, PRIORITY = 10 };

static double now_ms(void) { return now_us() / 1e3; }

static void pause_ms(double ms) {
    struct timespec time = {(time_t)(ms / 1e3), (long)(ms * 1e6) % 1000000000L};
    nanosleep(&time, NULL);
}

static void prepare(int argc, char **words) {
    alarm(LONGEST_SECONDS);
    // As Dunlin's threads, if the system allows it: the result is then about the network, not the machine.
    sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = PRIORITY});
    if (argc <= KEY || (is(words[ROLE], "client") && argc <= MESSAGES)) fail("arguments");
}

// Waits for a datagram until this time.
static int wait_until(int fd, double until) {
    double left = until - now_ms();
    struct pollfd polled = {fd, POLLIN, 0};
    // In whole milliseconds, not too early.
    return poll(&polled, 1, left < 0 ? 0 : (int)left + 1) > 0;
}

// Prints the results of a client: the time to the last acknowledgement and that of the first handshake in
// milliseconds, the acknowledged and the repeated messages, the handshakes and the resumed ones.
static void print_results(double whole, double first, int acknowledged, int resent, int handshakes, int resumed) {
    printf("%.3f %.3f %d %d %d %d\n", whole, first, acknowledged, resent, handshakes, resumed);
}
