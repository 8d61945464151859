//! The unit to which limits for each source apply.

use std::net::IpAddr;

/// The unit of the limit per source: an IPv4 address, or the IPv6 /64 of which one host can use any
/// address.
pub(super) fn site(source: IpAddr) -> IpAddr {
    match source {
        IpAddr::V4(_) => source,
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            [a, b, c, d, 0, 0, 0, 0].into()
        }
    }
}
