//! A call as a session description (SDP, RFC 8866), which audio-receive, ffmpeg and GStreamer read.

use super::{CLOCK_RATE, Encoding, MasterKey, Session, Sources, cname};
use crate::source::BITRATE;
use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sdp_types::enums::{MediaType, TransportProto};
use sdp_types::{Media, Origin, Time};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The only supported crypto suite (RFC 4568, section 6.2.1). Every implementation of SRTP has it.
const SUITE: &str = "AES_CM_128_HMAC_SHA1_80";

/// A call, and the destination of its packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The key and the payload types.
    pub session: Session,
    /// The receiver's address for RTP and RTCP.
    pub destination: SocketAddr,
    /// The interval between packets.
    pub interval: Duration,
}

impl Description {
    /// A call to this destination, with a packet every 20 ms.
    #[must_use]
    pub fn new(session: Session, destination: SocketAddr) -> Self {
        Self { session, destination, interval: Duration::from_millis(20) }
    }

    /// The description as the text of a file, with the talker's SSRCs if the talker writes it.
    #[must_use]
    pub fn to_sdp(&self, sources: Option<Sources>) -> String {
        let Session { key, lifetime, payload_type: pt, rtx_payload_type: rtx, encoding } =
            &self.session;
        let formats = rtx.map_or_else(|| pt.to_string(), |rtx| format!("{pt} {rtx}"));
        // The profile with feedback (RFC 5124).
        let proto = TransportProto::RtpSavpf;
        let port = self.destination.port();
        let mut media = Media::builder(MediaType::Audio, port, proto, formats);
        let (codec, parameters) = match encoding {
            Encoding::Opus => {
                let parameters = format!("{pt} maxaveragebitrate={BITRATE};cbr=1;stereo=0");
                (format!("{pt} opus/{CLOCK_RATE}/2"), Some(parameters))
            }
            Encoding::Random => (format!("{pt} x-random/{CLOCK_RATE}"), None),
        };
        media = media
            .attribute_with_value("rtpmap", codec)
            .attribute_with_value_if_some("fmtp", parameters);
        if let Some(rtx) = rtx {
            media = media
                .attribute_with_value("rtpmap", format!("{rtx} rtx/{CLOCK_RATE}"))
                .attribute_with_value("fmtp", format!("{rtx} apt={pt}"));
        }
        let lifetime = lifetime.map(|packets| format!("|{packets}")).unwrap_or_default();
        media = media
            .attribute_with_value("ptime", self.interval.as_millis())
            .attribute_from_str("rtcp-mux")
            .attribute_from_str("rtcp-rsize")
            .attribute_with_value("rtcp-fb", format!("{pt} nack"))
            .attribute_with_value("rtcp-xr", "rcvr-rtt=all")
            .attribute_with_value(
                "crypto",
                format!("1 {SUITE} inline:{}{lifetime}", key.to_inline()),
            );
        if let Some(Sources { media: ssrc, rtx }) = sources {
            media = media
                .attribute_with_value("ssrc-group", format!("FID {ssrc} {rtx}"))
                .attribute_with_value("ssrc", format!("{ssrc} cname:{}", cname(ssrc)))
                .attribute_with_value("ssrc", format!("{rtx} cname:{}", cname(ssrc)));
        }
        let ip = self.destination.ip();
        let origin = Origin::with_ip_addr(sources.map_or(0, |s| s.media), 0, ip);
        let session = sdp_types::Session::builder(origin, "audio")
            .connection(ip)
            .time(Time::new(0, 0))
            .media(media.build())
            .build();
        let mut text = Vec::new();
        // Writing to a vector never fails.
        let _ = session.write(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Reads a session description: its first audio stream over SRTP.
    ///
    /// # Errors
    /// It names what is missing.
    pub fn from_sdp(text: &[u8]) -> anyhow::Result<Self> {
        let parsed = sdp_types::Session::parse(text).context("it is not a session description")?;
        let secure = |media: &&Media| {
            media.media == "audio" && matches!(media.proto.as_str(), "RTP/SAVPF" | "RTP/SAVP")
        };
        let media = parsed
            .medias
            .iter()
            .find(secure)
            .context("it describes no audio over SRTP (m=audio ... RTP/SAVPF or RTP/SAVP)")?;
        let connection = media.connections.first().or(parsed.connection.as_ref());
        let address: IpAddr = connection
            .and_then(|connection| connection.connection_address.split('/').next()?.parse().ok())
            .context("its c= line names no address; write one like c=IN IP4 192.0.2.7")?;
        ensure!(
            values(media, "rtcp-mux").next().is_some(),
            "it does not multiplex RTCP with RTP (a=rtcp-mux)"
        );
        let (payload_type, encoding) = media_format(media).context(
            "its a=rtpmap line names neither opus nor the random bytes of audio-send --raw",
        )?;
        let (key, lifetime) = values(media, "crypto").find_map(inline_key).with_context(|| {
            format!(
                "it has no a=crypto line with the suite {SUITE}, an inline key without identifier, \
                 and no session parameters"
            )
        })?;
        let session = Session {
            key,
            lifetime,
            payload_type,
            rtx_payload_type: rtx_format(media, payload_type),
            encoding,
        };
        let ptime = values(media, "ptime").find_map(|value| value.trim().parse().ok());
        Ok(Self {
            session,
            destination: SocketAddr::new(address, media.port),
            interval: Duration::from_millis(ptime.unwrap_or(20)),
        })
    }
}

impl MasterKey {
    /// The key as it follows `inline:` in SDP.
    fn to_inline(&self) -> String {
        STANDARD.encode(self.0)
    }

    /// Reads the format of [`MasterKey::to_inline`].
    fn from_inline(text: &str) -> Option<Self> {
        STANDARD.decode(text).ok()?.try_into().ok().map(Self)
    }
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

/// A key, and its lifetime in packets if the line has one.
fn inline_key(value: &str) -> Option<(MasterKey, Option<u64>)> {
    let mut words = value.split_whitespace().skip(1);
    if words.next()? != SUITE {
        return None;
    }
    let key = words.next()?.strip_prefix("inline:")?;
    // Session parameters change the packets. A `-` marks those that may be ignored (RFC 4568,
    // section 6.3.7).
    if !words.all(|parameter| parameter.starts_with('-')) {
        return None;
    }
    // A lifetime and an identifier may follow. The identifier would be in every packet, which is
    // not supported.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn description(encoding: Encoding) -> Description {
        let session = Session::new(MasterKey::of_simulation(1), encoding);
        Description::new(session, "192.0.2.7:5004".parse().unwrap())
    }

    fn read_back(description: &Description) -> Description {
        Description::from_sdp(description.to_sdp(None).as_bytes()).unwrap()
    }

    #[test]
    fn what_is_written_reads_back() {
        let ours = description(Encoding::Opus);
        let others = Description {
            destination: "[2001:db8::7]:5004".parse().unwrap(),
            interval: Duration::from_millis(60),
            ..description(Encoding::Random)
        };
        let mut used_up = ours.clone();
        used_up.session.lifetime = Some(700);
        for description in [ours.clone(), others, used_up] {
            assert_eq!(read_back(&description), description);
        }
        let named = ours.to_sdp(Some(Sources { media: 0x0102_0304, rtx: u32::MAX }));
        assert!(named.contains("a=ssrc-group:FID 16909060 4294967295\r\n"));
        assert_eq!(Description::from_sdp(named.as_bytes()).unwrap(), ours);
    }

    #[test]
    fn keys_read_back() {
        let key = MasterKey::of_simulation(7);
        assert_eq!(MasterKey::from_inline(&key.to_inline()), Some(key));
        for wrong in ["", "AAAA", "not base64!", &"A".repeat(44)] {
            assert_eq!(MasterKey::from_inline(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_error_names_what_is_missing() {
        let good = description(Encoding::Opus).to_sdp(None);
        for (from, to, wanted) in [
            ("RTP/SAVPF", "RTP/AVP", "no audio over SRTP"),
            ("c=IN IP4 192.0.2.7", "c=IN IP4 upload.example", "no address"),
            ("inline:", "inline:A", "no a=crypto line"),
            ("_80 inline", "_32 inline", "no a=crypto line"),
            ("96 opus/48000/2", "96 PCMU/8000", "a=rtpmap"),
            ("a=rtcp-mux\r\n", "", "a=rtcp-mux"),
            ("v=0", "RIFF", "not a session description"),
        ] {
            assert!(good.contains(from), "{good}");
            let error = Description::from_sdp(good.replace(from, to).as_bytes()).unwrap_err();
            assert!(error.to_string().contains(wanted), "{to}: {error}");
        }
    }

    #[test]
    fn a_key_may_have_a_lifetime_and_optional_parameters_alone() {
        let inline = description(Encoding::Opus).session.key.to_inline();
        let of = |tail: &str| {
            inline_key(&format!("1 {SUITE} inline:{inline}{tail}")).map(|(_, packets)| packets)
        };
        for (tail, packets) in [
            ("", None),
            ("|2^20", Some(1 << 20)),
            ("|700", Some(700)),
            (" -NEWS=7", None),
            ("|700 -A -B", Some(700)),
        ] {
            assert_eq!(of(tail), Some(packets), "{tail}");
        }
        for tail in ["|2^20|1:4", "|1:4", "|2^64", "|2^", "|0", "|", "|700|", "|-7"] {
            assert_eq!(of(tail), None, "{tail}");
        }
        for parameter in [
            "UNENCRYPTED_SRTP",
            "UNENCRYPTED_SRTCP",
            "UNAUTHENTICATED_SRTP",
            "KDR=1",
            "FEC_ORDER=FEC_SRTP",
            "-A NEWS",
        ] {
            assert_eq!(of(&format!(" {parameter}")), None, "{parameter}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(line in "[a-z]=.{0,60}", at in 0..20_usize, bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Description::from_sdp(&bytes);
            let good = description(Encoding::Opus).to_sdp(None);
            let mut lines: Vec<_> = good.lines().map(str::to_owned).collect();
            let at = at.min(lines.len() - 1);
            lines[at] = line;
            let _ = Description::from_sdp(lines.join("\r\n").as_bytes());
        }
    }
}
