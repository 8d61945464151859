/* Uploads or downloads a file by HTTP/3. It uses quiche's C interface, and the help of a proxy.
 *
 * gcc upload.c $(pkg-config --cflags --libs quic-sidekick) -o upload
 * ./upload -c ca.pem -m auto FILE HOST PORT /NAME
 * ./upload -c ca.pem -m receive -g FILE HOST PORT /NAME
 *
 * The word "Sidekick" marks the additions to a program with quiche.
 */
#define _POSIX_C_SOURCE 200809L

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <quic_sidekick.h>
#include <quiche.h>

#define PAYLOAD 1350
#define ID_LEN 16
#define CHUNK 65536
/* The bytes that the server may send ahead: 200 Mbit/s at a round trip of 0.6 s. */
#define WINDOW (16 << 20)

static const char *usage =
    "usage: upload [-g] [-c CAFILE] [-n NAME] [-m MODE] [-p PROXY[:PORT]] FILE HOST PORT /NAME\n"
    "  -g         download /NAME to FILE; the mode for that is receive\n"
    "  -c CAFILE  root certificates to trust instead of the system's\n"
    "  -n NAME    the name in the server's certificate [HOST]\n"
    "  -m MODE    early-loss, pacubic, path-aware-bbr, reinject, ack-reduction, auto or\n"
    "             receive [auto]\n"
    "  -p PROXY   the proxy's IPv4 address [any proxy on the path]\n";

static void fail(const char *what, ...) {
    va_list rest;
    va_start(rest, what);
    fputs("upload: ", stderr);
    vfprintf(stderr, what, rest);
    fputc('\n', stderr);
    va_end(rest);
    exit(1);
}

struct upload {
    int sock;                      /* of the connection */
    struct sockaddr_storage local; /* its two ends */
    struct sockaddr_storage remote;
    socklen_t local_len, remote_len;
    quiche_conn *conn;
    sidekick *help;
    quiche_h3_conn *http;
    FILE *file;
    const char *host, *name;
    int64_t stream; /* of the request, or -1 */
    uint8_t chunk[CHUNK];
    size_t from, to; /* the rest of the chunk */
    bool download, all_read, body_sent, answered;
    int status;
    unsigned long long socket_errors; /* that the network reported */
    int last_error;
};

/* Records why a call on a socket failed, unless it would have blocked. Anyone can forge ICMP
   messages, so no such error ends the upload. */
static void note_error(struct upload *up) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return;
    up->socket_errors++;
    up->last_error = errno;
}

/* Sends the packets of the connection and the messages of the help. */
static void send_all(struct upload *up) {
    bool again = true;
    while (again) {
        for (;;) {
            /* Sidekick: BBR2 and the help use the time of quiche_conn_send() as the packet's time
               on the wire. So the packet has to leave at once. */
            if (sidekick_release_as_nanos(up->conn) > 0) break;
            uint8_t packet[PAYLOAD];
            quiche_send_info info;
            ssize_t len = quiche_conn_send(up->conn, packet, sizeof packet, &info);
            if (len == QUICHE_ERR_DONE) break;
            if (len < 0) fail("the connection failed (%zd)", len);
            /* The error concerns an earlier packet, and this one has not left. If the second
               attempt fails, it is lost. */
            for (int attempt = 0; attempt < 2; attempt++) {
                if (send(up->sock, packet, (size_t)len, 0) >= 0) break;
                note_error(up);
            }
        }
        /* Sidekick: record the sent packets, and send messages to the proxy. */
        again = sidekick_on_sent(up->help, up->conn);
    }
}

/* Reads all waiting datagrams. */
static void receive_all(struct upload *up) {
    uint8_t datagram[65535];
    ssize_t len;
    while ((len = recv(up->sock, datagram, sizeof datagram, MSG_DONTWAIT)) >= 0) {
        quiche_recv_info info = {
            .from = (struct sockaddr *)&up->remote,
            .from_len = up->remote_len,
            .to = (struct sockaddr *)&up->local,
            .to_len = up->local_len,
        };
        /* The connection drops a datagram that is not its own. */
        quiche_conn_recv(up->conn, datagram, (size_t)len, &info);
    }
    note_error(up);
    /* Sidekick: read the proxy's reports. */
    sidekick_receive(up->help, up->conn);
}

static quiche_h3_header header(const char *name, const char *value) {
    return (quiche_h3_header){
        .name = (const uint8_t *)name,
        .name_len = strlen(name),
        .value = (const uint8_t *)value,
        .value_len = strlen(value),
    };
}

static void ask(struct upload *up) {
    quiche_h3_config *config = quiche_h3_config_new();
    up->http = quiche_h3_conn_new_with_transport(up->conn, config);
    quiche_h3_config_free(config);
    if (up->http == NULL) fail("HTTP/3 cannot begin");
    const quiche_h3_header headers[] = {
        header(":method", up->download ? "GET" : "PUT"),
        header(":scheme", "https"),
        header(":authority", up->host),
        header(":path", up->name),
    };
    up->stream = quiche_h3_send_request(
        up->http, up->conn, headers, sizeof headers / sizeof *headers, up->download);
    if (up->stream < 0) fail("the request cannot be sent (%lld)", (long long)up->stream);
}

/* Passes as much of the file to the connection as it accepts. */
static void send_body(struct upload *up) {
    while (!up->body_sent) {
        if (up->from == up->to && !up->all_read) {
            up->from = 0;
            up->to = fread(up->chunk, 1, sizeof up->chunk, up->file);
            if (ferror(up->file)) fail("the file cannot be read: %s", strerror(errno));
            up->all_read = up->to < sizeof up->chunk;
        }
        ssize_t sent = quiche_h3_send_body(up->http, up->conn, (uint64_t)up->stream,
            up->chunk + up->from, up->to - up->from, up->all_read);
        if (sent == QUICHE_H3_ERR_DONE) return;
        if (sent < 0) fail("the server accepts no more of the file (%zd)", sent);
        up->from += (size_t)sent;
        up->body_sent = up->all_read && up->from == up->to;
    }
}

static int read_status(
    uint8_t *name, size_t name_len, uint8_t *value, size_t value_len, void *status) {
    if (name_len == 7 && memcmp(name, ":status", 7) == 0 && value_len == 3) {
        *(int *)status = (value[0] - '0') * 100 + (value[1] - '0') * 10 + (value[2] - '0');
    }
    return 0;
}

/* Reads the server's answer. Writes its body to the file of a download, or to standard output. */
static void read_answer(struct upload *up) {
    quiche_h3_event *event;
    int64_t stream;
    while ((stream = quiche_h3_conn_poll(up->http, up->conn, &event)) >= 0) {
        uint8_t body[4096];
        ssize_t len;
        switch (quiche_h3_event_type(event)) {
        case QUICHE_H3_EVENT_HEADERS:
            quiche_h3_event_for_each_header(event, read_status, &up->status);
            break;
        case QUICHE_H3_EVENT_DATA:
            for (;;) {
                len = quiche_h3_recv_body(
                    up->http, up->conn, (uint64_t)stream, body, sizeof body);
                if (len <= 0) break;
                FILE *to = up->download && up->status == 200 ? up->file : stdout;
                if (fwrite(body, 1, (size_t)len, to) < (size_t)len) {
                    fail("the file cannot be written: %s", strerror(errno));
                }
            }
            break;
        case QUICHE_H3_EVENT_FINISHED:
            up->answered = true;
            break;
        case QUICHE_H3_EVENT_RESET:
            fail("the server reset its answer");
            break;
        case QUICHE_H3_EVENT_GOAWAY:
        case QUICHE_H3_EVENT_PRIORITY_UPDATE:
            break;
        }
        quiche_h3_event_free(event);
    }
}

/* Waits for a datagram or the next deadline. */
static void wait_for_input(struct upload *up) {
    uint64_t nanos = quiche_conn_timeout_as_nanos(up->conn);
    /* Sidekick: its own deadline, and that of the pacer. */
    uint64_t of_help = sidekick_timeout_as_nanos(up->help);
    if (of_help < nanos) nanos = of_help;
    uint64_t of_packet = sidekick_release_as_nanos(up->conn);
    if (of_packet > 0 && of_packet < nanos) nanos = of_packet;
    struct pollfd sockets[] = {
        {.fd = up->sock, .events = POLLIN}, {.fd = sidekick_fd(up->help), .events = POLLIN}};
    /* Rounded up, so that poll() does not return before the deadline. */
    uint64_t millis = nanos / 1000000 + (nanos % 1000000 > 0);
    poll(sockets, 2, millis > 60000 ? 60000 : (int)millis);
    if (quiche_conn_timeout_as_nanos(up->conn) == 0) quiche_conn_on_timeout(up->conn);
}

/* Reports why there is no answer, and exits. */
static void explain(struct upload *up) {
    if (quiche_conn_is_timed_out(up->conn)) {
        if (up->socket_errors == 0) fail("the server does not answer");
        fail("the server does not answer; the network reported %llu errors, the last is: %s",
            up->socket_errors, strerror(up->last_error));
    }
    bool app;
    uint64_t code;
    const uint8_t *reason;
    size_t len;
    if (quiche_conn_local_error(up->conn, &app, &code, &reason, &len)) {
        /* RFC 9001, section 4.8 */
        if (!app && code >= 0x100 && code <= 0x1ff) {
            int alert = (int)(code - 0x100);
            /* bad_certificate, certificate_unknown, unknown_ca */
            if (alert == 42 || alert == 46 || alert == 48) {
                fail("the server's certificate is not trusted (TLS alert %d): name its root "
                     "certificate with -c CAFILE, and its name with -n NAME",
                    alert);
            }
            if (alert == 45) {
                fail("the server's certificate has expired (TLS alert 45): check its dates, and "
                     "this machine's clock");
            }
            fail("this end aborted TLS (alert %d, RFC 8446, section 6)", alert);
        }
        fail("this end closed the connection (error %#llx %.*s)", (unsigned long long)code,
            (int)len, (const char *)reason);
    }
    fail("the server closed the connection");
}

/* Whether the text is a port, 1 to 65535. getaddrinfo() cuts a larger number to 16 bits. */
static bool is_port(const char *text) {
    char *end;
    long port = strtol(text, &end, 10);
    return end != text && *end == '\0' && port >= 1 && port <= 65535;
}

/* Opens a UDP socket, and connects it to the server. */
static void open_socket(struct upload *up, const char *host, const char *port) {
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found;
    if (!is_port(port)) fail("%s is not a port: use 1 to 65535", port);
    int error = getaddrinfo(host, port, &hints, &found);
    if (error != 0) fail("%s port %s: %s", host, port, gai_strerror(error));
    up->sock = socket(found->ai_family, SOCK_DGRAM, 0);
    if (up->sock < 0) fail("no socket: %s", strerror(errno));
    if (connect(up->sock, found->ai_addr, found->ai_addrlen) < 0) {
        fail("%s: %s", host, strerror(errno));
    }
    memcpy(&up->remote, found->ai_addr, found->ai_addrlen);
    up->remote_len = found->ai_addrlen;
    freeaddrinfo(found);
    up->local_len = sizeof up->local;
    getsockname(up->sock, (struct sockaddr *)&up->local, &up->local_len);
}

/* Sidekick: choose the mode and the proxy. */
static sidekick_config *choose(const char *mode, const char *proxy) {
    sidekick_config *config = sidekick_config_new(mode);
    if (config == NULL) fail("there is no mode %s", mode);
    if (proxy != NULL) {
        char host[64];
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(5252)};
        const char *colon = strchr(proxy, ':');
        snprintf(
            host, sizeof host, "%.*s", (int)(colon ? colon - proxy : (long)strlen(proxy)), proxy);
        bool second_colon = strchr(proxy, ':') != strrchr(proxy, ':');
        if (second_colon || inet_pton(AF_INET, host, &at.sin_addr) != 1) {
            fail("%s is not an IPv4 address with or without a port", proxy);
        }
        if (colon != NULL && !is_port(colon + 1)) {
            fail("%s is not a port: use 1 to 65535", colon + 1);
        }
        if (colon != NULL) at.sin_port = htons((uint16_t)atoi(colon + 1));
        sidekick_config_set_proxy(config, (struct sockaddr *)&at, sizeof at);
    }
    return config;
}

static quiche_config *configure(const char *cafile, const char *controller) {
    quiche_config *config = quiche_config_new(QUICHE_PROTOCOL_VERSION);
    const char *protos = QUICHE_H3_APPLICATION_PROTOCOL;
    quiche_config_set_application_protos(
        config, (const uint8_t *)protos, sizeof QUICHE_H3_APPLICATION_PROTOCOL - 1);
    if (cafile != NULL && quiche_config_load_verify_locations_from_file(config, cafile) < 0) {
        fail("%s holds no certificates", cafile);
    }
    if (controller != NULL) quiche_config_set_cc_algorithm_name(config, controller);
    quiche_config_verify_peer(config, true);
    quiche_config_set_max_idle_timeout(config, 30000);
    quiche_config_set_max_recv_udp_payload_size(config, 65527);
    quiche_config_set_max_send_udp_payload_size(config, PAYLOAD);
    quiche_config_set_initial_max_data(config, WINDOW + (1 << 20));
    quiche_config_set_initial_max_stream_data_bidi_local(config, WINDOW);
    quiche_config_set_initial_max_stream_data_uni(config, 1 << 18);
    quiche_config_set_initial_max_streams_uni(config, 8);
    return config;
}

int main(int argc, char **argv) {
    const char *cafile = NULL, *name = NULL, *mode = "auto", *proxy = NULL;
    static struct upload up = {.stream = -1};
    for (int option; (option = getopt(argc, argv, "gc:n:m:p:")) != -1;) {
        switch (option) {
        case 'g': up.download = up.body_sent = true; break;
        case 'c': cafile = optarg; break;
        case 'n': name = optarg; break;
        case 'm': mode = optarg; break;
        case 'p': proxy = optarg; break;
        default: fputs(usage, stderr); return 2;
        }
    }
    if (argc - optind != 4) {
        fputs(usage, stderr);
        return 2;
    }
    up.file = fopen(argv[optind], up.download ? "wb" : "rb");
    if (up.file == NULL) fail("%s: %s", argv[optind], strerror(errno));
    up.host = name != NULL ? name : argv[optind + 1];
    up.name = argv[optind + 3];
    open_socket(&up, argv[optind + 1], argv[optind + 2]);

    sidekick_config *terms = choose(mode, proxy);
    quiche_config *config = configure(cafile, sidekick_config_congestion_control(terms));
    uint8_t id[ID_LEN];
    if (getrandom(id, sizeof id, 0) != sizeof id) fail("no random numbers: %s", strerror(errno));
    up.conn = quiche_connect(up.host, id, sizeof id, (struct sockaddr *)&up.local, up.local_len,
        (struct sockaddr *)&up.remote, up.remote_len, config);
    if (up.conn == NULL) fail("no connection can be made");
    up.help = sidekick_new(terms);
    int error = sidekick_attach(up.help, up.conn);
    if (error != 0) fprintf(stderr, "upload: no socket for a proxy: %s\n", strerror(error));

    bool closing = false;
    while (!quiche_conn_is_closed(up.conn)) {
        if (up.http == NULL && quiche_conn_is_established(up.conn)) ask(&up);
        if (up.http != NULL && !closing) {
            send_body(&up);
            read_answer(&up);
        }
        if (up.answered && !closing) {
            char sentence[128];
            sidekick_status status;
            sidekick_get_status(up.help, &status, sizeof status);
            sidekick_assistance(up.help, sentence, sizeof sentence);
            fprintf(stderr,
                "status %d; %s; %llu quACKs, %llu packets lost early; %llu gaps repaired near; "
                "%llu socket errors\n",
                up.status, sentence, (unsigned long long)status.quacks,
                (unsigned long long)status.early_lost, (unsigned long long)status.repaired_near,
                up.socket_errors + (unsigned long long)status.socket_errors);
            sidekick_stop(up.help);
            quiche_conn_close(up.conn, true, 0x100, NULL, 0); /* H3_NO_ERROR */
            closing = true;
        }
        send_all(&up);
        /* The close is sent. The program does not wait for its arrival. */
        if (closing) break;
        wait_for_input(&up);
        receive_all(&up);
    }
    if (!up.answered) explain(&up);
    if (fclose(up.file) != 0) fail("the file cannot be written: %s", strerror(errno));
    sidekick_free(up.help);
    sidekick_config_free(terms);
    if (up.http != NULL) quiche_h3_conn_free(up.http);
    quiche_conn_free(up.conn);
    quiche_config_free(config);
    return up.status / 100 == 2 ? 0 : 1;
}
