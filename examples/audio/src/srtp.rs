//! SRTP and SRTCP (RFC 3711) with the `rtc-srtp` crate.

use crate::end::{ConfigError, Refused};
use crate::session::{MasterKey, Session};
use rtc_srtp::context::Context;
use rtc_srtp::crypto::default_provider;
use rtc_srtp::option::{srtcp_replay_protection, srtp_replay_protection};
use rtc_srtp::protection_profile::ProtectionProfile;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The length of an authentication tag of HMAC-SHA1-80 in bytes. SRTP adds only it to a packet.
pub const TAG_LEN: usize = 10;
/// A packet this far behind the latest counts as a replay. At 20 ms per packet, a talker keeps
/// fewer.
const REPLAY_WINDOW: usize = 1024;
/// The most SSRCs per protocol: a talker's two, a listener's one, and one for a restarted listener.
const MAX_SOURCES: usize = 4;
/// The length in bytes of the index that SRTCP appends. Its first bit states whether the packet is
/// encrypted.
const SRTCP_INDEX_LEN: usize = 4;

/// Whether a datagram is RTCP rather than RTP (RFC 5761, section 4).
#[must_use]
pub fn is_rtcp(datagram: &[u8]) -> bool {
    matches!(datagram, [_, 192..=223, ..])
}

/// The SSRC of a datagram's first RTCP packet, which is the datagram's sender.
pub(crate) fn rtcp_source(packet: &[u8]) -> Option<u32> {
    packet.get(4..8)?.first_chunk().copied().map(u32::from_be_bytes)
}

fn context(key: &MasterKey) -> Result<Context, ConfigError> {
    let provider = default_provider().map_err(|error| ConfigError::Key(error.to_string()))?;
    let profile = ProtectionProfile::Aes128CmHmacSha1_80;
    let rtp = Some(srtp_replay_protection(REPLAY_WINDOW));
    let rtcp = Some(srtcp_replay_protection(REPLAY_WINDOW));
    Context::new(key.key(), key.salt(), profile, rtp, rtcp, provider.crypto())
        .map_err(|error| ConfigError::Key(error.to_string()))
}

/// Protects outgoing packets.
pub(crate) struct Protector {
    context: Context,
    /// The packets of each protocol that the key may still protect.
    rtp_left: u64,
    rtcp_left: u64,
}

impl fmt::Debug for Protector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protector(..)")
    }
}

impl Protector {
    /// A protector for as many packets of each protocol as the session allows.
    pub(crate) fn new(session: &Session) -> Result<Self, ConfigError> {
        let left = session.lifetime.unwrap_or(u64::MAX);
        Ok(Self { context: context(&session.key)?, rtp_left: left, rtcp_left: left })
    }

    /// The SRTP packet of an RTP packet. `None` if the key's lifetime is over (RFC 3711, section
    /// 9.2).
    pub(crate) fn rtp(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        self.rtp_left = self.rtp_left.checked_sub(1)?;
        Some(self.context.encrypt_rtp(packet).ok()?.into())
    }

    /// The SRTCP packet of an RTCP packet, likewise.
    pub(crate) fn rtcp(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        self.rtcp_left = self.rtcp_left.checked_sub(1)?;
        Some(self.context.encrypt_rtcp(packet).ok()?.into())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Protocol {
    Rtp,
    Rtcp,
}

/// Accepts packets that were protected with the same key, each once.
pub(crate) struct Unprotector {
    key: MasterKey,
    /// A context for each SSRC and protocol with an authentic packet. One for all would keep the
    /// state of forged packets.
    sources: BTreeMap<(Protocol, u32), Context>,
    own: BTreeSet<u32>,
}

impl fmt::Debug for Unprotector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unprotector").field("own", &self.own).finish_non_exhaustive()
    }
}

impl Unprotector {
    pub(crate) fn new(key: &MasterKey) -> Self {
        Self { key: key.clone(), sources: BTreeMap::new(), own: BTreeSet::new() }
    }

    /// Rejects packets of `ssrc` from now on, because it is our own.
    pub(crate) fn refuse_own(&mut self, ssrc: u32) {
        self.own.insert(ssrc);
    }

    /// The RTP packet in an SRTP packet of `ssrc`.
    pub(crate) fn rtp(&mut self, packet: &[u8], ssrc: u32) -> Result<Vec<u8>, Refused> {
        self.open(Protocol::Rtp, ssrc, |context| context.decrypt_rtp(packet).ok().map(Vec::from))
    }

    /// The RTCP packets in an SRTCP packet.
    pub(crate) fn rtcp(&mut self, packet: &[u8]) -> Result<Vec<u8>, Refused> {
        let flags =
            packet.len().checked_sub(TAG_LEN + SRTCP_INDEX_LEN).and_then(|at| packet.get(at));
        let (Some(flags), Some(ssrc)) = (flags, rtcp_source(packet)) else {
            return Err(Refused::Malformed);
        };
        // The crate does not check the tag of a packet that claims not to be encrypted. All of ours
        // are encrypted.
        if flags & 0x80 == 0 {
            return Err(Refused::Forged);
        }
        self.open(Protocol::Rtcp, ssrc, |context| context.decrypt_rtcp(packet).ok().map(Vec::from))
    }

    fn open(
        &mut self,
        protocol: Protocol,
        ssrc: u32,
        decrypt: impl FnOnce(&mut Context) -> Option<Vec<u8>>,
    ) -> Result<Vec<u8>, Refused> {
        if self.own.contains(&ssrc) {
            return Err(Refused::Own);
        }
        if let Some(context) = self.sources.get_mut(&(protocol, ssrc)) {
            return decrypt(context).ok_or(Refused::Forged);
        }
        if self.sources.keys().filter(|(known, _)| *known == protocol).count() >= MAX_SOURCES {
            return Err(Refused::TooManySources);
        }
        let mut context = context(&self.key).map_err(|_| Refused::Forged)?;
        let packet = decrypt(&mut context).ok_or(Refused::Forged)?;
        self.sources.insert((protocol, ssrc), context);
        Ok(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtp::{self, Header};
    use crate::testing::session;
    use proptest::prelude::*;

    fn pair() -> (Protector, Unprotector) {
        (Protector::new(&session()).unwrap(), Unprotector::new(&session().key))
    }

    fn rtp(ssrc: u32, sequence: u16) -> Vec<u8> {
        let (payload_type, timestamp, marker) = (96, 0, false);
        rtp::packet(&Header { ssrc, payload_type, sequence, timestamp, marker }, &[7; 20])
    }

    fn receiver_report(ssrc: u32) -> Vec<u8> {
        [&[0x80, 201, 0, 1], &ssrc.to_be_bytes()[..]].concat()
    }

    #[test]
    fn a_protected_packet_is_accepted_once_and_an_own_one_never() {
        let (mut from, mut to) = pair();
        to.refuse_own(7);
        for (packet, ssrc, opened) in [
            (rtp(5, 9), 5, [Ok(rtp(5, 9)), Err(Refused::Forged)]),
            (rtp(7, 9), 7, [Err(Refused::Own), Err(Refused::Own)]),
        ] {
            let sealed = from.rtp(&packet).unwrap();
            assert_eq!(sealed.len(), packet.len() + TAG_LEN);
            assert_eq!([to.rtp(&sealed, ssrc), to.rtp(&sealed, ssrc)], opened);
        }
        for (packet, opened) in [
            (receiver_report(6), [Ok(receiver_report(6)), Err(Refused::Forged)]),
            (receiver_report(7), [Err(Refused::Own), Err(Refused::Own)]),
        ] {
            let sealed = from.rtcp(&packet).unwrap();
            assert!(is_rtcp(&sealed) && !is_rtcp(&rtp(5, 9)));
            assert_eq!([to.rtcp(&sealed), to.rtcp(&sealed)], opened);
        }
    }

    #[test]
    fn sequence_numbers_may_begin_and_wrap_anywhere() {
        let (mut from, mut to) = pair();
        for number in 0..200_000_u32 {
            let sequence = u16::try_from((number + 30_000) % 65_536).unwrap();
            let sealed = from.rtp(&rtp(5, sequence)).unwrap();
            // Some packets are lost, and the listener joins after the first ones.
            if number > 20 && number % 7 != 0 {
                assert_eq!(to.rtp(&sealed, 5), Ok(rtp(5, sequence)), "{number}");
            }
        }
    }

    #[test]
    fn a_report_that_claims_not_to_be_encrypted_is_forged() {
        let (_, mut to) = pair();
        let mut forged = receiver_report(6);
        forged.extend([0, 0, 0, 1]);
        forged.extend([0; TAG_LEN]);
        assert_eq!(to.rtcp(&forged), Err(Refused::Forged));
    }

    #[test]
    fn forged_packets_add_no_ssrc() {
        let (mut from, mut to) = pair();
        for ssrc in 100..200 {
            let mut forged = from.rtp(&rtp(ssrc, 1)).unwrap();
            *forged.last_mut().unwrap() ^= 1;
            assert_eq!(to.rtp(&forged, ssrc), Err(Refused::Forged));
        }
        for ssrc in 0..4 {
            assert!(to.rtp(&from.rtp(&rtp(ssrc, 1)).unwrap(), ssrc).is_ok());
        }
        assert_eq!(to.rtp(&from.rtp(&rtp(4, 1)).unwrap(), 4), Err(Refused::TooManySources));
    }

    /// A context accepts even a forged packet's number as the latest, if the packet is the first of
    /// its SSRC and protocol.
    #[test]
    fn a_forgery_before_the_first_packet_of_the_other_protocol_changes_nothing() {
        for media_first in [true, false] {
            let (mut from, mut to) = pair();
            let refused = if media_first {
                assert!(to.rtp(&from.rtp(&rtp(5, 1)).unwrap(), 5).is_ok());
                // This packet claims to be encrypted, and has an index far ahead.
                to.rtcp(&[&receiver_report(5)[..], &[0xa0, 0, 0, 0], &[0; TAG_LEN]].concat())
            } else {
                assert!(to.rtcp(&from.rtcp(&receiver_report(5)).unwrap()).is_ok());
                to.rtp(&[rtp(5, 30_000), vec![0; TAG_LEN]].concat(), 5)
            };
            assert_eq!(refused, Err(Refused::Forged));
            for number in 2..9 {
                let opened = to.rtp(&from.rtp(&rtp(5, number)).unwrap(), 5).is_ok();
                let reported = to.rtcp(&from.rtcp(&receiver_report(5)).unwrap()).is_ok();
                assert!(opened && reported, "{media_first} {number}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), first in 0x80_u8..0xc0, kind in any::<u8>(), cut in 0..50_usize) {
            let (mut from, mut to) = pair();
            prop_assert!(to.rtp(&bytes, 5).is_err() && to.rtcp(&bytes).is_err());
            for (byte, value) in bytes.iter_mut().zip([first, kind]) {
                *byte = value;
            }
            prop_assert!(to.rtp(&bytes, 5).is_err() && to.rtcp(&bytes).is_err());
            let _ = from.rtp(&bytes);
            let _ = from.rtcp(&bytes);
            let sealed = from.rtp(&rtp(5, 1)).unwrap();
            let cut = sealed.len().saturating_sub(cut + 1);
            prop_assert!(to.rtp(&sealed[..cut], 5).is_err());
        }
    }
}
