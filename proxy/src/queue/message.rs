//! The messages of netfilter's queue (`nfnetlink_queue.h`).
//!
//! The kernel writes the headers of netlink in the machine's byte order, and the values of the
//! queue in that of the network. The parser takes any bytes: what does not fit is cut or skipped.

use nix::errno::Errno;
use nix::libc::{self, c_int};

/// Bytes of `nlmsghdr` and `nfgenmsg`.
const HEADER: usize = 16;
const GENERIC: usize = 4;
/// Bytes of an attribute's length and type.
const ATTRIBUTE: usize = 4;
/// Messages and attributes begin at multiples of this.
const ALIGNMENT: usize = 4;

/// Bytes of a message with one verdict.
pub(super) const VERDICT_LEN: usize = HEADER + GENERIC + ATTRIBUTE + 8;

/// What the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    /// A packet from its IP header on, which waits for a verdict.
    Packet { id: u32, bytes: &'a [u8] },
    /// The answer to the request with this number: done, or an error.
    Answer { sequence: u32, outcome: Result<(), Errno> },
}

/// A request to the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// The queue.
    pub(super) queue: u16,
    /// An answer has this number.
    pub(super) sequence: u32,
    /// Whether the kernel also answers what it has done. It answers an error in any case.
    pub(super) answered: bool,
}

impl Request {
    /// Appends a message of this kind (`NFQNL_MSG_`) with these attributes.
    pub(super) fn write(self, to: &mut Vec<u8>, kind: c_int, attributes: &[(c_int, &[u8])]) {
        let start = to.len();
        let flags = libc::NLM_F_REQUEST | if self.answered { libc::NLM_F_ACK } else { 0 };
        to.extend([0; 4]);
        to.extend(half(libc::NFNL_SUBSYS_QUEUE << 8 | kind).to_ne_bytes());
        to.extend(half(flags).to_ne_bytes());
        to.extend(self.sequence.to_ne_bytes());
        // The sender's address, which the kernel knows.
        to.extend([0; 4]);
        to.extend([0, 0]);
        to.extend(self.queue.to_be_bytes());
        for (kind, value) in attributes {
            let len = u16::try_from(ATTRIBUTE + value.len()).unwrap_or_default();
            to.extend(len.to_ne_bytes());
            to.extend(half(*kind).to_ne_bytes());
            to.extend(*value);
            to.resize(start + (to.len() - start).next_multiple_of(ALIGNMENT), 0);
        }
        let len = u32::try_from(to.len() - start).unwrap_or_default();
        if let Some(place) = to.get_mut(start..).and_then(<[u8]>::first_chunk_mut) {
            *place = len.to_ne_bytes();
        }
    }

    /// Appends a verdict (`NF_`) about a packet, or about it and all before it.
    pub(super) fn write_verdict(self, to: &mut Vec<u8>, kind: c_int, verdict: c_int, id: u32) {
        let [a, b, c, d] = verdict.to_be_bytes();
        let [e, f, g, h] = id.to_be_bytes();
        self.write(to, kind, &[(libc::NFQA_VERDICT_HDR, &[a, b, c, d, e, f, g, h])]);
    }
}

/// A constant of the kernel's headers, all of which fit.
fn half(constant: c_int) -> u16 {
    u16::try_from(constant).unwrap_or_default()
}

/// The messages in what one read returned.
pub(super) fn messages(datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let len = usize::try_from(u32::from_ne_bytes(field(rest, 0)?)).ok()?;
        // A shorter one would be no end of this loop.
        (len >= HEADER).then_some(())?;
        let (message, behind) = split(rest, len);
        rest = behind;
        Some(message)
    })
    .filter_map(parse)
}

/// The message that these bytes are. `None` for one of another kind.
fn parse(message: &[u8]) -> Option<Message<'_>> {
    let kind = c_int::from(u16::from_ne_bytes(field(message, 4)?));
    if kind == libc::NLMSG_ERROR {
        let sequence = u32::from_ne_bytes(field(message, 8)?);
        let outcome = match i32::from_ne_bytes(field(message, HEADER)?) {
            0 => Ok(()),
            errno => Err(Errno::from_raw(errno.wrapping_neg())),
        };
        return Some(Message::Answer { sequence, outcome });
    }
    if kind != libc::NFNL_SUBSYS_QUEUE << 8 | libc::NFQNL_MSG_PACKET {
        return None;
    }
    let (mut id, mut bytes) = (None, &[][..]);
    for (kind, value) in attributes(message.get(HEADER + GENERIC..)?) {
        match kind {
            libc::NFQA_PACKET_HDR => id = field(value, 0).map(u32::from_be_bytes),
            libc::NFQA_PAYLOAD => bytes = value,
            _ => {}
        }
    }
    // A packet without bytes needs a verdict, too.
    Some(Message::Packet { id: id?, bytes })
}

/// The types and values of attributes.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (c_int, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let len = usize::from(u16::from_ne_bytes(field(rest, 0)?));
        let kind = c_int::from(u16::from_ne_bytes(field(rest, 2)?)) & libc::NLA_TYPE_MASK;
        (len >= ATTRIBUTE).then_some(())?;
        let (attribute, behind) = split(rest, len);
        rest = behind;
        Some((kind, attribute.get(ATTRIBUTE..)?))
    })
}

/// The first `len` bytes, or as many as there are, and what is behind them and their padding.
fn split(bytes: &[u8], len: usize) -> (&[u8], &[u8]) {
    let behind = len.checked_next_multiple_of(ALIGNMENT).and_then(|next| bytes.get(next..));
    (bytes.get(..len).unwrap_or(bytes), behind.unwrap_or_default())
}

/// The bytes from `at` on.
fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    const OURS: Request = Request { queue: 7, sequence: 9, answered: false };

    /// A message of the kernel about a packet.
    fn packet(id: u32, bytes: &[u8]) -> Vec<u8> {
        let mut message = Vec::new();
        let header = [&id.to_be_bytes()[..], &[8, 0, 0]].concat();
        let attributes = [
            (libc::NFQA_PACKET_HDR, &header[..]),
            (libc::NFQA_IFINDEX_INDEV, &[0, 0, 0, 2]),
            (libc::NFQA_PAYLOAD, bytes),
        ];
        OURS.write(&mut message, libc::NFQNL_MSG_PACKET, &attributes);
        message
    }

    /// The answer of the kernel to a request.
    fn answer(sequence: u32, errno: i32) -> Vec<u8> {
        let mut message = Vec::new();
        message.extend(36_u32.to_ne_bytes());
        message.extend(2_u16.to_ne_bytes());
        message.extend([0; 2]);
        message.extend(sequence.to_ne_bytes());
        message.extend([0; 4]);
        message.extend((-errno).to_ne_bytes());
        message.extend([0; 16]);
        message
    }

    #[test]
    fn a_verdict_has_the_layout_of_the_kernel() {
        let mut verdict = Vec::new();
        OURS.write_verdict(&mut verdict, libc::NFQNL_MSG_VERDICT, libc::NF_ACCEPT, 0x0102_0304);
        let expected = [
            &32_u32.to_ne_bytes()[..],
            &0x0301_u16.to_ne_bytes(),
            &1_u16.to_ne_bytes(),
            &9_u32.to_ne_bytes(),
            &[0; 4],
            &[0, 0, 0, 7],
            &12_u16.to_ne_bytes(),
            &2_u16.to_ne_bytes(),
            &[0, 0, 0, 1, 1, 2, 3, 4],
        ];
        assert_eq!(verdict, expected.concat());
        assert_eq!(verdict.len(), VERDICT_LEN);
    }

    #[test]
    fn packets_and_answers_are_read_in_order() {
        let both = [packet(1, b"odd"), answer(5, 2), packet(2, b""), answer(6, 0)].concat();
        let expected = [
            Message::Packet { id: 1, bytes: b"odd" },
            Message::Answer { sequence: 5, outcome: Err(Errno::ENOENT) },
            Message::Packet { id: 2, bytes: b"" },
            Message::Answer { sequence: 6, outcome: Ok(()) },
        ];
        assert_eq!(messages(&both).collect::<Vec<_>>(), expected);
    }

    /// A buffer that is too short must leave no packet without a verdict.
    #[test]
    fn a_cut_message_still_names_its_packet() {
        let whole = packet(3, &[7; 1000]);
        for len in 0..whole.len() {
            let read: Vec<_> = messages(&whole[..len]).collect();
            // The packet's number ends here.
            let named = len >= HEADER + GENERIC + ATTRIBUTE + 4;
            assert_eq!(read.len(), usize::from(named), "{len}");
            assert!(read.iter().all(|m| matches!(m, Message::Packet { id: 3, .. })), "{len}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in vec(any::<u8>(), 0..300)) {
            prop_assert!(messages(&bytes).count() <= bytes.len() / HEADER);
        }

        /// Bytes that are wrong only here and there lead further into the parser.
        #[test]
        fn damaged_messages_are_read(
            changes in vec((any::<usize>(), any::<u8>()), 0..8),
            sizes in vec(0..50_usize, 1..5),
        ) {
            let mut bytes: Vec<u8> = Vec::new();
            for (id, size) in (0..).zip(&sizes) {
                bytes.extend(packet(id, &vec![1; *size]));
                bytes.extend(answer(id, 1));
            }
            for (at, value) in &changes {
                let len = bytes.len();
                bytes[at % len] = *value;
            }
            let read = messages(&bytes).count();
            prop_assert!(read <= bytes.len() / HEADER);
            if changes.is_empty() {
                prop_assert_eq!(read, 2 * sizes.len());
            }
        }
    }
}
