//! Cookies: a sender proves its address, and the proxy keeps no state for it (SPEC.md, section
//! 6.2).

use crate::identify::Flow;
use crate::wire::Cookie;
use blake2::Blake2sMac;
use blake2::digest::consts::U16;
use blake2::digest::{KeyInit, Mac};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// How long a cookie is valid.
pub(crate) const LIFETIME: Duration = Duration::from_secs(30);

/// The claim that a cookie proves for its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof<'a> {
    /// It receives at this address, that of an adjacent socket.
    Address(&'a SocketAddr),
    /// It receives at the address of this flow's source, on the flow's path.
    Path(&'a Flow),
    /// It receives what arrives along the path at this flow's source, address and port.
    Flow(&'a Flow),
}

/// Issues cookies and verifies them.
#[derive(Clone, Debug)]
pub(crate) struct CookieIssuer {
    key: [u8; 32],
    /// The time of the first call. Cookies hold seconds since then.
    begin: Option<Instant>,
}

impl CookieIssuer {
    pub(crate) fn new(key: [u8; 32]) -> Self {
        Self { key, begin: None }
    }

    /// Whole seconds since `begin`.
    fn seconds(&mut self, now: Instant) -> u32 {
        let begin = *self.begin.get_or_insert(now);
        u32::try_from(now.saturating_duration_since(begin).as_secs()).unwrap_or(u32::MAX)
    }

    /// The MAC over time and proof. BLAKE2s accepts every key of 32 bytes, so this never returns
    /// `None`.
    fn mac(&self, seconds: u32, proof: Proof<'_>) -> Option<Blake2sMac<U16>> {
        let mut mac = <Blake2sMac<U16> as KeyInit>::new_from_slice(&self.key).ok()?;
        mac.update(&seconds.to_be_bytes());
        match proof {
            Proof::Address(address) => {
                mac.update(b"a");
                update(&mut mac, address);
            }
            Proof::Path(flow) | Proof::Flow(flow) => {
                mac.update(if matches!(proof, Proof::Path(_)) { b"p" } else { b"f" });
                update(&mut mac, &flow.source);
                update(&mut mac, &flow.destination);
            }
        }
        Some(mac)
    }

    pub(crate) fn issue(&mut self, proof: Proof<'_>, now: Instant) -> Option<Cookie> {
        // Times begin at 1, so that no cookie equals `Cookie::NONE`.
        let seconds = self.seconds(now).saturating_add(1);
        let tag = self.mac(seconds, proof)?.finalize().into_bytes();
        let mut cookie = Cookie::NONE;
        let (time, mac) = cookie.0.split_first_chunk_mut::<4>()?;
        *time = seconds.to_be_bytes();
        mac.copy_from_slice(&tag);
        Some(cookie)
    }

    /// Whether this issuer issued `cookie` for `proof`, within [`LIFETIME`].
    pub(crate) fn verify(&mut self, cookie: &Cookie, proof: Proof<'_>, now: Instant) -> bool {
        let Some((time, mac)) = cookie.0.split_first_chunk::<4>() else { return false };
        let seconds = u32::from_be_bytes(*time);
        let age = self.seconds(now).saturating_add(1).checked_sub(seconds);
        let fresh = age.is_some_and(|age| u64::from(age) <= LIFETIME.as_secs());
        // `verify_slice` compares in constant time.
        fresh && self.mac(seconds, proof).is_some_and(|expected| expected.verify_slice(mac).is_ok())
    }
}

fn update(mac: &mut Blake2sMac<U16>, address: &SocketAddr) {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    mac.update(&ip.octets());
    mac.update(&address.port().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
    fn a_cookie_proves_one_claim_until_it_expires() {
        let now = Instant::now();
        let (mut issuer, mut other) = (CookieIssuer::new([1; 32]), CookieIssuer::new([2; 32]));
        let flow = Flow {
            source: "192.0.2.1:4000".parse().unwrap(),
            destination: "192.0.2.9:443".parse().unwrap(),
        };
        let elsewhere = Flow { destination: "192.0.2.9:444".parse().unwrap(), ..flow };
        let address = Proof::Address(&flow.source);
        let (path, own_flow) = (Proof::Path(&flow), Proof::Flow(&flow));
        for proof in [address, path, own_flow] {
            let cookie = issuer.issue(proof, now).unwrap();
            let others = [Proof::Path(&elsewhere), Proof::Flow(&elsewhere)];
            let destination = Proof::Address(&flow.destination);
            for asked in [address, path, own_flow, destination].into_iter().chain(others) {
                assert_eq!(
                    issuer.verify(&cookie, asked, now + LIFETIME),
                    asked == proof,
                    "{proof:?} for {asked:?}"
                );
            }
            assert!(
                !issuer.verify(&cookie, proof, now + LIFETIME + Duration::from_secs(1)),
                "expired"
            );
            assert!(!other.verify(&cookie, proof, now), "another issuer's");
            for byte in 0..Cookie::LEN {
                let mut forged = cookie;
                forged.0[byte] ^= 1;
                assert!(!issuer.verify(&forged, proof, now), "changed at {byte}");
            }
        }
        assert!(!issuer.verify(&Cookie::NONE, path, now));
    }
}
