/* The plugin for programs that use quiche's C interface. cbindgen makes this file from the crate
 * quic-sidekick-c.
 *
 * Each pointer must point to an object of its type, or be NULL. Only one thread at a time may use a
 * connection and its help.
 */

#ifndef QUIC_SIDEKICK_H
#define QUIC_SIDEKICK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include "quiche.h"

/*
 The help for one connection. Only one thread at a time may use it and the connection.
 */
typedef struct sidekick sidekick;

/*
 The proxy, the mode and the requested terms; for any number of connections.
 */
typedef struct sidekick_config sidekick_config;

/*
 Whether a connection is assisted, and counters since it began. Later versions of the library add
 fields only at the end.
 */
typedef struct sidekick_status {
  /*
   Whether a proxy assists it now.
   */
  bool assisted;
  /*
   The near segment's smoothed round-trip time in nanoseconds; 0 until it is measured, and when
   a discovered proxy's session has ended.
   */
  uint64_t near_rtt_nanos;
  /*
   Packets that the help declared lost or re-injected. quiche's own count of lost packets does
   not include them.
   */
  uint64_t early_lost;
  /*
   Of these, packets whose first transmission the receiver acknowledged.
   */
  uint64_t spurious;
  /*
   quACKs received.
   */
  uint64_t quacks;
  /*
   Bytes of quACKs.
   */
  uint64_t quack_bytes;
  /*
   quACKs that could not be decoded.
   */
  uint64_t undecodable;
  /*
   Epochs begun.
   */
  uint64_t epochs;
  /*
   Polls sent.
   */
  uint64_t polls;
  /*
   Ranges of datagrams that were requested of the proxy, because the connection lacks them;
   with repetitions.
   */
  uint64_t repeats_requested;
  /*
   Copies of such datagrams that arrived.
   */
  uint64_t repeats_received;
  /*
   Gaps in the received packet numbers that closed while the connection waited for repairs: by
   copies, by parity, or by packets that were only late.
   */
  uint64_t repaired_near;
  /*
   Datagrams that the proxy's parity rebuilt.
   */
  uint64_t parity_rebuilt;
  /*
   Errors that the network reported at the socket of the help. They do not end the help,
   because anyone can forge them.
   */
  uint64_t socket_errors;
} sidekick_status;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Makes the help for one connection; sidekick_free() frees it. Returns NULL if `config` is NULL.
 The caller may free the config at once.
 */
struct sidekick *sidekick_new(const struct sidekick_config *config);

/*
 Frees the help, and closes its socket. NULL does nothing. Free the help after the connection. To
 end the help earlier, call sidekick_stop(), and go on with the loop.
 */
void sidekick_free(struct sidekick *sidekick);

/*
 Opens a UDP socket at the connection's local address, and starts the log of sent packets. Call
 it once, right after quiche_connect() or quiche_accept(). Returns 0, EINVAL if a pointer is
 NULL, EALREADY if the help was attached before or has ended, or the system's error number if it
 refuses the socket. After a refusal the connection continues unassisted.
 */
int sidekick_attach(struct sidekick *sidekick, quiche_conn *conn);

/*
 The socket of the help, for poll(); -1 if there is none, which poll() ignores. Ask before each
 poll(), because sidekick_receive() closes a socket that failed. When it is readable, call
 sidekick_receive(). Only the help reads, writes and closes it.
 */
int sidekick_fd(const struct sidekick *sidekick);

/*
 Reads the socket of the help, and serves its timers. Call it in each round of the loop, before
 quiche_conn_send(). Returns whether quiche_conn_send() has something to send because of it.
 */
bool sidekick_receive(struct sidekick *sidekick, quiche_conn *conn);

/*
 Records the packets that the connection has sent, and sends messages to the proxy. Call it in
 each round of the loop, after quiche_conn_send() returned QUICHE_ERR_DONE and the program sent
 all. Returns whether quiche_conn_send() has something to send again: then repeat both.
 */
bool sidekick_on_sent(struct sidekick *sidekick, quiche_conn *conn);

/*
 Nanoseconds until sidekick_receive() is due, or UINT64_MAX. Wait for the shorter of this and
 quiche_conn_timeout_as_nanos().
 */
uint64_t sidekick_timeout_as_nanos(const struct sidekick *sidekick);

/*
 Nanoseconds to wait before the next call of quiche_conn_send(). Send what it returns at once:
 quiche's BBR2 uses the time of that call as the time on the wire, and quiche's own C interface
 does not offer this time. 0 for other controllers, which do not pace. A packet that the program
 holds back beyond sidekick_on_sent() counts as lost before the proxy.
 */
uint64_t sidekick_release_as_nanos(const quiche_conn *conn);

/*
 Ends the session with the proxy. Call it once, before quiche_conn_close(). If the connection
 goes on, continue to call sidekick_receive() and sidekick_on_sent(): they end what the help has
 changed in the connection, such as held acknowledgements.
 */
void sidekick_stop(struct sidekick *sidekick);

/*
 Makes a configuration for any proxy that is discovered on the path, with the default terms.
 sidekick_config_free() frees it. `mode` is one of "early-loss", "pacubic", "path-aware-bbr",
 "reinject", "ack-reduction", "auto", "receive". Returns NULL for any other.
 */
struct sidekick_config *sidekick_config_new(const char *mode);

/*
 Frees the configuration. NULL does nothing.
 */
void sidekick_config_free(struct sidekick_config *config);

/*
 The name of the mode's congestion controller, for quiche_config_set_cc_algorithm_name(); NULL if
 the mode works with any.
 */
const char *sidekick_config_congestion_control(const struct sidekick_config *config);

/*
 Uses the proxy at this address, and discovers no other. Returns 0, or -1 if it is not an IPv4 or
 IPv6 address.
 */
int sidekick_config_set_proxy(struct sidekick_config *config,
                              const struct sockaddr *address,
                              socklen_t len);

/*
 Accepts only the proxy with this public key, in hexadecimal as the proxy prints it. Returns 0,
 or -1 if it is not a public key.
 */
int sidekick_config_set_key(struct sidekick_config *config, const char *key);

/*
 Sets how the proxy repairs what the connection receives: "auto", "requests", "parity" or "both".
 Returns 0, or -1 for any other.
 */
int sidekick_config_set_receive_repair(struct sidekick_config *config, const char *repair);

/*
 Requests a quACK of `sums` sums after every `packets` packets and every `milliseconds`. 0
 disables either. While packets are lost, the modes "auto", "reinject" and "receive" request one
 every 5 ms or more often. Returns 0, or -1 if both are 0, or `sums` is.
 */
int sidekick_config_set_quacks(struct sidekick_config *config,
                               uint16_t packets,
                               uint32_t milliseconds,
                               uint8_t sums);

/*
 Writes the status to `out`, cut to `size` bytes. `size` is `sizeof(sidekick_status)` in the
 program, so that it fits even if the library knows more fields. Fields that the library does not
 know become 0. If `sidekick` is null, writes the status of a connection without help.
 */
void sidekick_get_status(const struct sidekick *sidekick, struct sidekick_status *out, size_t size);

/*
 Writes a sentence for a user to `out`, such as "assisted by the proxy", with a zero byte at its
 end, cut to `len` bytes. Returns the length of the whole sentence, without the zero byte. If
 `sidekick` is null, the sentence says so.
 */
size_t sidekick_assistance(const struct sidekick *sidekick, char *out, size_t len);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* QUIC_SIDEKICK_H */
