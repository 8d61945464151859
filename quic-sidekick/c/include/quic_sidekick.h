/* The plugin for programs that drive quiche by its C interface. Made by cbindgen from the crate quic-sidekick-c.
 *
 * Each pointer has to be what its function asks for, or NULL, and a connection and its help are used by one thread at a time.
 */

#ifndef QUIC_SIDEKICK_H
#define QUIC_SIDEKICK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include "quiche.h"

/*
 Bytes that sidekick_send() wants room for: as many as fit into every path that carries QUIC.
 */
#define SIDEKICK_MAX_DATAGRAM_LEN 1200

/*
 The help for one connection. It is used from one thread at a time, as the connection is.
 */
typedef struct sidekick sidekick;

/*
 Which proxy to ask for what; for any number of connections.
 */
typedef struct sidekick_config sidekick_config;

/*
 Whether a connection is helped, and what came of it. Counters are since it began.
 */
typedef struct sidekick_status {
  /*
   Whether it is helped now.
   */
  bool assisted;
  /*
   The near segment's smoothed round-trip time, in nanoseconds, or 0 as long as it was not measured.
   */
  uint64_t near_rtt_nanos;
  /*
   Packets that were taken for lost, or sent again, by the proxy's word. quiche's own count of lost packets does not
   contain them.
   */
  uint64_t early_lost;
  /*
   Of these, packets that the receiver has acknowledged after all.
   */
  uint64_t spurious;
  /*
   quACKs received, and their bytes.
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
} sidekick_status;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Makes the help for one connection, to be freed by sidekick_free(). NULL if `config` is NULL. The config can be freed
 after.
 */
struct sidekick *sidekick_new(const struct sidekick_config *config);

/*
 Frees it; NULL is nothing. The connection goes on as plain QUIC.
 */
void sidekick_free(struct sidekick *sidekick);

/*
 Has the connection keep a log of what it sends: right after quiche_connect().
 */
void sidekick_attach(struct sidekick *sidekick, quiche_conn *conn);

/*
 Tells the local port of the adjacent socket, in the machine's byte order: a proxy that is found on the path can then
 answer there. Not needed where the config names the proxy.
 */
void sidekick_set_adjacent_port(struct sidekick *sidekick,
                                uint16_t port);

/*
 To be called when quiche_conn_send() has said QUICHE_ERR_DONE and all was sent. True if it is worth asking
 quiche_conn_send() again.
 */
bool sidekick_on_sent(struct sidekick *sidekick,
                      quiche_conn *conn);

/*
 To be called when the time of sidekick_timeout_as_nanos() has passed; harmless before. True if it is worth asking
 quiche_conn_send() again.
 */
bool sidekick_on_timeout(struct sidekick *sidekick,
                         quiche_conn *conn);

/*
 Nanoseconds until sidekick_on_timeout() is to be called, or UINT64_MAX: wait for the shorter of this and
 quiche_conn_timeout_as_nanos().
 */
uint64_t sidekick_timeout_as_nanos(const struct sidekick *sidekick);

/*
 Takes a datagram that has come to the adjacent socket, `len` bytes at `buf` from the address `from`. True if it is worth
 asking quiche_conn_send() again.
 */
bool sidekick_recv(struct sidekick *sidekick,
                   quiche_conn *conn,
                   const uint8_t *buf,
                   size_t len,
                   const struct sockaddr *from,
                   socklen_t from_len);

/*
 Writes the next datagram for the adjacent socket to `out`, which has SIDEKICK_MAX_DATAGRAM_LEN bytes at least, and its
 destination to `to`; gives its length, and 0 when there is none. To be called until then after each call of
 sidekick_on_sent(), sidekick_on_timeout() and sidekick_recv().
 */
size_t sidekick_send(struct sidekick *sidekick,
                     uint8_t *out,
                     size_t out_len,
                     struct sockaddr_storage *to,
                     socklen_t *to_len);

/*
 Nanoseconds to wait before quiche_conn_send() is asked for the next packet, which is to be sent at once then: quiche's
 own interface does not tell, and its BBR2 takes the time of that call for the time on the wire. 0 for other controllers,
 which do not pace. A packet that is held back beyond sidekick_on_sent() is taken for lost before the proxy.
 */
uint64_t sidekick_release_as_nanos(const quiche_conn *conn);

/*
 Goes on without the proxy, which is told so by what sidekick_send() gives next. Before the connection is closed.
 */
void sidekick_stop(struct sidekick *sidekick);

/*
 The usual terms of whatever proxy is found on the path, to be freed by sidekick_config_free(). `mode` is one of
 "early-loss", "pacubic", "path-aware-bbr", "reinject", "ack-reduction", "auto"; NULL for any other.
 */
struct sidekick_config *sidekick_config_new(const char *mode);

/*
 Frees it; NULL is nothing.
 */
void sidekick_config_free(struct sidekick_config *config);

/*
 The congestion controller that the mode is made for, for quiche_config_set_cc_algorithm_name(); NULL if any will do.
 */
const char *sidekick_config_congestion_control(const struct sidekick_config *config);

/*
 Asks the proxy at this address, and looks for no other. -1 if it is no IPv4 or IPv6 address.
 */
int sidekick_config_set_proxy(struct sidekick_config *config,
                              const struct sockaddr *address,
                              socklen_t len);

/*
 Believes only the proxy with this public key, in hexadecimal as the proxy prints it. -1 if it is none.
 */
int sidekick_config_set_key(struct sidekick_config *config,
                            const char *key);

/*
 Asks for a quACK of `sums` sums after every `packets` packets and every `milliseconds`, where they are not 0. -1 if both
 or the sums are.
 */
int sidekick_config_set_quacks(struct sidekick_config *config,
                               uint16_t packets,
                               uint32_t milliseconds,
                               uint8_t sums);

/*
 Writes how it stands to `out`.
 */
void sidekick_get_status(const struct sidekick *sidekick, struct sidekick_status *out);

/*
 Writes a sentence for a user to `out`, such as "assisted by the proxy", with its zero byte at the end, cut to `len` bytes.
 Gives the bytes that the whole sentence has, without the zero byte.
 */
size_t sidekick_assistance(const struct sidekick *sidekick,
                           char *out,
                           size_t len);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* QUIC_SIDEKICK_H */
