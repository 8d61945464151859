//! A call as a session description (SDP, RFC 8866), which audio-receive, ffmpeg and GStreamer read.

use super::{CLOCK_RATE, Encoding, MasterKey, Session};
use sdp_types::{Attribute, Connection, Media, Origin, Time};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use thiserror::Error;

/// The only crypto suite that is spoken here (RFC 4568, section 6.2.1): every implementation of
/// SRTP has it.
const SUITE: &str = "AES_CM_128_HMAC_SHA1_80";

/// The SSRCs of a talker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sources {
    /// Of what is sent for the first time.
    pub media: u32,
    /// Of retransmissions.
    pub rtx: u32,
}

/// A call, and where its packets go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// What both ends have to know.
    pub session: Session,
    /// Where the receiver listens, for RTP and RTCP alike.
    pub destination: SocketAddr,
    /// The talker's SSRCs, if it was the talker who wrote the description.
    pub sources: Option<Sources>,
    /// From one packet to the next.
    pub interval: Duration,
    /// Bits of content in a second, for who wants to know.
    pub bitrate: u32,
}

/// Why a session description is of no use.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SdpError {
    /// It is none.
    #[error("it is no session description: {0}")]
    Malformed(String),
    /// It has no stream of audio over SRTP.
    #[error("it describes no audio over SRTP (m=audio ... RTP/SAVPF or RTP/SAVP)")]
    NoAudio,
    /// Its address is none.
    #[error("its c= line names no address; write one like c=IN IP4 192.0.2.7")]
    Address,
    /// It has no key that could be used.
    #[error(
        "it has no a=crypto line with the suite {SUITE}, an inline key without identifier, and no session parameters"
    )]
    Key,
    /// Its content is neither Opus nor of the kind made by `--raw`.
    #[error("its a=rtpmap line names neither opus nor the random bytes of audio-send --raw")]
    Encoding,
    /// RTCP would go to another port.
    #[error("it does not multiplex RTCP with RTP (a=rtcp-mux)")]
    NoMux,
}

impl Description {
    /// The description as the text of a file.
    #[must_use]
    pub fn to_sdp(&self) -> String {
        let Session { key, lifetime, payload_type, rtx_payload_type, encoding } = &self.session;
        let (pt, clock) = (payload_type, CLOCK_RATE);
        let formats = rtx_payload_type.map_or_else(|| pt.to_string(), |rtx| format!("{pt} {rtx}"));
        let mut attributes = Vec::new();
        let mut attribute = |name: &str, value: String| {
            attributes.push(Attribute {
                attribute: name.to_owned(),
                value: Some(value).filter(|v| !v.is_empty()),
            });
        };
        match encoding {
            Encoding::Opus => {
                attribute("rtpmap", format!("{pt} opus/{clock}/2"));
                attribute(
                    "fmtp",
                    format!("{pt} maxaveragebitrate={};cbr=1;stereo=0", self.bitrate),
                );
            }
            Encoding::Random => attribute("rtpmap", format!("{pt} x-random/{clock}")),
        }
        if let Some(rtx) = rtx_payload_type {
            attribute("rtpmap", format!("{rtx} rtx/{clock}"));
            attribute("fmtp", format!("{rtx} apt={pt}"));
        }
        attribute("ptime", self.interval.as_millis().to_string());
        attribute("rtcp-mux", String::new());
        attribute("rtcp-rsize", String::new());
        attribute("rtcp-fb", format!("{pt} nack"));
        attribute("rtcp-xr", "rcvr-rtt=all".to_owned());
        let lifetime = lifetime.map(|packets| format!("|{packets}")).unwrap_or_default();
        attribute("crypto", format!("1 {SUITE} inline:{}{lifetime}", key.to_inline()));
        if let Some(Sources { media, rtx }) = self.sources {
            attribute("ssrc-group", format!("FID {media} {rtx}"));
            attribute("ssrc", format!("{media} cname:{}", cname(media)));
            attribute("ssrc", format!("{rtx} cname:{}", cname(media)));
        }
        let ip = self.destination.ip();
        let session = sdp_types::Session {
            origin: Origin::with_ip_addr(self.sources.map_or(0, |s| s.media), 0, ip),
            session_name: "audio".to_owned(),
            session_description: None,
            uri: None,
            emails: Vec::new(),
            phones: Vec::new(),
            connection: Some(Connection::from_ip_addr(ip)),
            bandwidths: Vec::new(),
            times: vec![Time { start_time: 0, stop_time: 0, repeats: Vec::new() }],
            time_zones: Vec::new(),
            key: None,
            attributes: Vec::new(),
            medias: vec![Media {
                media: "audio".to_owned(),
                port: self.destination.port(),
                num_ports: None,
                // The profile with feedback (RFC 5124).
                proto: "RTP/SAVPF".to_owned(),
                fmt: formats,
                media_title: None,
                connections: Vec::new(),
                bandwidths: Vec::new(),
                key: None,
                attributes,
            }],
        };
        let mut text = Vec::new();
        // A vector takes everything.
        let _ = session.write(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Reads a session description: the first stream of audio in it that goes over SRTP.
    ///
    /// # Errors
    /// [`SdpError`] says what is missing.
    pub fn from_sdp(text: &[u8]) -> Result<Self, SdpError> {
        let parsed = sdp_types::Session::parse(text)
            .map_err(|error| SdpError::Malformed(error.to_string()))?;
        let secure = |media: &&Media| {
            media.media == "audio" && matches!(media.proto.as_str(), "RTP/SAVPF" | "RTP/SAVP")
        };
        let media = parsed.medias.iter().find(secure).ok_or(SdpError::NoAudio)?;
        let connection = media.connections.first().or(parsed.connection.as_ref());
        let address: IpAddr = connection
            .and_then(|connection| connection.connection_address.split('/').next()?.parse().ok())
            .ok_or(SdpError::Address)?;
        if values(media, "rtcp-mux").next().is_none() {
            return Err(SdpError::NoMux);
        }
        let (payload_type, encoding) = media_format(media).ok_or(SdpError::Encoding)?;
        let (key, lifetime) = values(media, "crypto").find_map(inline_key).ok_or(SdpError::Key)?;
        let session = Session {
            key,
            lifetime,
            payload_type,
            rtx_payload_type: rtx_format(media, payload_type),
            encoding,
        };
        let ptime = values(media, "ptime").find_map(|value| value.trim().parse().ok());
        let bitrate = values(media, "fmtp").find_map(|value| {
            let parameters = value.split_once(' ')?.1;
            parameters
                .split(';')
                .find_map(|p| p.trim().strip_prefix("maxaveragebitrate=")?.parse().ok())
        });
        Ok(Self {
            session,
            destination: SocketAddr::new(address, media.port),
            sources: values(media, "ssrc-group").find_map(sources),
            interval: Duration::from_millis(ptime.unwrap_or(20)),
            bitrate: bitrate.unwrap_or_default(),
        })
    }
}

/// The name under which both SSRCs of a talker belong together (RFC 7022 asks for no more than that
/// it is unique).
pub(crate) fn cname(media: u32) -> String {
    format!("audio-{media:08x}")
}

fn values<'a>(media: &'a Media, name: &'a str) -> impl Iterator<Item = &'a str> {
    let named = media.attributes.iter().filter(move |attribute| attribute.attribute == name);
    named.map(|attribute| attribute.value.as_deref().unwrap_or_default())
}

/// `PT NAME/...` of every `a=rtpmap` line whose payload type is one of RTP's.
fn rtpmaps(media: &Media) -> impl Iterator<Item = (u8, String)> {
    values(media, "rtpmap").filter_map(|value| {
        let (number, name) = value.trim().split_once(' ')?;
        let number: u8 = number.parse().ok().filter(|number| *number < 128)?;
        Some((number, name.split('/').next()?.trim().to_ascii_lowercase()))
    })
}

fn media_format(media: &Media) -> Option<(u8, Encoding)> {
    rtpmaps(media).find_map(|(number, name)| match name.as_str() {
        "opus" => Some((number, Encoding::Opus)),
        "x-random" => Some((number, Encoding::Random)),
        _ => None,
    })
}

fn rtx_format(media: &Media, of: u8) -> Option<u8> {
    let apt = format!("apt={of}");
    let repeats = |number: u8| {
        values(media, "fmtp").any(|value| {
            let parameters = value.trim().strip_prefix(&format!("{number} "));
            parameters.is_some_and(|parameters| parameters.split(';').any(|p| p.trim() == apt))
        })
    };
    rtpmaps(media)
        .find(|(number, name)| name == "rtx" && repeats(*number))
        .map(|(number, _)| number)
}

/// A key, and how many packets it is for, if that is said.
fn inline_key(value: &str) -> Option<(MasterKey, Option<u64>)> {
    let mut words = value.split_whitespace().skip(1);
    if words.next()? != SUITE {
        return None;
    }
    let key = words.next()?.strip_prefix("inline:")?;
    // Session parameters change what packets look like. Those that may be passed over say so (RFC
    // 4568, section 6.3.7).
    if !words.all(|parameter| parameter.starts_with('-')) {
        return None;
    }
    // A lifetime and an identifier may follow; the latter would be in every packet, and we could
    // not read them.
    let mut parts = key.split('|');
    let key = MasterKey::from_inline(parts.next()?)?;
    let lifetime = match parts.next() {
        Some(text) => Some(lifetime(text)?),
        None => None,
    };
    parts.next().is_none().then_some((key, lifetime))
}

/// A number of packets, or a power of two.
fn lifetime(text: &str) -> Option<u64> {
    let packets = match text.strip_prefix("2^") {
        Some(exponent) => 1_u64.checked_shl(exponent.parse().ok()?)?,
        None => text.parse().ok()?,
    };
    (packets > 0).then_some(packets)
}

fn sources(value: &str) -> Option<Sources> {
    let mut words = value.split_whitespace();
    if words.next()? != "FID" {
        return None;
    }
    Some(Sources { media: words.next()?.parse().ok()?, rtx: words.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn description(encoding: Encoding) -> Description {
        Description {
            session: Session::new(MasterKey::of_simulation(1), encoding),
            destination: "192.0.2.7:5004".parse().unwrap(),
            sources: Some(Sources { media: 0x0102_0304, rtx: u32::MAX }),
            interval: Duration::from_millis(20),
            bitrate: 96_000,
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let ours = description(Encoding::Opus);
        assert_eq!(Description::from_sdp(ours.to_sdp().as_bytes()), Ok(ours.clone()));
        let others = Description {
            destination: "[2001:db8::7]:5004".parse().unwrap(),
            sources: None,
            bitrate: 0,
            ..description(Encoding::Random)
        };
        assert_eq!(Description::from_sdp(others.to_sdp().as_bytes()), Ok(others));
    }

    #[test]
    fn what_is_missing_is_named() {
        let good = description(Encoding::Opus).to_sdp();
        for (from, to, wanted) in [
            ("RTP/SAVPF", "RTP/AVP", SdpError::NoAudio),
            ("c=IN IP4 192.0.2.7", "c=IN IP4 upload.example", SdpError::Address),
            ("inline:", "inline:A", SdpError::Key),
            ("_80 inline", "_32 inline", SdpError::Key),
            ("96 opus/48000/2", "96 PCMU/8000", SdpError::Encoding),
            ("a=rtcp-mux\r\n", "", SdpError::NoMux),
        ] {
            assert!(good.contains(from), "{good}");
            assert_eq!(
                Description::from_sdp(good.replace(from, to).as_bytes()),
                Err(wanted),
                "{to}"
            );
        }
        assert!(matches!(Description::from_sdp(b"RIFF"), Err(SdpError::Malformed(_))));
    }

    #[test]
    fn a_key_with_a_lifetime_is_taken_and_one_with_an_identifier_is_not() {
        let inline = description(Encoding::Opus).session.key.to_inline();
        let of = |tail: &str| {
            inline_key(&format!("1 {SUITE} inline:{inline}{tail}")).map(|(_, packets)| packets)
        };
        assert_eq!(
            (of(""), of("|2^20"), of("|700")),
            (Some(None), Some(Some(1 << 20)), Some(Some(700)))
        );
        for tail in ["|2^20|1:4", "|1:4", "|2^64", "|2^", "|0", "|", "|700|", "|-7"] {
            assert_eq!(of(tail), None, "{tail}");
        }
        let mut ours = description(Encoding::Opus);
        ours.session.lifetime = Some(700);
        assert_eq!(Description::from_sdp(ours.to_sdp().as_bytes()), Ok(ours));
    }

    #[test]
    fn session_parameters_are_refused_but_for_those_that_may_be_passed_over() {
        let inline = description(Encoding::Opus).session.key.to_inline();
        let of = |tail: &str| inline_key(&format!("1 {SUITE} inline:{inline} {tail}")).is_some();
        assert!(of("") && of("-NEWS=7") && of("-A -B"));
        for parameter in [
            "UNENCRYPTED_SRTP",
            "UNENCRYPTED_SRTCP",
            "UNAUTHENTICATED_SRTP",
            "KDR=1",
            "FEC_ORDER=FEC_SRTP",
            "-A NEWS",
        ] {
            assert!(!of(parameter), "{parameter}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(line in "[a-z]=.{0,60}", at in 0..20_usize, bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Description::from_sdp(&bytes);
            let good = description(Encoding::Opus).to_sdp();
            let mut lines: Vec<_> = good.lines().map(str::to_owned).collect();
            let at = at.min(lines.len() - 1);
            lines[at] = line;
            let _ = Description::from_sdp(lines.join("\r\n").as_bytes());
        }
    }
}
